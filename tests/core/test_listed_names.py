"""Nothing but the reply: intervals from lists whose vocabulary nobody has named hold the exact score all the same."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken import score_logits, score_logprobs
from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core import LogprobsStream, ScoringRules
from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.errors import InvalidInputError
from tests.core.test_scoring import Kind, draw_answer, small_kind
from tests.core.test_top_logprobs import best, drawn, log_probs

RULES = (ScoringRules(), ScoringRules(equality="surface"), ScoringRules(equality="exact"))
NAMES = ("byte-level", "sentencepiece")
"""Tokenizers whose engines tell by a text how a token reads. Word pieces ("##ing") are named without their mark."""
Namer = Callable[[Vocabulary, int, float], TopToken]


def special_name(token: int) -> str:
    return f"<|special_{token}|>"


def by_bytes(vocabulary: Vocabulary, token: int, value: float) -> TopToken:
    """As OpenAI names tokens: a string, and the bytes of what it adds to a text."""
    if vocabulary.special[token]:
        return TopToken(value, text=special_name(token))
    piece = vocabulary.pieces[token]
    return TopToken(value, text=piece.decode("utf-8", "replace"), bytes=piece)


def by_text(vocabulary: Vocabulary, token: int, value: float) -> TopToken:
    """A string alone: pieces of characters are all called alike."""
    named = by_bytes(vocabulary, token, value)
    return TopToken(value, text=named.text)


def by_id_and_text(vocabulary: Vocabulary, token: int, value: float) -> TopToken:
    """As SGLang: an id, and a string that is empty for special tokens and pieces of characters."""
    text = vocabulary.texts[token]
    return TopToken(value, id=token, text=None if "\N{REPLACEMENT CHARACTER}" in text or not text else text)


NAMERS: tuple[Namer, ...] = (by_bytes, by_text, by_id_and_text)


def named(
    kind: Kind, listed: list[tuple[int, dict[int, float]]], namer: Namer, decimals: int | None, unknown: float
) -> list[TopStep]:
    """Lists under names, with numbers of so many decimals; of some steps the chosen token's own is not given."""
    vocabulary, random = kind.clusters.vocabulary, np.random.default_rng(len(listed))
    steps = []
    for token, entries in listed:
        rounded = {i: value if decimals is None else round(value, decimals) for i, value in entries.items()}
        namesakes = [i for i in entries if i != token and vocabulary.pieces[i] == vocabulary.pieces[token]]
        # Where another token has its name, nothing tells whose number the list has.
        own = -9999.0 if random.random() < unknown and not namesakes else rounded[token]
        top = [namer(vocabulary, i, -9999.0 if i == token and own < -9000 else v) for i, v in rounded.items()]
        steps.append(TopStep(namer(vocabulary, token, own), top))
    return steps


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data(), namer=st.sampled_from(NAMERS))
def test_the_interval_holds_the_exact_score(name: str, namer: Namer, data: st.DataObject) -> None:
    """k from 1 to 20, four decimals and more, bytes, texts and ids, and tokens whose own number is missing."""
    kind = small_kind(name)
    logits, ids = drawn(kind, data)
    rules = data.draw(st.sampled_from(RULES))
    decimals = data.draw(st.sampled_from([4, 5, 6, 9, None]))
    rows, k = log_probs(logits[:, : kind.clusters.vocabulary.size]), data.draw(st.integers(1, 20))
    exact = score_logits(logits.astype(np.float64), ids, kind.clusters.vocabulary, preset=rules)
    steps = named(kind, best(rows, ids, k), namer, decimals, data.draw(st.sampled_from([0.0, 0.0, 0.3])))
    if not any(token.text or token.bytes for step in steps for token in (step.chosen, *step.top)):
        return  # nothing but ids: refused, see below
    if not any(log_prob for step in steps for log_prob in step.log_probs):
        return  # nothing but zeros: they do not show what they were rounded to
    try:
        scored = score_logprobs(steps, preset=rules)
    except InvalidInputError as error:
        assert "named only by its id" in str(error) and namer is by_id_and_text
        return
    assert scored.log_confidence_interval is not None
    low, high = scored.sequence_uncertainty_interval
    if scored.empty == exact.empty:  # a piece of a character alone may read as nothing
        assert low - 1e-9 <= exact.sequence_uncertainty <= high + 1e-9
    for token, twin in zip(scored.tokens, exact.tokens, strict=True):
        assert token.log_agreeing_bounds is not None
        assert math.exp(token.log_agreeing_bounds[0]) - 1e-9 <= twin.agreeing_probability
        assert twin.agreeing_probability <= math.exp(token.log_agreeing_bounds[1]) + 1e-9


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_a_vocabulary_makes_the_interval_narrower_and_moves_nothing(name: str, data: st.DataObject) -> None:
    kind = small_kind(name)
    logits, ids = drawn(kind, data)
    rules, k = data.draw(st.sampled_from(RULES)), data.draw(st.integers(2, 20))
    rows = log_probs(logits[:, : kind.clusters.vocabulary.size])
    steps = named(kind, best(rows, ids, k), by_bytes, None, 0.0)
    if any(kind.clusters.vocabulary.special[token] for token in ids):
        return  # which special token a name means, only the answer's text can tell
    if any(len({token.bytes for token in step.top}) < len(step.top) for step in steps):
        return  # a name that a list holds twice counts for the upper end only, where no vocabulary has two such tokens
    alone, known = score_logprobs(steps, preset=rules), score_logprobs(steps, kind.clusters.vocabulary, rules)
    if alone.empty != known.empty:
        return  # "<tool>" at the end reads as a special token: whether it is text, only the answer's text can tell
    assert alone.sequence_uncertainty == pytest.approx(known.sequence_uncertainty, abs=1e-12)
    assert alone.signature == known.signature
    assert alone.sequence_uncertainty_interval[0] <= known.sequence_uncertainty_interval[0] + 1e-12
    assert alone.sequence_uncertainty_interval[1] >= known.sequence_uncertainty_interval[1] - 1e-12


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_a_stream_ends_where_the_whole_list_does(name: str, seed: int) -> None:
    kind = small_kind(name)
    logits, ids = draw_answer(kind, seed)
    rows = log_probs(logits[:, : kind.clusters.vocabulary.size])
    steps = named(kind, best(rows, ids, 10), by_bytes, None, 0.0)
    stream, former = LogprobsStream(), 0.0
    for place, step in enumerate(steps, start=1):
        running = stream.add(step)
        now = score_logprobs(steps[:place])
        assert running.n_settled == running.n_tokens == place
        assert running.sequence_uncertainty == pytest.approx(now.sequence_uncertainty, abs=1e-12) or now.empty
        assert running.sequence_uncertainty_interval[0] >= former - 1e-12
        former = running.sequence_uncertainty_interval[0]
    assert stream.finish() == score_logprobs(steps)


