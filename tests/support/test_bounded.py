"""Files of others: pipes, devices, huge files and YAML that multiplies end in an error at once."""

from __future__ import annotations

import gzip
import io
import os
import resource
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.bench.settings import read_settings
from semtoken.cli.settings import read_settings as read_toml
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.question_files import read_questions
from semtoken.errors import InvalidInputError, ModelError, SemtokenError
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.guarantees.calibrator import Calibrator
from semtoken.models.prompts import prompt_format
from semtoken.replies.checking import dividing
from semtoken.replies.checking.fields import read_schema
from semtoken.replies.checking.finding import OpenedReplies
from semtoken.support.checkpoints.sources import resolve
from semtoken.support.files import artifacts, record_files, safe_files
from semtoken.support.files.record_files import read_cells, read_records
from semtoken.support.files.safe_files import MOST_SETTINGS, read_file
from semtoken.support.files.texts import read_yaml
from tests.rows import each

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes and devices in folders are those of POSIX")

READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "calibrator": ("calibrator.json", lambda path: Calibrator.load(path.parent)),
    "calibrator file": ("any.json", Calibrator.load),
    "calibrator in use": ("calibrator.json", lambda path: CalibratorInUse.load(path.parent)),
    "calibrator of decisions": ("decisions.json", lambda path: DecisionCalibrator.load(path.parent)),
    "schema": ("schema.json", read_schema),
    "questions": ("questions.yaml", read_questions),
    "settings": ("semtoken.toml", read_toml),
    "clusters": ("config.json", lambda path: artifacts.load(path.parent)),
    "model": ("config.json", lambda path: resolve(path.parent)),
    "settings of a benchmark": ("run.yaml", read_settings),
    "prompt": ("prompt.txt", prompt_format),
    "template": ("chat_template.jinja", lambda path: resolve(path.parent)),
}


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**33)  # 8 GiB, of which none takes room on the disk


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Whoever reads one of these files would need gigabytes."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the limit is set from /proc")
@each("place", [pipe, device, huge])
@each("what", READERS)
def test_what_is_no_file_of_a_fair_size_is_refused_at_once(
    what: str, place: Callable[[Path], None], tmp_path: Path, little_memory: None
) -> None:
    name, read = READERS[what]
    folder = tmp_path / f"{what} {place.__name__}"
    folder.mkdir()
    place(folder / name)
    begun = time.monotonic()
    with pytest.raises(SemtokenError, match=r"no regular file|larger than|neither a file nor a folder|is no file"):
        read(folder / name)
    assert time.monotonic() - begun < 5


LINES: dict[str, Callable[[Path], Any]] = {
    "records": lambda path: list(read_records(path)),
    "a table": lambda path: list(read_cells(path)),
    "replies": lambda path: [reply.read() for reply in OpenedReplies([str(path)])],
}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the limit is set from /proc")
@each("begin", [b"", b"{", b"\n", b"a,b\n1,", b'a,b\n1,"'])
@each("what", LINES)
def test_a_line_without_an_end_is_refused(
    what: str, begin: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, little_memory: None
) -> None:
    for module in (safe_files, record_files, dividing):
        for name in ("LONGEST_LINE", "LARGEST_REPLIES"):
            monkeypatch.setattr(module, name, 2**20, raising=False)
    path = tmp_path / ("many.csv" if what == "a table" else "many.jsonl")
    with path.open("wb") as file:
        file.write(begin)
        file.truncate(2**33)
    with pytest.raises(SemtokenError, match=r"(longer|larger) than 1 MiB|larger than field limit"):
        LINES[what](path)


def test_a_small_file_that_unpacks_to_one_huge_line_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, little_memory: None
) -> None:
    monkeypatch.setattr(safe_files, "LONGEST_LINE", 2**20)
    path = tmp_path / "many.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n') + gzip.compress(b"[" * 2**24) * 100)
    with pytest.raises(InvalidInputError, match=r"many.jsonl.gz cannot be read: line 2 is longer than 1 MiB"):
        list(read_records(path))


@given(st.lists(st.text("ab \r", max_size=12), max_size=6), st.booleans())
def test_lines_up_to_the_limit_are_those_of_the_file(lines: list[str], ended: bool) -> None:
    text = "\n".join(lines) + "\n" * ended
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safe_files, "LONGEST_LINE", 10)
        files: list[Any] = [io.StringIO(text, newline=""), io.BytesIO(text.encode())]
        for file in files:
            expected = list(file)
            file.seek(0)
            if max(map(len, expected), default=0) <= 10:
                assert list(safe_files.bounded_lines(file)) == expected
            else:
                with pytest.raises(OSError, match="is longer than"):
                    list(safe_files.bounded_lines(file))


def test_a_configuration_of_a_model_has_a_bound_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "a": "' + "a" * (MOST_SETTINGS - 32) + '"}')
    resolve(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama", "a": "' + "a" * MOST_SETTINGS + '"}')
    with pytest.raises(ModelError, match=r"config.json cannot be read: it is larger than 16 MiB"):
        resolve(tmp_path)


def test_the_limit_is_the_last_size_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_file(tmp_path / "a", 5) == b"12345"
    with pytest.raises(InvalidInputError, match="larger"):
        read_file(tmp_path / "a", 4)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_file(tmp_path)
    with pytest.raises(InvalidInputError, match="No such file"):
        read_file(tmp_path / "b")


LAUGHS = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))


@each(
    "text",
    [
        f"a0: &a0 [1]\n{LAUGHS}",
        "a: &a [*a]",
        "a: &a {b: *a}",
        "[" * 500,
        "a: 1" + "0" * 5_000,
        "a: 2020-99-99",
        "a: \x00",
    ],
)
@each("read", [read_yaml, read_questions])
def test_yaml_that_multiplies_or_breaks_the_parser_is_refused(
    text: str, read: Callable[[Path], Any], tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text(text)
    begun = time.process_time()
    with pytest.raises(InvalidInputError):
        read(tmp_path / "a.yaml")
    assert time.process_time() - begun < 10


def test_values_that_are_named_twice_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: &x [1, {b: 2}]\nc: *x\n")
    assert read_yaml(tmp_path / "a.yaml") == {"a": [1, {"b": 2}], "c": [1, {"b": 2}]}


def test_a_small_file_takes_little_memory_whatever_its_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    tracemalloc.start()
    try:
        assert read_file(tmp_path / "a", 2**32) == b"12345"
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="this system has no /proc")
def test_a_file_whose_size_is_not_known_beforehand_is_read_whole() -> None:
    """As those of /proc, which are regular files of 0 bytes."""
    assert b"VmRSS" in read_file(Path("/proc/self/status"))
    with pytest.raises(InvalidInputError, match="larger"):
        read_file(Path("/proc/self/status"), 10)


@pytest.mark.parametrize(
    ("text", "n"), [("[]", 1), ("[[], {}]", 3), ("a: [1, {b: []}]", 7), ("a: &x [1, 2]\nb: *x", 9)]
)
def test_every_value_of_yaml_counts_empty_ones_and_repeated_ones_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, n: int
) -> None:
    """Names of members count as values do."""
    (tmp_path / "a.yaml").write_text(text)
    for most in (n - 1, n):
        monkeypatch.setattr("semtoken.support.files.texts.MOST_VALUES", most)
        with nullcontext() if most == n else pytest.raises(InvalidInputError, match=f"more than {most} values"):
            read_yaml(tmp_path / "a.yaml")
