from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from semtoken import score_reply
from tests.cli.conftest import RunCommand, assert_told
from tests.json_lines import read_lines
from tests.replies.recorded import recording
from tests.rows import each

COMMAND = ("check", "--tokenizer", "almanac")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Three replies, one a line."""
    path = tmp_path / "replies.jsonl"
    names = ("vllm-chat", "vllm-chat-two", "llama-cpp")
    path.write_text("".join(json.dumps(recording(name).reply) + "\n\n" for name in names))
    return path


def test_lines_of_replies(semtoken: RunCommand, saved: Path) -> None:
    result = semtoken(*COMMAND, saved, "--json")
    assert result.exit_code == 0, result.output
    lines = read_lines(result.stdout)
    assert [line["rank"] for line in lines] == [1, 2, 3, 4] and len({line["where"] for line in lines}) == 3
    [expected] = score_reply(recording("vllm-chat").reply, "almanac")
    [line] = [line for line in lines if line["where"].endswith(":1")]
    assert line["sequence_uncertainty"] == expected.sequence_uncertainty
    assert line["sequence_uncertainty_interval"] == list(expected.sequence_uncertainty_interval)


def test_what_the_numbers_are_is_what_the_user_says_and_a_calibrator_of_others_is_refused(
    semtoken: RunCommand, saved: Path
) -> None:
    """vLLM's replies do not tell that it was started with --logprobs-mode processed_logprobs."""
    lines = read_lines(semtoken(*COMMAND, saved, "--json", "--endpoint.distribution", "processed").stdout)
    assert {line["distribution"] for line in lines} == {"processed"}
    ranked = saved.with_name("ranked.jsonl")
    semtoken("check", saved, "--endpoint.distribution", "processed", "-o", ranked)
    assert {line["distribution"] for line in read_lines(ranked)} == {"processed"}
    assert semtoken("check", saved, "--endpoint.distribution", "cooked").exit_code == 2


@each("typed", [",", " , ", ""])
def test_a_list_of_no_methods_asks_for_none_whatever_the_settings_say(typed: str, semtoken: RunCommand) -> None:
    reply = Path(__file__).parents[2] / "examples" / "replies" / "norway.json"
    usual = ("check", reply, "--json", "--scoring.methods", "perplexity")
    [line], [without] = (read_lines(semtoken(*usual, *words).stdout) for words in ((), ("--methods", typed)))
    assert "perplexity" in line["scores"] and without["scores"] == {}


def test_all_methods_are_those_that_a_reply_can_give(semtoken: RunCommand, saved: Path) -> None:
    path = saved.with_name("one.json")
    own = {"token": "Paris", "logprob": -0.1}
    step = own | {"top_logprobs": [own, *({"token": f"x{i}", "logprob": -6.0} for i in range(19))]}
    choice = {"index": 0, "message": {"role": "assistant", "content": "Paris"}, "finish_reason": "stop"}
    path.write_text(json.dumps({"choices": [choice | {"logprobs": {"content": [step]}}]}))
    [line] = read_lines(semtoken("check", path, "--json", "--methods", "all").stdout)
    assert line["scores"]["perplexity"] == pytest.approx(0.1)
    assert {"epr", "trace"} <= line["scores"].keys() and not {"rauq", "self_certainty"} & line["scores"].keys()


