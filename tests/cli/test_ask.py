from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import pytest
import torch
from transformers import T5Config, T5Model

from semtoken import ScoredModel, TokenClusters, Vocabulary
from semtoken.cli.ask import EXAMPLES_OF_ALMANAC
from semtoken.models.prompts import PROMPTS, how_to_ask, template_of
from semtoken.support.almanac import PROMPT
from semtoken.support.text import number
from tests import tiny
from tests.cli.conftest import RunCommand, assert_told
from tests.json_lines import read_lines

SHORT = ("--max-tokens", 4)


def test_json_holds_what_the_library_gives(semtoken: RunCommand, model: str, stc: ScoredModel) -> None:
    result = semtoken("ask", "who is it", "and who?", "--model", model, "--json", *SHORT)
    assert result.exit_code == 0, result.output
    written = read_lines(result.stdout)
    prompts = [PROMPTS["tqa"].prompt(q) for q in ("who is it", "and who?")]
    expected = stc.generate(prompts, 4, stop_at_newline=True)
    assert written == [
        json.loads(
            json.dumps(
                {"question": q, "response": e.text, "new_word_confidence": e.new_word_confidence(q)}
                | {k: v for k, v in e.to_dict().items() if k != "text"}
            )
        )
        for q, e in zip(("who is it", "and who?"), expected, strict=True)
    ]


def test_shows_answer_uncertainty_and_tokens(semtoken: RunCommand, model: str, clusters: str) -> None:
    asked = ("ask", "who is it", "--model", model, *SHORT)
    [expected] = read_lines(semtoken(*asked, "--json").stdout)
    result = semtoken(*asked, "--tokens")
    assert result.exit_code == 0
    assert f"uncertainty {number(expected['sequence_uncertainty'])}" in result.stdout
    for token in expected["tokens"]:
        assert number(token["agreeing_probability"]) in result.stdout
    assert result.stderr == ""


def test_parts_on_request(semtoken: RunCommand, model: str, stc: ScoredModel) -> None:
    asked = ("ask", "who is it", "--model", model, *SHORT, "--parts", "word")
    [written] = read_lines(semtoken(*asked, "--json").stdout)
    [answer] = stc.generate(PROMPTS["tqa"].prompt("who is it"), 4, stop_at_newline=True)
    assert written["parts"] == json.loads(json.dumps([part.to_dict() for part in answer.parts("word")]))
    shown = semtoken(*asked).stdout
    assert all(number(part["confidence"]) in shown for part in written["parts"])


def test_raw_prompt_and_rules_change_what_is_asked_and_counted(semtoken: RunCommand, model: str, clusters: str) -> None:
    arguments = ("--no-chat-template", "--preset", "paper", "--json", *SHORT)
    result = semtoken("ask", "the capital of", "--model", model, "--clusters", clusters, *arguments)
    [expected] = ScoredModel.from_pretrained(model, clusters=clusters, preset="paper").generate("the capital of", 4)
    assert read_lines(result.stdout)[0]["log_confidence"] == pytest.approx(expected.log_confidence)
    assert read_lines(result.stdout)[0]["preset"] == "paper"


def test_a_file_of_questions_may_begin_with_a_byte_order_mark(semtoken: RunCommand, model: str) -> None:
    """It was read as the beginning of the first question, which got another answer and another number."""
    command = ("ask", "-", "--model", model, "--json", *SHORT)
    plain, marked = (semtoken(*command, stdin=f"{mark}one\n") for mark in ("", "\ufeff"))
    assert plain.exit_code == 0 and marked.stdout == plain.stdout


def test_a_file_of_questions_in_another_encoding_is_one_sentence() -> None:
    command = [sys.executable, "-m", "semtoken", "ask", "-"]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, input="Who?".encode("utf-16"), capture_output=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"Error: Standard input is no text in utf-8: save it as UTF-8.\n"


def test_questions_from_stdin(semtoken: RunCommand, model: str, clusters: str) -> None:
    result = semtoken("ask", "-", "--model", model, "--json", *SHORT, stdin="one\n\ntwo\n")
    assert [line["question"] for line in read_lines(result.stdout)] == ["one", "two"]


def test_a_chat_template_is_used_if_there_is_one() -> None:
    class WithTemplate:
        chat_template = "{{ messages }}"

    assert how_to_ask("some/model", WithTemplate(), raw=False).prompt("hi {x}") == [
        {"role": "user", "content": "hi {x}"}
    ]
    assert how_to_ask("some/model", WithTemplate(), raw=True).prompt("hi {x}") == "hi {x}"
    assert how_to_ask("some/model", tiny.byte_level_bpe(), raw=False).stop_at_newline
    assert template_of(how_to_ask("some/model", WithTemplate(), raw=False)) is None  # as a server asks