# --- by hand -----------------------------------------------------------------------------------------------------


def item(token: str, probability: float, *top: tuple[str, float], **more: Any) -> dict[str, Any]:
    entries = [{"token": t, "logprob": math.log(p), "bytes": list(t.encode())} for t, p in top]
    return {
        "token": token,
        "logprob": math.log(probability),
        "bytes": list(token.encode()),
        "top_logprobs": entries,
    } | more


def test_spellings_are_read_from_the_list() -> None:
    """ " paris" and "Paris" spell " Paris"; what is not listed, 0.05, may do so, too."""
    [token] = score_logprobs(
        [item(" Paris", 0.6, (" Paris", 0.6), (" paris", 0.1), ("Paris", 0.05), (" Rome", 0.2))]
    ).tokens
    assert token.agreeing_probability == pytest.approx(0.75)
    assert token.agreeing_bounds == pytest.approx((0.75, 0.8), abs=1e-4)
    assert [(one.text, one.counted) for one in token.alternatives] == [
        (" Rome", False),
        (" paris", True),
        ("Paris", True),
    ]
    [exact] = score_logprobs(
        [item(" Paris", 0.6, (" Paris", 0.6), (" paris", 0.1))], preset=ScoringRules(equality="exact")
    ).tokens
    assert exact.agreeing_bounds == pytest.approx((0.6, 0.6), abs=1e-4)


@pytest.mark.parametrize(
    ("rules", "what"),
    [
        ({"preset": "paper"}, "name the model"),
        ({"function_words": "paper"}, "name the model"),
        ({"prefix_matching": True}, "name"),
    ],
)
def test_rules_that_count_more_than_lists_show_are_refused(rules: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidInputError, match=what):
        score_logprobs([item("a", 0.9, ("a", 0.9))], preset=ScoringRules(**rules))


def test_a_model_that_stands_for_another_has_a_vocabulary() -> None:
    with pytest.raises(InvalidInputError, match="proxy_for"):
        score_logprobs([item("a", 0.9, ("a", 0.9))], proxy_for="gpt-4o")


