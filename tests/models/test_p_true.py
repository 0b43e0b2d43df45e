"""The P(True) prompt to the character, and its probabilities against plain forward passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from semtoken.errors import InvalidInputError
from semtoken.models.probing import p_true_log_probs, p_true_prompt
from tests.bench import statistics_models as models
from tests.tiny import token_before

QUESTIONS = ["who is it", "The capital of France is ?", "TV"]
ANSWERS = [" Paris\n", "", "the same {answer}"]


def test_the_prompt_to_the_character() -> None:
    assert p_true_prompt("Who wrote Hamlet?", " Shakespeare\n") == (
        "Question: Who wrote Hamlet?\n Possible answer:Shakespeare\n Is the possible answer:\n (A) True\n (B) False\n"
        " The possible answer is:"
    )
    assert p_true_prompt("{question}", "{answer}").startswith("Question: {question}\n Possible answer:{answer}\n")


def direct(stc: Any, prompt: list[int], continuation: list[int]) -> float:
    """Log-probability of a continuation in one unpadded pass."""
    with torch.no_grad():
        logits = stc.model(torch.tensor([prompt + continuation])).logits[0, :, : stc.clusters.vocabulary.size]
    steps = logits[len(prompt) - 1 : -1].log_softmax(-1)
    return float(steps[range(len(continuation)), continuation].sum())


@pytest.mark.parametrize(
    ("kind", "spelling"), [("byte-level", "bare"), ("wordpiece", "with blank"), ("byte-level", "both")]
)
def test_probabilities_of_true_and_false(kind: str, spelling: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stc = models.answering(kind)
    monkeypatch.setattr(stc.tokenizer.backend_tokenizer, "post_processor", token_before(stc.tokenizer))
    found = p_true_log_probs(stc, QUESTIONS, ANSWERS, spelling=spelling, batch_size=2)
    blanks = {"bare": [""], "with blank": [" "], "both": ["", " "]}[spelling]
    for question, answer, row in zip(QUESTIONS, ANSWERS, found, strict=True):
        prompt = stc.tokenizer(p_true_prompt(question, answer))["input_ids"]
        for word, value in zip(("True", "False"), row, strict=True):
            ways = {tuple(stc.tokenizer(blank + word, add_special_tokens=False)["input_ids"]) for blank in blanks}
            expected = np.logaddexp.reduce([direct(stc, prompt, list(way)) for way in ways])
            assert value == pytest.approx(expected, abs=1e-3)


def test_continuations_share_forward_passes() -> None:
    stc = models.answering()
    calls = 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    handle = stc.model.register_forward_hook(count)
    prompts = [[5, 6, 7], [8, 9]]
    continuations = [[3], [4, 10], [11], [4, 10, 3], [12, 5]]
    stc.backend.next_log_probs(prompts[:1], continuations[:1])  # a hook may change a model, so it is tried again
    calls = 0
    found = stc.backend.next_log_probs(prompts, continuations, batch_size=2)
    handle.remove()
    assert calls == 2  # after tokens 4 and 10, and after token 12
    for i, prompt in enumerate(prompts):
        for j, continuation in enumerate(continuations):
            assert found[i, j] == pytest.approx(direct(stc, prompt, continuation), abs=1e-3)


def test_an_unknown_spelling_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'spelling' must be one of 'bare', 'with blank', 'both'"):
        p_true_log_probs(models.answering(), ["q"], ["a"], spelling="upper")  # type: ignore[arg-type]


def test_a_question_that_is_too_long_is_refused_in_our_words_alone(almanac: Any) -> None:
    """transformers logged that the model would fail; the teardown of every test looks for that."""
    with pytest.raises(InvalidInputError, match="the model reads 512 at most"):
        p_true_log_probs(almanac, ["word " * 600], ["x"])
