"""Files and folders appear whole or not at all, whoever is killed, and a reader sees one version."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from semtoken.errors import InvalidInputError
from semtoken.support.files import safe_files, strict_json, temporary
from semtoken.support.files.texts import is_utf8
from tests.rows import each

NAMES = ("a", "b", "c")

WRITER = """
import sys, itertools
from pathlib import Path
from semtoken.support.files import safe_files
if sys.argv[2] == "moved":
    safe_files._exchange_call = lambda: None
for number in itertools.count():
    with safe_files.replacing_folder(Path(sys.argv[1])) as new:
        for name in "abc":
            (new / name).write_text(str(number))
    print(number, flush=True)
"""


def replace(path: Path, content: str) -> None:
    with safe_files.replacing_folder(path) as new:
        for name in NAMES:
            (new / name).write_text(content)


def version(path: Path) -> str:
    """The one version that all files of a folder have."""
    found = set(safe_files.read_folder(path, NAMES).values())
    assert len(found) == 1, found
    return found.pop().decode()


@pytest.fixture(params=["exchanged", "moved"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of replacing a folder: that of Linux and macOS, and that of other systems."""
    if request.param == "moved":
        monkeypatch.setattr(safe_files, "_exchange_call", lambda: None)
    elif safe_files._exchange_call() is None:
        pytest.skip("this system cannot exchange folders")
    return str(request.param)


def test_a_folder_takes_the_place_of_another_unless_writing_fails(tmp_path: Path, way: str) -> None:
    target = tmp_path / "target"
    for content, place in (("one", target), ("two", target), ("three", Path(os.path.relpath(target)))):
        replace(place, content)
        assert version(target) == content
    with pytest.raises(ZeroDivisionError), safe_files.replacing_folder(target) as new:
        (new / "a").write_text("four")
        _ = 1 / 0
    assert version(target) == "three"
    assert [name for name in os.listdir(tmp_path) if name != ".target.lock"] == ["target"]


@pytest.mark.slow
def test_a_reader_always_finds_one_whole_version(tmp_path: Path, way: str) -> None:
    target = tmp_path / "target"
    replace(target, "0 0")
    over = threading.Event()

    def write(writer: int) -> None:
        for number in range(40):
            replace(target, f"{writer} {number}")

    def read() -> None:
        while not over.is_set():
            version(target)

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            list(pool.map(write, range(2)))
        finally:
            over.set()
        for reader in readers:
            reader.result()
    assert version(target).endswith("39")


@pytest.mark.parametrize("mode", ["exchanged", "moved"])
def test_killed_at_any_moment_it_leaves_a_whole_folder(tmp_path: Path, mode: str) -> None:
    target = tmp_path / "target"
    replace(target, "start")
    for attempt in range(4):
        command = [sys.executable, "-c", WRITER, str(target), mode]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.011 * attempt)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert version(target).isdigit()
    replace(target, "end")
    assert version(target) == "end"
    assert not safe_files.former_folder(target).exists()


def test_a_missing_file_of_a_folder_that_stays_is_missing(tmp_path: Path) -> None:
    replace(tmp_path / "target", "one")
    with pytest.raises(FileNotFoundError, match="other"):
        safe_files.read_folder(tmp_path / "target", ["a", "other"])
    with pytest.raises(FileNotFoundError):
        safe_files.read_folder(tmp_path / "none", ["a"])


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "below" / "file.txt"
    safe_files.replace_text(path, "größe\n")
    with pytest.raises(ZeroDivisionError), safe_files.replacing_file(path) as file:
        file.write(b"half")
        _ = 1 / 0
    assert path.read_bytes() == "größe\n".encode()
    assert os.listdir(path.parent) == ["file.txt"]
    with path.open("rb") as former:  # whoever reads it has all of the former one
        safe_files.replace_text(path, "new")
        assert (former.read(), path.read_bytes()) == ("größe\n".encode(), b"new")