def test_tokens_have_the_ids_of_the_engine() -> None:
    reply = [item("a", 0.9, ("a", 0.9), ("b", 0.1), id=3)]
    reply[0]["top_logprobs"] = [entry | {"id": i} for entry, i in zip(reply[0]["top_logprobs"], (3, 8), strict=True)]
    [token] = score_logprobs(reply).tokens
    assert (token.id, [one.id for one in token.alternatives]) == (3, [8])
    [token] = score_logprobs([item("a", 0.9, ("a", 0.9))]).tokens
    assert token.id == -1


@pytest.mark.parametrize("other", [("Rome", -3.0), ("Rome", -math.inf), None])
def test_an_alternative_of_probability_zero_is_an_alternative(other: tuple[str, float] | None) -> None:
    listed = [("Lima", -0.1)] + ([] if other is None else [other])
    top = [{"token": token, "logprob": log_prob} for token, log_prob in listed]
    scored = score_logprobs([{"token": "Lima", "logprob": -0.1, "top_logprobs": top}])
    assert [flag.code for flag in scored.flags] == ([] if other else ["no_alternatives"])
    assert scored.sequence_uncertainty == pytest.approx(-math.expm1(-0.1))


FRESH = """
import sys
import semtoken as st
rival = {"token": " Rome", "logprob": -1.5, "bytes": None}
item = {"token": " Paris", "logprob": -0.5, "bytes": None, "top_logprobs": [rival]}
reply = {"object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant", "content": " Paris"},
         "logprobs": {"content": [item]}, "finish_reason": "stop"}]}
[answer] = st.score_reply(reply)
assert 0 < answer.sequence_uncertainty < 1 and answer.tokens and answer.to_dict()
loaded = {name.partition(".")[0] for name in sys.modules}
heavy = loaded & {"torch", "numba", "transformers", "tokenizers", "scipy", "pandas"}
assert not heavy, heavy
"""


def test_the_first_result_needs_no_heavy_library() -> None:
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


SPELLINGS = ("Paris", "paris", "Ġparis", "▁paris", " Paris", "ĠParis", "PARIS", "\n", "Ċ", "<0x0A>", "x", "Ġx")


@given(data=st.data())
def test_the_order_in_which_names_come_does_not_matter(data: st.DataObject) -> None:
    """A later step shows how the engine names tokens, and this holds for the earlier ones, live and in the end."""
    steps = []
    for _ in range(3):
        names = data.draw(st.lists(st.sampled_from(SPELLINGS), min_size=3, max_size=3, unique=True))
        with_bytes = data.draw(st.booleans())
        weights = data.draw(st.lists(st.floats(0.05, 1.0), min_size=3, max_size=3))
        entries = tuple(
            TopToken(math.log(weight / 3.1), text=name, id=k + 1, bytes=name.encode() if with_bytes else None)
            for k, (name, weight) in enumerate(zip(names, weights, strict=True))
        )
        steps.append(TopStep(data.draw(st.sampled_from(entries)), entries))
    seen = []
    for order in itertools.permutations(steps):
        stream = LogprobsStream()
        for step in order:
            live = stream.add(step)
        scored = stream.finish()
        assert (
            live.sequence_uncertainty_interval == pytest.approx(scored.sequence_uncertainty_interval, abs=1e-9)
            or not scored.text.strip()
        )
        seen.append(sorted(token.log_agreeing_bounds or () for token in scored.tokens))
    for bounds in seen[1:]:
        assert np.array(bounds) == pytest.approx(np.array(seen[0]), abs=1e-9)


def test_what_the_model_leaned_to_is_shown_also_beside_a_token_without_a_name() -> None:
    """Any entry may be spelled as a piece of a character is: it may count, and it is shown."""
    entries = [
        TopToken(math.log(chance), id=k, text=text)
        for k, (text, chance) in enumerate([("caf", 0.9), (None, 0.5), (" is", 0.3), ("\n", 0.05)])
    ]
    word, piece, likely, blank = entries
    scored = score_logprobs([TopStep(word, (word,)), TopStep(piece, (piece, likely, blank))] * 2)
    for token in (scored.tokens[1], scored.tokens[3]):
        assert [(other.text, other.counted) for other in token.alternatives] == [(" is", False), ("\n", False)]
        assert [other.probability for other in token.alternatives] == pytest.approx([0.3, 0.05])
