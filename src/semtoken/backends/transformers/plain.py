"""The way that every model allows: texts read alone and whole, an answer written by one such pass for each token."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from semtoken.backends.transformers.draws import AnswerChoices, chosen_tokens
from semtoken.backends.transformers.inside import Inside
from semtoken.backends.transformers.observe import BatchRow
from semtoken.backends.transformers.passes import Passes
from semtoken.observers.steps import Completion, Observer, Step, finish, show
from semtoken.support.arrays import as_rows
from semtoken.tokens.vocabulary import Vocabulary


@torch.inference_mode()
def write_plainly(
    passes: Passes,
    vocabulary: Vocabulary,
    prompt: Sequence[int],
    row: BatchRow,
    choices: AnswerChoices,
    observers: Sequence[Observer],
) -> Completion:
    """Write one answer, with a pass over the prompt and all of the answer so far for each of its tokens."""
    inside = Inside(observers)
    with inside.watching(passes.model):
        while True:
            logits = passes.whole([*prompt, *row.token_ids], 1)
            [token] = chosen_tokens(logits[:, : vocabulary.size], [choices])
            fields = inside.at()
            step = Step(
                [row.answer], [token], vocabulary.size, as_rows(logits), [0], ends=[token in row.stop_ids], **fields
            )
            if completion := row.completed(token, vocabulary, show(step, observers)):
                finish(row.answer, completion, observers)
                return completion
