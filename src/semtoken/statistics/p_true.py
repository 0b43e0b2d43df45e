"""Asking the model whether its own answer is true, and how likely "True" and "False" are as the next word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from semtoken._extras import require
from semtoken.backends.prompts import pad, padding_id
from semtoken.errors import InvalidInput, InvalidLogits
from semtoken.statistics.pairs import FloatArray, in_batches_by_length

require("torch", extra="transformers")

import torch  # noqa: E402

if TYPE_CHECKING:
    from semtoken.backends.transformers import STC

Spelling = Literal["bare", "with blank", "both"]
"""How the word is tokenised: "True", " True", or the sum of both. After a colon a byte-level tokenizer expects the
second; LM-Polygraph takes the first."""

PROMPT = (
    "Question: {question}\n"
    " Possible answer:{answer}\n"
    " Is the possible answer:\n"
    " (A) True\n"
    " (B) False\n"
    " The possible answer is:"
)


def p_true_prompt(question: str, answer: str) -> str:
    """The prompt: one answer, no examples, no further ideas. The answer is stripped, or it would break the layout."""
    return PROMPT.format(question=question, answer=answer.strip())


def p_true_log_probs(
    stc: STC,
    questions: Sequence[str],
    answers: Sequence[str],
    *,
    spelling: Spelling = "bare",
    batch_size: int = 32,
) -> FloatArray:
    """Log P("True") and log P("False") as continuations of the prompt, over the whole vocabulary.

    Parameters
    ----------
    stc
        The model and tokenizer to ask.
    questions, answers
        One of each for every prompt; the question bare, without examples.
    spelling : {"bare", "with blank", "both"}
        See `Spelling`. A word of several tokens has the product of their probabilities.
    batch_size
        Prompts read together, padded on the left.

    Returns
    -------
    float array of shape (n, 2)

    References
    ----------
    Kadavath et al. 2022, P(True). Prompt as in LM-Polygraph's `PTrue`.
    """
    return ask_p_true(
        stc.tokenizer,
        questions,
        answers,
        spelling,
        lambda prompts, continuations: continuation_log_probs(stc, prompts, continuations, batch_size),
    )


def ask_p_true(
    tokenizer: Any,
    questions: Sequence[str],
    answers: Sequence[str],
    spelling: Spelling,
    log_probs_of: Callable[[Sequence[Sequence[int]], Sequence[Sequence[int]]], FloatArray],
) -> FloatArray:
    """`p_true_log_probs` of any engine; `log_probs_of` gives [n, c] for n prompts and c continuations, as token ids."""
    if spelling not in get_args(Spelling):
        raise InvalidInput(f"spelling must be one of {', '.join(map(repr, get_args(Spelling)))}, got {spelling!r}.")
    encoded = [
        list(tokenizer(p_true_prompt(question, answer))["input_ids"])
        for question, answer in zip(questions, answers, strict=True)
    ]
    blanks = {"bare": ("",), "with blank": (" ",), "both": ("", " ")}[spelling]
    columns = []
    for word in ("True", "False"):
        ids = {tuple(tokenizer(blank + word, add_special_tokens=False)["input_ids"]): None for blank in blanks}
        columns.append(list(ids))
    log_probs = log_probs_of(encoded, [ids for column in columns for ids in column])
    ends = len(columns[0])
    sums = [np.logaddexp.reduce(part, axis=1) for part in (log_probs[:, :ends], log_probs[:, ends:])]
    return np.asarray(np.minimum(np.stack(sums, axis=1), 0.0))


def continuation_log_probs(
    stc: STC, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], batch_size: int
) -> FloatArray:
    """Log-probability of each continuation after each prompt, [n, c], in as few forward passes as can be."""
    found = np.empty((len(prompts), len(continuations)))
    for beginning, members in shared_beginnings(continuations):
        for batch in in_batches_by_length([len(ids) for ids in prompts], batch_size):
            rows = _next_log_probs(stc, [[*prompts[i], *beginning] for i in batch], len(beginning) + 1)
            for number in members:
                ids = list(continuations[number])
                found[batch, number] = rows[:, np.arange(len(ids)), ids].sum(axis=1, dtype=np.float64)
    return found


def shared_beginnings(continuations: Sequence[Sequence[int]]) -> list[tuple[tuple[int, ...], list[int]]]:
    """As few beginnings as can be read for all continuations, each with the numbers of those that it serves.

    A continuation needs a pass that ends with all its tokens but the last, or goes on from there.

    >>> shared_beginnings([(5, 6), (7,), (8, 9)])
    [((5,), [0, 1]), ((8,), [2])]
    """
    left = dict(enumerate(map(tuple, continuations)))
    found = []
    while left:
        beginning = max(left.values(), key=len)[:-1]
        members = [number for number, ids in left.items() if beginning[: len(ids) - 1] == ids[:-1]]
        found.append((beginning, members))
        left = {number: ids for number, ids in left.items() if number not in members}
    return found


@torch.inference_mode()
def _next_log_probs(stc: STC, sequences: list[list[int]], keep: int) -> npt.NDArray[np.float32]:
    """Log-probabilities of what follows each of the last `keep` tokens, [B, keep, V]."""
    batch = pad(sequences, padding_id(stc.tokenizer, [0]), left=True)
    output = stc.forward(batch, mask=batch.mask, cache=None, keep=keep)
    logits = output.logits[:, -keep:, : stc.clusters.vocabulary.size]
    if not torch.isfinite(logits.max(dim=-1).values).all():  # a NaN is the greatest of its row
        raise InvalidLogits("The model gives NaN or no finite logit after the P(True) prompt.")
    return np.asarray(logits.float().log_softmax(-1).cpu().numpy())
