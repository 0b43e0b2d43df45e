"""The parts of a transformers model."""

from __future__ import annotations

import weakref
from dataclasses import replace

import numpy as np
import pytest

from semtoken import Vocabulary
from semtoken.models.transformers.anatomy import vocabulary_within

NEITHER = np.zeros(3, dtype=bool)
WORDS = Vocabulary(("a", "b", ""), (b"a", b"b", b""), NEITHER, NEITHER)


@pytest.mark.parametrize(("columns", "texts"), [(4, "ab"), (3, "ab"), (2, "ab"), (1, None)])
def test_a_model_may_lack_the_logits_of_special_tokens_alone(columns: int, texts: str | None) -> None:
    written = vocabulary_within(WORDS, columns)
    assert (None if written is None else "".join(written.texts)) == texts
    assert written is None or written.size == min(columns, 3)
    assert vocabulary_within(WORDS, columns) is written  # what is built on it is built once


def test_the_vocabulary_of_a_model_with_all_logits_goes_with_it() -> None:
    vocabulary = replace(WORDS)
    left = weakref.ref(vocabulary)
    assert vocabulary_within(vocabulary, 3) is vocabulary
    del vocabulary
    assert left() is None
