from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from semtoken import ScoredModel
from semtoken.bench.score_file.batches import facts_of
from semtoken.bench.score_file.output import lines_beside
from semtoken.cli.model import ModelOptions
from semtoken.cli.settings import Settings
from semtoken.models.prompts import PROMPTS
from tests.cli.conftest import RunCommand, assert_told
from tests.json_lines import read_lines, write_lines

RECORDS: list[dict[str, Any]] = [
    {"prompt": f"The capital {i} of", "id": i} | ({} if i % 3 else {"response": " Paris ."}) for i in range(6)
]
SHORT = ("--max-tokens", 4, "--model.batch-size", 4)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "in.jsonl", RECORDS)


@pytest.fixture
def fields(source: Path) -> tuple[object, ...]:
    """The command that scores the field of one answer."""
    write_lines(source, [{"question": "Where?", "response": '{"city": "Oslo"}'}])
    schema = source.with_name("schema.json")
    schema.write_text('{"type": "object", "properties": {"city": {"type": "string"}}}')
    return "score", source, "--schema", schema


def test_scores_are_those_of_the_library(semtoken: RunCommand, source: Path, model: str, stc: ScoredModel) -> None:
    result = semtoken("score", source, "--model", model, "--tokens", *SHORT)
    assert result.exit_code == 0, result.output
    assert result.stdout == "" and "built-in" not in result.stderr
    written = read_lines(source.with_name("in.scored.jsonl"))
    assert [line["id"] for line in written] == list(range(len(RECORDS)))
    for record, line in zip(RECORDS, written, strict=True):
        if "response" in record:
            [expected] = stc.score(record["prompt"], record["response"])
        else:
            [expected] = stc.generate(record["prompt"], 4)
        assert line["log_confidence"] == pytest.approx(expected.log_confidence, abs=1e-4)
        assert line["response"] == record.get("response", expected.text)
        assert line["truncated"] is (None if "response" in record else expected.truncated)
        assert len(line["tokens"]) == len(expected.tokens)
    assert any(line["truncated"] for line in written)  # by the limit of four tokens


def test_questions_are_put_into_the_prompt(semtoken: RunCommand, source: Path, model: str, stc: ScoredModel) -> None:
    write_lines(source, [{"question": "who is it"}])
    result = semtoken("score", source, "--model", model, *SHORT)
    assert result.exit_code == 0, result.output
    [line] = read_lines(source.with_name("in.scored.jsonl"))
    asked = PROMPTS["tqa"].prompt("who is it")
    [expected] = stc.generate(asked, 4, stop_at_newline=True)
    assert line["question"] == "who is it"
    assert line["log_confidence"] == pytest.approx(expected.log_confidence, abs=1e-5)


def test_messages_go_through_the_chat_template(semtoken: RunCommand, source: Path, model: str, tmp_path: Path) -> None:
    folder = shutil.copytree(model, tmp_path / "chat")
    copy = AutoTokenizer.from_pretrained(folder)
    copy.chat_template = "{% for m in messages %}<|user|>{{ m['content'] }}{% endfor %}<|assistant|>"
    copy.save_pretrained(folder)
    write_lines(
        source,
        [
            {"messages": [{"role": "user", "content": "hi"}], "response": "it"},
            {"prompt": "<|user|>hi<|assistant|>", "response": "it"},
        ],
    )
    result = semtoken("score", source, "--model", folder)
    assert result.exit_code == 0, result.output
    chat, text = read_lines(source.with_name("in.scored.jsonl"))
    assert chat["log_confidence"] == pytest.approx(text["log_confidence"], abs=1e-5)


def test_the_same_command_again_finds_nothing_to_do(
    semtoken: RunCommand, source: Path, model: str, clusters: str
) -> None:
    command = ("score", source, "--model", model, *SHORT)
    assert semtoken(*command).exit_code == 0
    output = source.with_name("in.scored.jsonl")
    before = output.read_bytes()
    again = semtoken(*command)
    assert again.exit_code == 0
    assert "nothing to do" in again.stderr
    assert_told(semtoken(*command, "--preset", "paper", "--clusters", clusters), 'preset was "default", now "paper"')
    assert output.read_bytes() == before
    assert semtoken(*command, "--preset", "paper", "--clusters", clusters, "--force").exit_code == 0
    assert output.read_bytes() != before