def test_one_reply_over_many_lines_with_its_tokens(semtoken: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "reply.json"
    path.write_text(json.dumps(recording("vllm-chat").reply, indent=2))
    result = semtoken("check", path, "--tokens")
    assert result.exit_code == 0, result.output
    assert "confidence " in result.stdout and "what else was likely" in result.stdout
    assert "'IND' 0.261" in result.stdout


def test_narrow_intervals_are_in_tables_too(semtoken: RunCommand, saved: Path, tmp_path: Path) -> None:
    """Every way to show or write answers has what --tokenizer adds."""
    widths = {}
    for name, options in (("bare", ()), ("named", ("--tokenizer", "almanac"))):
        done = semtoken("check", saved, *options, "-o", tmp_path / f"{name}.jsonl", "--methods", "perplexity")
        assert done.exit_code == 0, done.output
        rows = read_lines(tmp_path / f"{name}.jsonl")
        widths[name] = sum(row["sequence_uncertainty_upper"] - row["sequence_uncertainty_lower"] for row in rows)
        assert all(row["score_perplexity"] >= 0 for row in rows)
    assert widths["named"] < widths["bare"]


def test_with_equality_exact_the_probability_of_the_very_tokens_counts(semtoken: RunCommand) -> None:
    reply = recording("vllm-chat").reply
    result = semtoken(*COMMAND, "-", "--scoring.equality", "exact", "--json", stdin=json.dumps(reply))
    assert result.exit_code == 0, result.output
    logs = [item["logprob"] for item in reply["choices"][0]["logprobs"]["content"]]
    assert json.loads(result.stdout)["sequence_uncertainty"] == pytest.approx(1 - math.exp(math.fsum(logs)), abs=1e-9)


def test_one_number_of_a_sentence_is_shown(semtoken: RunCommand) -> None:
    """Beside a confidence of 0.96 an uncertainty of 0.86 would confuse."""
    shown = semtoken("check", Path(__file__).parents[2] / "examples" / "replies" / "norway.json").stdout
    assert "confidence 0.96 (0.96 to 0.99)" in shown and "0.860" not in shown
    assert shown.count("Confidence ranks answers; it is not a probability of being right.") == 1


def test_a_saved_stream_from_stdin(semtoken: RunCommand) -> None:
    result = semtoken(*COMMAND, "-", "--json", stdin=recording("vllm-chat").stream)
    [line] = read_lines(result.stdout)
    assert line["text"] == "India\n"


def test_flags_are_shown(semtoken: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "reply.json"
    path.write_text(json.dumps(recording("hidden-reasoning-chat").reply))
    result = semtoken(*COMMAND, path)
    assert "they are taken as reasoning" in result.stdout


def test_settings_reach_the_score(semtoken: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "reply.json"
    path.write_text(json.dumps(recording("sglang").reply))
    given = ("--endpoint.temperature", "0.5", "--endpoint.answering-model", "gpt")
    [line] = read_lines(semtoken(*COMMAND, path, "--json", *given).stdout)
    assert (line["distribution"], line["proxy_for"]) == ("processed", "gpt")


def test_a_reply_that_cannot_be_scored(semtoken: RunCommand, saved: Path) -> None:
    saved.write_text(saved.read_text() + json.dumps(recording("transformers-chat").reply))
    done = semtoken(*COMMAND, saved)
    assert done.exit_code == 0 and "Choice 0: The reply holds no log-probabilities" in done.stderr
    assert_told(semtoken(*COMMAND, saved, "--strict"), "1 of 4 replies could not be scored")
    saved.write_text('{"choices": []')
    assert_told(semtoken(*COMMAND, saved), "is no JSON")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "is empty"), (b"\xff\xfe", "is not UTF-8 at byte 0"), (None, "There is no file")],
)
def test_files_that_are_of_no_use(semtoken: RunCommand, tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "reply.json"
    if content is not None:
        path.write_bytes(content)
    assert_told(semtoken(*COMMAND, path), words)


def test_an_unknown_format(semtoken: RunCommand, saved: Path) -> None:
    assert_told(semtoken(*COMMAND, saved, "--format", "gpt"), "There is no format 'gpt'")
    # An option that is wrong is no fault of the replies.
    assert "can be scored" not in semtoken(*COMMAND, saved, "--format", "gpt").stderr


ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b2J\u202e\x00"


@pytest.mark.parametrize("shape", ["error", "unscorable", "flag", "model", "stream"])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_text_of_servers_cannot_steer_the_terminal(
    semtoken: RunCommand, tmp_path: Path, shape: str, options: tuple[str, ...]
) -> None:
    """Window titles, cleared screens and turned text, wherever a server can put them."""
    item = {"token": "India", "logprob": -0.5, "bytes": list(b"India"), "top_logprobs": []}
    choice: dict[str, Any] = {"message": {"content": "India"}, "logprobs": {"content": [item]}, "finish_reason": "stop"}
    reply: dict[str, Any] = {"choices": [choice], "model": ESCAPES if shape == "model" else "m"}
    if shape == "error":
        reply = {"error": {"message": f"no {ESCAPES}"}}
    if shape == "unscorable":
        choice["message"]["content"] = f"Delhi {ESCAPES}"
    if shape == "flag":
        choice["logprobs"]["content"] = [item, item, {**item, "token": ESCAPES, "bytes": None}]
    text = f"event: error\ndata: {json.dumps(ESCAPES)}\n\n" if shape == "stream" else json.dumps(reply)
    (tmp_path / "reply").write_text(text, encoding="utf-8")
    done = semtoken("check", str(tmp_path / "reply"), "--tokenizer", "almanac", *options)
    shown = done.stdout + done.stderr
    assert shown
    assert not set(shown) & set(ESCAPES) - set("owned;]0[2J")
