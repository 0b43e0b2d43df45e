"""Typed questions through the proxy and from `decide`, to a server that lists the tokens which it is asked for.

The server answers as vLLM does, from a row of logits that the test knows, so probabilities are sums by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.web.proxy.app import proxy_app
from semtoken.web.proxy.settings import ProxySettings
from tests.cli.run import invoke
from tests.decisions.models import tokenizer
from tests.web import lima
from tests.web.asking import post
from tests.web.servers import Received, answering, raw_upstream, running, said

TOKENIZER = tokenizer()
VOCABULARY = Vocabulary.from_tokenizer(TOKENIZER)
LABELS = {"type": "choice", "instructions": "Which?", "choices": [{"value": "north"}, {"value": "south"}]}
WORDS = {"type": "predicate", "instructions": "Is it so?"}
BEST = 20


def log_probs(seed: int, likely: int) -> Any:
    """Log-probabilities of a row in which one token of an option is among the best ones, and no other one."""
    logits = np.random.default_rng(seed).normal(size=VOCABULARY.size)
    logits[
        [number for number, text in enumerate(VOCABULARY.texts) if text.isalpha() and len(text) > 3][: 2 * BEST]
    ] += 3.0
    logits[likely] = 7.0
    return logits - np.log(np.exp(logits).sum())


@contextmanager
def vllm(row: Any, lists: str, root: str = "") -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server, and what it was asked. It "heeds" the ids that it is asked to list, "ignores" or "refuses" them, or
    shows some of them only: it "cuts". `root` is where its model was loaded from, as it says.
    """
    asked: list[dict[str, Any]] = []

    def answer(received: Received) -> bytes:
        if received.line.startswith(b"GET /v1/models "):
            return said({"object": "list", "data": [{"id": "m", "owned_by": "vllm", "root": root}]})
        if not received.line.startswith(b"POST /v1/chat/completions "):
            return said({}, b"404 Not Found")
        body = received.json()
        asked.append(body)
        named = body.get("logprob_token_ids")
        if named and lists == "refuses":
            return said({"error": {"message": "logprob_token_ids: not supported"}}, b"400 Bad Request")
        best = np.argsort(-row)[: body["top_logprobs"]].tolist()
        ids = best if not named or lists == "ignores" else named[: None if lists == "heeds" else 1]

        def token(number: int) -> dict[str, Any]:
            text = VOCABULARY.texts[number]
            if body.get("return_tokens_as_token_ids"):
                text = f"token_id:{number}"
            return {"token": text, "logprob": float(row[number]), "bytes": list(text.encode())}

        content = [{**token(best[0]), "top_logprobs": [token(number) for number in ids]}]
        choice = lima.choice(0, {"content": VOCABULARY.texts[best[0]]}, {"content": content}, "length")
        given = {"token_ids": [best[0]]} if body.get("return_token_ids") else {}
        return said({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice | given]})

    with raw_upstream(answering(answer)) as upstream:
        yield upstream.url, asked


def answers(url: str, reading: str, *questions: Any, known: bool = True) -> list[dict[str, Any]]:
    """The proxy's answer with the tokens of the model, named by ids, or with texts alone."""
    settings = ProxySettings(url, decisions="chat", token_ids=known, top_logprobs=BEST)
    app = proxy_app(settings, VOCABULARY if known else None, page=False, tokenizer=TOKENIZER if known else None)
    body = {"model": "m", "input": "x", "questions": questions, "semtoken": {"reading": reading, "orders": 1}}
    with running(app, wait=False) as proxy:
        found: list[dict[str, Any]] = post(proxy, "/v1/decisions", json=body).json()["answers"]
    return found


def spelled(*texts: str) -> list[int]:
    """All tokens that are one of these texts, whatever blanks surround them."""
    return [number for number, text in enumerate(VOCABULARY.texts) if text.strip() in texts]