def test_parquet(semtoken: RunCommand, source: Path, model: str, clusters: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    target = source.with_name("out.parquet")
    result = semtoken("score", source, "-o", target, "--model", model, *SHORT)
    assert result.exit_code == 0, result.output
    assert parquet.read_table(target)["id"].to_pylist() == list(range(len(RECORDS)))


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_lines_that_cannot_be_scored_are_counted_and_the_first_is_named(
    semtoken: RunCommand, source: Path, ending: str
) -> None:
    """In every run, also in one that finds nothing to do: the lines look like all others until somebody reads them."""
    write_lines(source, [RECORDS[0], {"q": "who?"}, '{"prompt": \n', RECORDS[3]])
    warning = "Warning: 2 lines could not be scored. Line 2: the field 'prompt'"
    for said in ("4 lines in", "nothing to do"):
        result = semtoken("score", source, "-o", source.with_name(f"out.{ending}"), *SHORT)
        assert result.exit_code == 0 and said in result.stderr and warning in " ".join(result.stderr.split())
        assert ("The built-in model almanac is used; --model names another." in result.stderr) == (
            said != "nothing to do"
        )
    write_lines(source, [{"q": "who?"}, {"q": "where?"}])
    for target in ("none.jsonl", "-"):
        assert_told(semtoken("score", source, "-o", target, *SHORT), "No line of", "Line 1: the field 'prompt'")


def test_the_reason_of_a_line_ends_in_one_period(semtoken: RunCommand, source: Path, model: str) -> None:
    """A reason that is a sentence already got a second one."""
    write_lines(source, [RECORDS[0], {"prompt": "a " * 1000}])
    said = semtoken("score", source, "--model", model, *SHORT).stderr
    assert "Line 2: the prompt has " in said and re.search(r"\w\.\n\Z", said)


def test_an_argument_too_many_is_named(semtoken: RunCommand) -> None:
    result = semtoken("cluster", "show", "almanac", "Paris")
    assert result.exit_code == 2 and "Too many arguments: 'Paris'. See `semtoken cluster show --help`" in result.stderr


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([*RECORDS[:2], '{"prompt": \n'], ("Line 3", "in.jsonl", "not JSON", "--strict")),
        ([{"prompt": ""}], ("Line 1", "prompt is empty")),
        ([*RECORDS[:4], {"prompt": "x", "response": [3, 999_999]}], ("Line 5", "999999", "out of range")),
    ],
    ids=["not JSON", "an empty prompt", "an id out of range"],
)
def test_a_strict_command_ends_at_a_line_that_cannot_be_scored(
    semtoken: RunCommand, source: Path, model: str, records: list[Any], words: tuple[str, ...]
) -> None:
    write_lines(source, records)
    assert_told(semtoken("score", source, "--model", model, "--strict", *SHORT), *words)
    output = source.with_name("in.scored.jsonl")
    assert (len(read_lines(output)) if output.exists() else 0) == (4 if "Line 5" in words else 0)


def test_an_output_and_an_input_that_are_not_there_are_found_before_the_model_loads(
    semtoken: RunCommand, source: Path
) -> None:
    result = semtoken("score", source, "-o", source.with_name("no") / "out.jsonl", "--model", "./no/model")
    assert_told(result, "cannot be written", "does not exist")
    assert_told(
        semtoken("score", source.with_name("none.jsonl"), "--model", "./no/model"), "There is no file", "none.jsonl"
    )


CHILD = "from semtoken.cli import main; main()"


def prompts(tmp_path: Path, number: int) -> Path:
    return write_lines(tmp_path / "in.jsonl", [{"prompt": f"The capital {i} of", "id": i} for i in range(number)])


def assert_gone_on(semtoken: RunCommand, command: list[str], cut: Path, number: int) -> None:
    """The command given again goes on after the whole lines that are there, to the bytes of one that was not cut."""
    left = cut.read_bytes()
    assert 1 <= left.count(b"\n") < number
    cut.write_bytes(left + b'{"prompt": "The cap')  # what a kill in the middle of a write leaves
    resumed = semtoken(*command, cut)
    assert resumed.exit_code == 0, resumed.output
    assert f"Going on after line {left.count(chr(10).encode())} of {number}" in resumed.stderr
    whole = cut.with_name("whole.jsonl")
    assert semtoken(*command, whole).exit_code == 0
    assert cut.read_bytes() == whole.read_bytes()
    assert cut.read_bytes().startswith(left)
    assert [line["id"] for line in read_lines(cut)] == list(range(number))


def test_an_output_that_was_cut_is_gone_on_with(
    semtoken: RunCommand, tmp_path: Path, model: str, clusters: str
) -> None:
    command = ["score", str(prompts(tmp_path, 7)), "--model", model, *map(str, SHORT), "-o"]
    cut = tmp_path / "cut.jsonl"
    assert semtoken(*command, cut).exit_code == 0
    cut.write_bytes(b"".join(cut.read_bytes().splitlines(keepends=True)[:5]))
    assert_gone_on(semtoken, command, cut, 7)


@pytest.mark.slow
def test_killed_without_warning_and_given_again_ends_with_the_same_bytes(
    semtoken: RunCommand, tmp_path: Path, model: str, clusters: str
) -> None:
    """A process of its own, killed with SIGKILL while it writes."""
    command = ["score", str(prompts(tmp_path, 80)), "--model", model, *map(str, SHORT), "-o"]
    cut = tmp_path / "cut.jsonl"
    process = subprocess.Popen([sys.executable, "-c", CHILD, *command, str(cut)], stderr=subprocess.PIPE)
    while process.poll() is None and (not cut.exists() or not cut.read_bytes().count(b"\n")):
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    _, told = process.communicate()
    assert process.returncode == -signal.SIGKILL, f"it ended before it was killed: {told.decode()}"
    assert_gone_on(semtoken, command, cut, 80)


