"""The intervals of parts from lists against the parts of the same answer where all logits are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from semtoken import TokenClusters, Vocabulary, score_logits, score_logprobs
from semtoken.clustering.vocabulary import neutral_mask
from semtoken.core import ScoringRules
from semtoken.core.engine_tokens.precision import MANY_NUMBERS
from semtoken.core.engine_tokens.top_steps import NOT_GIVEN
from semtoken.errors import BackendError, InvalidLogits
from tests.core.lists import in_bytes, step
from tests.core.reference import STOPWORDS
from tests.core.test_top_logprobs import WRITTEN
from tests.examples import examples

JOINED = '{" ": ":" [ ] ]} } "] ", " , . .5 - % : a b 1 7 17 0 5 e 1, true null Oslo oslo Rome The the is'
TEXTS = (*JOINED.split(), " 17", ' "', " true", " null", " Rome", " is", " not", " the", ". ", " ", "\n", "")
SIZE = len(TEXTS)
VOCABULARY = Vocabulary(
    TEXTS, tuple(text.encode() for text in TEXTS), neutral_mask(TEXTS, STOPWORDS), np.zeros(SIZE, dtype=bool)
)
VALUES = ("1", "17.5", "-7", "71e1", '"Oslo"', '""', '"17"', "true", "null", "[1,7]", '["Oslo"]', "[17,\n1]")
SAID = (*(f'{{"a":{value},"b":{other}\n}}' for value in VALUES for other in VALUES[::3]), "The Rome is 17.5%. ", "-7")
RULES = (ScoringRules(), ScoringRules("paper"), ScoringRules(equality="exact"))
KINDS: tuple[Any, ...] = ("word", "sentence", "number", "field")
"""Parts of prose come first, which are found in an answer whose tokens nobody has asked for yet."""


def spelled(text: str, random: np.random.Generator) -> list[int]:
    """The ids of tokens that spell a text, any of its ways."""
    ids: list[int] = []
    while text:
        token = int(random.choice([i for i, own in enumerate(TEXTS) if own and text.startswith(own)]))
        ids.append(token)
        text = text.removeprefix(TEXTS[token])
    return ids


def distribution(token: int, random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Probabilities [V] of a token and of up to six others; the rest has none."""
    some = list(dict.fromkeys([token, *random.integers(0, SIZE, int(random.integers(0, 7))).tolist()]))
    row = np.zeros(SIZE)
    row[some] = random.dirichlet(np.ones(len(some)) * 0.7) + 1e-3
    row[token] *= random.choice([1.0, 1.0, 20.0])
    return np.asarray(row / row.sum())


@examples(4)
@given(
    text=st.sampled_from(SAID),
    rules=st.sampled_from(RULES),
    how=st.sampled_from(list(WRITTEN)),
    lacks=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@example(text='{"a":-7,"b":[1,7]\n}', rules=RULES[1], how="two decimals in float32", lacks=True, seed=2028514500)
def test_the_interval_of_each_part_holds_its_exact_confidence(
    text: str, rules: ScoringRules, how: str, lacks: bool, seed: int
) -> None:
    """However the numbers are written, and where some chosen tokens have none; so does that of the answer."""
    random = np.random.default_rng(seed)
    ids = spelled(text, random)
    rows = np.array([distribution(token, random) for token in ids])
    clusters = TokenClusters(random.integers(0, 15, SIZE).astype(np.int32), VOCABULARY)
    with np.errstate(divide="ignore"):
        logs = np.log(rows)
    exact = score_logits(logs, ids, clusters, rules)
    steps = []
    for token, row, numbers in zip(ids, rows, WRITTEN[how](logs).tolist(), strict=True):
        best = [i for i in np.argsort(-row, kind="stable").tolist() if row[i]][: int(random.integers(1, 6))]
        listed = {i: numbers[i] for i in dict.fromkeys([*best, token])}
        if lacks and token not in best[:-1]:
            listed[token] = NOT_GIVEN
        steps.append((token, listed))
    if sum(value not in (0.0, NOT_GIVEN) for _, listed in steps for value in listed.values()) < MANY_NUMBERS:
        return  # so few short numbers count as written by hand
    try:
        scored = score_logprobs(steps, clusters, rules)
    except (BackendError, InvalidLogits):
        return  # nothing but zeros, or two digits of flat distributions, which add up to too much
    for kind in KINDS:
        for equality in (None, "exact", "mixed"):
            options = {"equality": equality} | ({"containers": True} if kind == "field" else {})
            for part, other in zip(scored.parts(kind, **options), exact.parts(kind, **options), strict=True):
                assert part.bounds is not None and other.confidence is not None and part.confidence is not None
                low, high = part.bounds
                assert low - 1e-6 <= other.confidence <= high + 1e-6, part
                assert low <= part.confidence <= high
    low, high = scored.confidence_interval
    assert low - 1e-6 <= exact.confidence <= high + 1e-6
    assert low <= scored.confidence <= high


def test_of_json_the_interval_ends_where_that_of_the_surest_rival_for_the_least_sure_field_does() -> None:
    """ "x" may have up to 0.9, and "y" has 0.55: then that is the least sure field."""
    listed = {"x": (0.5, {"1": 0.1}), "y": (0.55, {"z": 0.45})}
    steps = []
    for name in ('{"a":"', "x", '","b":"', "y", '"}'):
        own, others = listed.get(name, (0.99, {" ": 0.01}))
        steps.append(step(in_bytes(own, name), *(in_bytes(share, other) for other, share in others.items())))
    scored = score_logprobs(steps)
    assert [part.text for part in scored.parts("field")] == ["x", "y"]
    assert (scored.confidence, *scored.confidence_interval) == pytest.approx((0.5, 0.5, 0.55), abs=1e-4)