@pytest.mark.parametrize("name", ["東" * 85, "a" * 255], ids=["three bytes a character", "one byte a character"])
def test_the_longest_names_that_a_file_can_have_are_written(name: str, tmp_path: Path) -> None:
    safe_files.replace_text(tmp_path / name, "new")
    assert (tmp_path / name).read_text() == "new"
    replace(tmp_path / "below" / name, "new")
    assert version(tmp_path / "below" / name) == "new"
    for kind in (safe_files.replacing_file, safe_files.replacing_folder):
        with (
            pytest.raises(InvalidInputError, match="cannot be written: File name too long"),
            kind(tmp_path / f"b{name}"),
        ):
            pass


@pytest.mark.skipif(os.name != "posix", reason="links need a permission on Windows")
@pytest.mark.parametrize("there", [True, False])
def test_what_a_link_names_is_replaced_and_the_link_stays(there: bool, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    for name in ("file", "folder"):
        (tmp_path / name).symlink_to(Path("shared") / name)
    if there:
        (tmp_path / "shared" / "file").write_text("old")
        replace(tmp_path / "shared" / "folder", "old")
    safe_files.replace_text(tmp_path / "file", "new")
    replace(tmp_path / "folder", "new")
    assert (tmp_path / "shared" / "file").read_text() == "new"
    assert [(tmp_path / "shared" / "folder" / name).read_text() for name in NAMES] == ["new"] * 3
    assert (tmp_path / "file").is_symlink() and (tmp_path / "folder").is_symlink()
    assert sorted(os.listdir(tmp_path / "shared")) == ["file", "folder"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_one_message(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with (
        pytest.raises(InvalidInputError, match=r"file cannot be written: No space left"),
        safe_files.writing_errors(path),
    ):
        Path("/dev/full").write_bytes(b"x" * 100_000)


def test_errors_name_the_place(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"none cannot be read: No such file"):
        list(strict_json.read_json_lines(tmp_path / "none"))
    with pytest.raises(InvalidInputError, match="is a folder"):
        safe_files.check_writable(tmp_path)
    with pytest.raises(InvalidInputError, match=r"the folder .*none does not exist"):
        safe_files.check_writable(tmp_path / "none" / "file")
    (tmp_path / "cut.jsonl.gz").write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\0")
    with pytest.raises(InvalidInputError, match=r"cut\.jsonl\.gz cannot be read"):
        list(strict_json.read_json_lines(tmp_path / "cut.jsonl.gz"))


def test_a_lock_is_held_by_one_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = "import sys, time; from pathlib import Path; from semtoken.support.files.safe_files import locked\n"
    code += "with locked(Path(sys.argv[1]), 'busy'): print('held', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    with pytest.raises(InvalidInputError, match="is busy here"), safe_files.locked(path, "is busy here"):
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with safe_files.locked(path, "is busy here"):
        pass


def test_leftovers_are_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / f"{temporary.WORKING}0-file").write_text("half")
    (tmp_path / f"{temporary.WORKING}1-folder").mkdir()
    (tmp_path / f"{temporary.WORKING}1-folder" / "file").write_text("half")
    (tmp_path / "file").write_text("whole")
    temporary.remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["below", "file"]


HALF_WAY = """
import sys, time
from pathlib import Path
from semtoken.support.files import safe_files
kind, path = sys.argv[1:]
with getattr(safe_files, kind)(Path(path)):
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["replacing_file", "replacing_folder"])
def test_what_a_killed_process_left_goes_when_the_same_is_written_again(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HALF_WAY, kind]
    writers = [
        subprocess.Popen([*command, str(tmp_path / name)], stdout=subprocess.PIPE, text=True)
        for name in ("killed", "killed", "other")
    ]
    try:
        assert all(one.stdout is not None and one.stdout.readline() == "writing\n" for one in writers)
        assert len(list(tmp_path.iterdir())) == 3
        writers[0].kill()
        writers[0].wait()
        with getattr(safe_files, kind)(tmp_path / "killed"):
            left = {path.name[-6:] for path in tmp_path.iterdir()}
            assert len(list(tmp_path.iterdir())) == 3 and left == {"killed", "-other"}  # what goes on is left alone
    finally:
        for one in writers:
            one.kill()
            one.wait()
    with getattr(safe_files, kind)(tmp_path / "killed"), getattr(safe_files, kind)(tmp_path / "other"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed", "other"]


@each(
    ("text", "fault"),
    [
        (b'{"a": ', "not JSON: .* at column"),
        (b'{"a": "b', "not JSON: Unterminated string starting at column 7"),
        (b'{"a": NaN}', "not JSON: NaN"),
        (b"[-Infinity]", "not JSON: -Infinity"),
        (b"[1e400]", "the number 1e400 is too large"),
        (b"[1" + 400 * b"0" + b"]", "the number 10000000000000000000... is too large"),
        (b"[-1" + 5000 * b"0" + b"]", "the number -1000000000000000000... is too large"),
        (b'"\\ud800"', "half a character"),
        (b'"\xff"', "not UTF-8 at byte 1"),
        (b"[" * 100_000, "nested too deeply"),
        (b"9" * 5000, "the number 99999999999999999999... is too large"),
    ],
)
def test_json_that_cannot_be_written_again_is_refused(text: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        strict_json.parse_json(text)


@each("text", ["[]", "null", "7", '"{}"', '{"a": NaN}', '{"a": 1', ""])
def test_a_text_that_is_no_json_object_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^fields under \[here\] must be a JSON object[:,] "):
        strict_json.parse_object(text, "fields under [here]")
    assert strict_json.parse_object('{"a": {"b": [1, null]}}', "it") == {"a": {"b": [1, None]}}


@each("digits", [1, 19, 20, 21, 285, 299, 300, 301, 308, 309, 310, 315, 330])
@each("before", ["", "[1, 22, ", '{"a": "' + 7 * "9" + '", "b": -'])
def test_whole_numbers_are_read_unless_no_float_holds_them(digits: int, before: str) -> None:
    number = digits * "9"
    text = before + number + {"": "", "[": "]", "{": "}"}[before[:1]]
    if float(number) == math.inf:
        with pytest.raises(ValueError, match="too large"):
            strict_json.parse_json(text)
    else:
        assert strict_json.parse_json(text) == json.loads(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_what_is_finite_is_written_and_read_back(value: object) -> None:
    plain = strict_json.finite(value)
    written = strict_json.dump_json(plain)
    assert strict_json.parse_json(written) == plain == json.loads(written)
    assert strict_json.finite(plain) == plain


@given(json_values.filter(lambda value: value == value))
def test_finite_changes_only_what_json_cannot_hold(value: object) -> None:
    try:
        strict_json.dump_json(value)
    except ValueError:
        assert any(not math.isfinite(number) for number in numbers(value))
    else:
        assert strict_json.finite(value) == value


def numbers(value: object) -> list[float]:
    if isinstance(value, float):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [number for item in items for number in numbers(item)]


def test_lines_carry_their_number_and_fault(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n\n  \n[2]\noops\n"\xff"')
    found = [(line.number, line.value, line.fault[:8]) for line in strict_json.read_json_lines(path)]
    assert found == [(1, {"a": 1}, ""), (4, [2], ""), (5, None, "not JSON"), (6, None, "not UTF-")]


@given(st.binary(max_size=8) | st.text(max_size=6).map(str.encode))
@example(b"a\0")
@example("\ufeffa".encode())
@example("\ufeffa".encode("utf-16-be"))
def test_utf8_is_what_decodes_and_has_neither_a_mark_nor_a_zero(data: bytes) -> None:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        assert not is_utf8(data)
    else:
        assert is_utf8(data) == (not text.startswith("\ufeff") and "\0" not in text)