@pytest.mark.parametrize(("backend", "package"), [("vllm", "vllm"), ("llama-cpp", "llama_cpp")])
def test_an_engine_that_is_not_installed_is_one_sentence_and_writes_nothing(
    semtoken: RunCommand, source: Path, clusters: str, backend: str, package: str
) -> None:
    if find_spec(package):
        pytest.skip(f"{package} is installed")
    before = sorted(source.parent.iterdir())
    result = semtoken("score", source, "--model.backend", backend)
    assert_told(result, f"needs the package '{package}'", f"semtoken[{backend}]")
    assert sorted(source.parent.iterdir()) == before


def test_an_unknown_engine_is_refused_with_the_known_ones(semtoken: RunCommand, source: Path) -> None:
    result = semtoken("score", source, "--model.backend", "triton")
    assert result.exit_code == 2
    for known in ("transformers", "vllm", "llama-cpp"):
        assert known in result.stderr


@dataclass
class EngineElsewhere:
    """A model of transformers behind the `Backend` interface alone, as other engines have it."""

    inside: Any
    name: str = "elsewhere"
    model: Any = None

    def __getattr__(self, member: str) -> Any:
        return getattr(self.inside, member)


def test_what_is_known_of_a_model_comes_from_its_backend(model: str, clusters: str) -> None:
    stc = ScoredModel.from_pretrained(model, clusters=clusters)
    here = facts_of(stc)
    elsewhere = facts_of(ScoredModel(EngineElsewhere(stc.backend), clusters=stc.clusters))
    assert elsewhere["clusters_signature"] == here["clusters_signature"] == stc.clusters.signature
    assert (here["device_used"], here["dtype_used"]) == ("cpu", "torch.float32")
    assert elsewhere["distribution"] == "raw"
    assert "device_used" not in elsewhere


def test_a_table_named_like_its_input_keeps_its_lines_under_another_name(tmp_path: Path) -> None:
    """The command is `score in.jsonl --schema ... -o in.csv`."""
    source = tmp_path / "in.jsonl"
    assert lines_beside(tmp_path / "in.csv", source, overwrite=False) == tmp_path / "in.scored.jsonl"
    assert lines_beside(tmp_path / "out.csv", source, overwrite=False) == tmp_path / "out.jsonl"


def test_lines_without_fields_or_states_are_not_taken_for_lines_with_them(
    semtoken: RunCommand, fields: tuple[object, ...], tmp_path: Path
) -> None:
    """The table of fields held none of them, and the command called the lines complete."""
    command, lines = fields[:2], tmp_path / "lines.jsonl"
    assert semtoken(*command, "-o", lines).exit_code == 0
    before = lines.read_bytes()
    for further, name in ((fields[2:], "schema"), (("--scoring.states", "true"), "states")):
        assert_told(semtoken(*command, "-o", lines, *further), f"other settings: {name} was ", "--force")
    assert lines.read_bytes() == before


def test_a_table_of_fields_that_somebody_corrected_is_not_written_over(
    semtoken: RunCommand, fields: tuple[object, ...], tmp_path: Path
) -> None:
    table = tmp_path / "fields.csv"
    command = (*fields, "-o", table)
    assert semtoken(*command).exit_code == 0
    written = table.read_bytes()
    assert semtoken(*command).exit_code == 0  # the same lines once more
    assert table.read_bytes() == written
    table.write_bytes(written.replace(b"Oslo", b"Bergen"))
    assert_told(semtoken(*command), "fields.csv", "it was changed since", "--force")
    assert b"Bergen" in table.read_bytes()
    assert semtoken(*command, "--force").exit_code == 0
    assert table.read_bytes() == written


def test_force_on_a_table_of_fields_replaces_no_lines_of_somebody_else(
    semtoken: RunCommand, fields: tuple[object, ...], tmp_path: Path
) -> None:
    table, lines = tmp_path / "fields.csv", tmp_path / "fields.jsonl"
    table.write_text("an older table")
    lines.write_text('{"what": "took a year"}\n')
    command = (*fields, "-o", table, "--force")
    assert_told(semtoken(*command), "fields.jsonl", "did not write it", "Choose another output")
    assert (table.read_text(), lines.read_text()) == ("an older table", '{"what": "took a year"}\n')
    lines.unlink()
    assert semtoken(*command).exit_code == 0
    assert semtoken(*command).exit_code == 0, "its own lines are replaced"
    assert len(read_lines(lines)) == 1 and "Oslo" in table.read_text()


@pytest.mark.parametrize(("wanted", "threads"), [("", 1), ("2", 2)])
def test_a_small_model_is_computed_by_one_thread_unless_somebody_wants_more(
    monkeypatch: pytest.MonkeyPatch, wanted: str, threads: int
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", wanted)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        ModelOptions().with_settings(Settings()).load()
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
