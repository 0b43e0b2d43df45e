"""Asking the model whether its own answer is true, and how likely "True" and "False" are as the next word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from semtoken.choices import PTrueSpelling
from semtoken.errors import InvalidInputError
from semtoken.models.base import Backend
from semtoken.models.prompt_ids import encode_text, in_batches_by_length
from semtoken.support.arrays import FloatArray
from semtoken.support.inputs import listed, one_of, text, whole

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
    return PROMPT.format(question=text(question, "question"), answer=text(answer, "answer").strip())


def p_true_log_probs(
    model: Any,
    questions: Sequence[str],
    answers: Sequence[str],
    *,
    spelling: PTrueSpelling = "bare",
    batch_size: int = 32,
) -> FloatArray:
    """Log P("True") and log P("False") as continuations of the prompt, over the whole vocabulary.

    Parameters
    ----------
    model
        The one to ask: a `ScoredModel` or a `Backend`.
    questions, answers
        One of each for every prompt; the question bare, without examples.
    spelling : {"bare", "with blank", "both"}
        See `PTrueSpelling`. A word of several tokens has the product of their probabilities.
    batch_size
        Prompts read together, padded on the left.

    Returns
    -------
    float array of shape (n, 2)
        Natural logs, at most 0: "True" in the first column, "False" in the second.

    Raises
    ------
    InvalidInputError
        There are not as many answers as questions, one is not a text, or a prompt is too long for the model.

    References
    ----------
    Kadavath et al. 2022, P(True). Prompt as in LM-Polygraph's `PTrue`.
    """
    one_of("spelling", spelling, get_args(PTrueSpelling))
    questions, answers = listed(questions, "questions"), listed(answers, "answers")
    if len(questions) != len(answers):
        raise InvalidInputError(f"There are {len(questions)} questions and {len(answers)} answers; each needs one.")
    if not questions:
        return np.empty((0, 2))
    batch_size = whole(batch_size, "batch_size", low=1)
    backend: Backend = getattr(model, "backend", model)
    tokenizer = backend.tokenizer
    encoded = [
        encode_text(tokenizer, p_true_prompt(question, answer), special=True)
        for question, answer in zip(questions, answers, strict=True)
    ]
    blanks = {"bare": ("",), "with blank": (" ",), "both": ("", " ")}[spelling]
    columns = []
    for word in ("True", "False"):
        ids = {tuple(encode_text(tokenizer, blank + word, special=False)): None for blank in blanks}
        columns.append(list(ids))
    continuations = [list(ids) for column in columns for ids in column]
    order = [i for batch in in_batches_by_length(list(map(len, encoded)), batch_size) for i in batch]
    log_probs = np.empty((len(encoded), len(continuations)))
    log_probs[order] = backend.next_log_probs([encoded[i] for i in order], continuations, batch_size=batch_size)
    ends = len(columns[0])
    sums = [np.logaddexp.reduce(part, axis=1) for part in (log_probs[:, :ends], log_probs[:, ends:])]
    return np.asarray(np.minimum(np.stack(sums, axis=1), 0.0))