def test_the_masses_of_options_are_exact() -> None:
    yes, no = (spelled(name, name.lower(), name.upper()) for name in ("Yes", "No"))
    row = log_probs(0, yes[0])
    masses = [float(np.exp(row[ids]).sum()) for ids in (yes, no)]
    with vllm(row, "heeds") as (url, asked):
        [answer] = answers(url, "words", WORDS)
    assert len(asked) == 1 and set(asked[0]["logprob_token_ids"]) >= {*yes, *no}
    low, high = answer["semtoken"]["bounds"][0]
    # what begins another spelling ("Y" of "YES") counts at one end only
    assert low <= masses[0] / sum(masses) <= high and high - low < 0.1
    with vllm(row, "heeds") as (url, _):
        [by_texts] = answers(url, "words", WORDS, known=False)
    wide = by_texts["semtoken"]["bounds"][0]
    assert wide[1] - wide[0] > 2 * (high - low) and wide[0] <= low and high <= wide[1]


def test_labels_have_no_interval_at_all() -> None:
    [a], [b] = ([TOKENIZER.convert_tokens_to_ids(name)] for name in "AB")
    row = log_probs(1, a)
    with vllm(row, "heeds") as (url, asked):
        [answer] = answers(url, "labels", LABELS)
    assert sorted(asked[0]["logprob_token_ids"]) == sorted([a, b])
    expected = np.exp(row[[a, b]]) / np.exp(row[[a, b]]).sum()
    assert [one["probability"] for one in answer["probabilities"]] == pytest.approx(expected.tolist(), rel=1e-6)
    assert answer["semtoken"]["option_mass"] == pytest.approx(float(np.exp(row[[a, b]]).sum()), rel=1e-6)
    bounds = np.array(answer["semtoken"]["bounds"]) if "bounds" in answer["semtoken"] else np.zeros((1, 2))
    assert np.ptp(bounds, axis=1).max() < 1e-9


@pytest.mark.parametrize("lists", ["ignores", "refuses", "cuts"])
def test_a_server_without_the_field_is_read_by_its_best_tokens(lists: str) -> None:
    """They are known by their ids; and it is asked for chosen ones once, not for every question."""
    [a] = [TOKENIZER.convert_tokens_to_ids("A")]
    row = log_probs(2, a)
    with vllm(row, lists) as (url, asked):
        found = answers(url, "labels", LABELS, LABELS)
        named = ["logprob_token_ids" in body for body in asked]
        assert named == [True] * (2 if lists == "refuses" else 1) + [False, False]  # there it may be the numbers
    share = float(np.exp(row[a]) / np.exp(row[[a, TOKENIZER.convert_tokens_to_ids("B")]]).sum())
    for answer in found:
        low, high = answer["semtoken"]["bounds"][0]
        assert low <= share <= high < low + 0.1


@pytest.mark.parametrize(
    "lists", ["heeds", "refuses", *(pytest.param(one, marks=pytest.mark.slow) for one in ("ignores", "cuts"))]
)
def test_decide_asks_for_the_tokens_of_the_options_by_the_tokenizer_that_the_server_names(
    lists: str, tmp_path: Path
) -> None:
    TOKENIZER.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "questions.yaml").write_text(json.dumps({"side": LABELS}))
    (tmp_path / "items.jsonl").write_text('{"state": "x"}\n{"state": "y"}\n')
    a, b = (TOKENIZER.convert_tokens_to_ids(name) for name in "AB")
    row = log_probs(3, a)
    with vllm(row, lists, str(tmp_path / "model")) as (url, asked):
        files = [str(tmp_path / name) for name in ("questions.yaml", "items.jsonl", "out.jsonl")]
        assert invoke(["decide", *files[:2], "--base-url", f"{url}/v1", "-o", files[2]]).exit_code == 0
    share = float(np.exp(row[a]) / np.exp(row[[a, b]]).sum())
    for line in Path(files[2]).read_text().splitlines():
        answer = json.loads(line)["answers"]["side"]
        if lists == "heeds":
            assert answer["probabilities"] == pytest.approx([share, 1 - share], rel=1e-6)
        else:
            low, high = answer["bounds"][0]
            assert low <= share <= high
    assert set(asked[0]["logprob_token_ids"]) == {a, b}
    assert sum("logprob_token_ids" in body for body in asked) == (2 if lists == "heeds" else 1)