def test_the_almanac_has_its_own_form() -> None:
    asking = how_to_ask("almanac", tiny.byte_level_bpe(), raw=False)
    assert template_of(asking) == PROMPT
    assert asking.prompt("Who?") == "Answer these questions:\n\nQuestion:\nWho?\nAnswer:\n"


class TestErrors:
    def test_no_question(self, semtoken: RunCommand) -> None:
        result = semtoken("ask", "-", stdin="")
        assert result.exit_code == 1
        assert "holds no question" in result.output

    def test_without_a_question_some_examples_are_asked(self, semtoken: RunCommand) -> None:
        result = semtoken("ask", "--json")
        assert [line["question"] for line in read_lines(result.stdout)] == list(EXAMPLES_OF_ALMANAC)

    def test_empty_question(self, semtoken: RunCommand) -> None:
        assert_told(semtoken("ask", "who?", " "), "Question 2 is empty")

    def test_missing_directory(self, semtoken: RunCommand) -> None:
        assert_told(semtoken("ask", "who?", "--model", "./no/such"), "There is no directory './no/such'")

    def test_a_directory_that_is_no_model(self, semtoken: RunCommand, tmp_path: object) -> None:
        assert_told(semtoken("ask", "who?", "--model", tmp_path), "config.json is missing")

    def test_unreachable_hub(self, semtoken: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        assert_told(semtoken("ask", "who?", "--model", "nobody/nothing"), "neither a directory here nor found")
        assert_told(semtoken("ask", "who?", "--model", "smolm2"), "(did you mean 'smollm2'?)")

    def test_clusters_of_another_tokenizer(self, semtoken: RunCommand, model: str, tmp_path: object) -> None:
        vocabulary = Vocabulary.from_tokenizer(tiny.wordpiece())
        TokenClusters(np.arange(vocabulary.size), vocabulary).save_pretrained(f"{tmp_path}/other")
        result = semtoken("ask", "who?", "--model", model, "--preset", "paper", "--clusters", f"{tmp_path}/other")
        assert_told(result, f"made for {vocabulary.size:,} tokens", "semtoken cluster")

    def test_corrupt_clusters(self, semtoken: RunCommand, model: str, clusters: str, tmp_path: object) -> None:
        broken = Path(str(tmp_path)) / "broken"
        shutil.copytree(clusters, broken)
        stored = broken / "clusters.safetensors"
        stored.write_bytes(stored.read_bytes()[:-100])
        assert_told(semtoken("ask", "who?", "--model", model, "--preset", "paper", "--clusters", broken), "broken")

    def test_a_model_without_an_output_head(self, semtoken: RunCommand, clusters: str, tmp_path: object) -> None:
        config = T5Config(vocab_size=99, d_model=8, d_ff=8, num_layers=1, num_heads=1, decoder_start_token_id=0)
        T5Model(config).save_pretrained(f"{tmp_path}/t5")
        tiny.byte_level_bpe().save_pretrained(f"{tmp_path}/t5")
        assert_told(semtoken("ask", "who?", "--model", f"{tmp_path}/t5"), "t5", "cannot be")
        tiny.llama(99).model.save_pretrained(f"{tmp_path}/body")
        tiny.byte_level_bpe().save_pretrained(f"{tmp_path}/body")
        body = semtoken("ask", "who?", "--model", f"{tmp_path}/body")
        assert_told(body, "body", "no output head")

    def test_a_model_that_gives_nan(self, semtoken: RunCommand, model: str, clusters: str, tmp_path: object) -> None:
        broken = tiny.llama(len(tiny.byte_level_bpe()))
        with torch.no_grad():
            broken.lm_head.weight[7] = float("nan")
        broken.save_pretrained(f"{tmp_path}/nan")
        tiny.byte_level_bpe().save_pretrained(f"{tmp_path}/nan")
        assert_told(semtoken("ask", "who?", "--model", f"{tmp_path}/nan"), "NaN")

    def test_unusable_device(self, semtoken: RunCommand, model: str, clusters: str) -> None:
        result = semtoken("ask", "who?", "--model", model, "--device", "abacus")
        assert_told(result, "cannot be loaded", "abacus")


def test_rivals_are_named_on_request(semtoken: RunCommand) -> None:
    result = semtoken("ask", "--alternatives", "Which country is Dubai in?", "Mumbai lies in what country?")
    assert result.exit_code == 0, result.output
    dubai, mumbai = result.stdout.split("Mumbai lies in what country?")
    number, answer, rivals = (line.strip() for line in dubai.splitlines()[1:4])
    assert (
        number.startswith("confidence ")
        and ": probability of an answer" in number
        and answer.startswith("United Arab Emirates")
    )
    assert rivals.startswith("at “United Arab Emirates” the model also considered “ARE” (")
    assert "India" in mumbai
    assert semtoken("ask", "--alternatives", "--json", "What?").exit_code == 2
