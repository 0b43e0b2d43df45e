"""Competing meanings, disputes and choices of a small model, checked against its own logits, pass by pass."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import semtoken as st
from semtoken.core import ScoringRules, scorer_for
from semtoken.errors import InvalidInputError
from semtoken.models.probing import Competitor, competing, competing_in_record, disputed, with_choices
from semtoken.models.probing.choices import _with
from semtoken.models.probing.competing import groups_of
from semtoken.models.probing.disputes import Dispute, _to_end_of_phrase, doubtful_steps, merge, only_in_form
from tests import worked
from tests.tiny import byte_level_bpe, llama, token_before

torch = pytest.importorskip("torch")

PROMPT = "the capital of France is"


@cache
def stc() -> Any:
    """A random model with random clusters, whose tokenizer puts a token before each prompt, as most do."""
    tokenizer = byte_level_bpe()
    tokenizer.backend_tokenizer.post_processor = token_before(tokenizer)
    vocabulary = st.Vocabulary.from_tokenizer(tokenizer)
    labels = np.random.default_rng(0).integers(0, 60, vocabulary.size).astype(np.int32)
    return st.ScoredModel(llama(vocabulary.size, seed=3), tokenizer, st.TokenClusters(labels, vocabulary))


def probabilities(ids: list[int]) -> Any:
    """Next-token probabilities of the model after some ids, by a pass of its own."""
    with torch.no_grad():
        row = stc().model(torch.tensor([ids])).logits[0, -1, : stc().clusters.vocabulary.size]
    return row.double().softmax(-1).numpy()


def prompt_ids() -> list[int]:
    return list(stc().tokenizer(PROMPT)["input_ids"])


def test_groups_are_clusters_with_three_exceptions() -> None:
    answer = stc().generate(PROMPT, max_new_tokens=6)[0]
    vocabulary, labels = stc().clusters.vocabulary, stc().clusters.labels
    for step in range(len(answer.tokens)):
        row = probabilities([*prompt_ids(), *answer.token_ids[:step]])
        chosen = answer.token_ids[step]
        after = vocabulary.decode(answer.token_ids[step:]).strip().lower()
        groups: dict[Any, float] = {}
        for token, probability in enumerate(row):
            key: Any = int(labels[token])
            if vocabulary.neutral[token]:
                key = "neutral"
            elif not vocabulary.neutral[chosen] and (
                token == chosen or (vocabulary.normalized[token] and after.startswith(vocabulary.normalized[token]))
            ):
                key = ("numeral", chosen) if vocabulary.numeral[chosen] else int(labels[chosen])
            elif vocabulary.numeral[token]:
                key = ("numeral", token)
            groups[key] = groups.get(key, 0.0) + float(probability)
        expected = sorted(groups.values(), reverse=True)[:4]
        found = competing(stc(), PROMPT, answer, step)
        assert [one.probability for one in found] == pytest.approx(expected, rel=1e-4)
        assert [one.probability for one in competing(stc(), PROMPT, answer, step, n=1)] == [found[0].probability]
        assert max(len(one.tokens) for one in found) == 3  # of a meaning the most probable ones are shown
        assert all([p for _, p in one.tokens] == sorted((p for _, p in one.tokens), reverse=True) for one in found)
        assert all(
            text == vocabulary.texts[i] for one in found for i, (text, _) in zip(one.token_ids, one.tokens, strict=True)
        )
        assert [p for one in found for _, p in one.tokens] == pytest.approx(
            [row[i] for one in found for i in one.token_ids], rel=1e-4
        )


def test_groups_of_the_record_are_a_lower_bound() -> None:
    answer = stc().generate(PROMPT, max_new_tokens=6)[0]
    for step in range(len(answer.tokens)):
        exact = {one.token_ids[0]: one.probability for one in competing(stc(), PROMPT, answer, step, n=999)}
        for one in competing_in_record(answer, step, stc().scorer, n=2):
            assert one.probability <= exact.get(one.token_ids[0], 1.0) + 1e-6
    with pytest.raises(InvalidInputError, match="from 0 to 5, got 99"):
        competing_in_record(answer, 99, stc().scorer)
    with pytest.raises(InvalidInputError, match="from 0 to 5, got 99"):
        competing(stc(), PROMPT, answer, 99)


@pytest.mark.parametrize("known", [True, False])
def test_function_words_of_the_record_are_one_meaning_also_where_one_was_chosen(known: bool) -> None:
    """With a vocabulary, and without one, by the texts of the record."""
    chances = {" the": 0.4, " a": 0.2, "the": 0.06, "an": 0.04, " Rome": 0.2, "rome": 0.05}
    items = {name: {"token": name, "logprob": math.log(chance)} for name, chance in chances.items()}
    vocabulary = worked.vocabulary(tuple(chances)) if known else None
    for chosen, expected in ((" the", [(0.7, True), (0.25, False)]), (" Rome", [(0.7, False), (0.25, True)])):
        answer = st.score_logprobs([{**items[chosen], "top_logprobs": list(items.values())}], vocabulary)
        found = competing_in_record(answer, 0, scorer_for(vocabulary, ScoringRules()))
        assert [(pytest.approx(one.probability), one.chosen) for one in found] == expected
        shown = [(" the", 0.4), (" a", 0.2), ("the", 0.06)]  # and not the fourth
        assert [*found[0].tokens] == [(text, pytest.approx(chance)) for text, chance in shown]
        assert competing_in_record(answer, 0, scorer_for(vocabulary, ScoringRules()), n=1) == found[:1]


def test_tokens_of_probability_0_are_no_meaning_and_shown_in_none() -> None:
    """As of a model whose logits hold -inf."""
    vocabulary = worked.vocabulary((" Rome", "rome", " Bergen", " Oslo"))
    with np.errstate(divide="ignore"):
        row = np.log([0.6, 0.0, 0.4, 0.0])
    found = groups_of(row, [0], 0, scorer_for(vocabulary, ScoringRules()), 9)
    assert [(one.tokens, one.token_ids) for one in found] == [
        (((" Rome", pytest.approx(0.6)),), (0,)),
        (((" Bergen", pytest.approx(0.4)),), (2,)),
    ]


def test_the_only_prompt_is_called_prompt_0_as_where_there_are_several() -> None:
    [answer] = stc().score(PROMPT, "Paris")
    calls: tuple[Callable[[str], Any], ...] = (
        lambda prompt: competing(stc(), prompt, answer, 0),
        lambda prompt: disputed(stc(), prompt, answer, with_agreed=True),
        lambda prompt: stc().generate([prompt, "x"]),
    )
    for call in calls:
        with pytest.raises(InvalidInputError, match=r"^Prompt 0 is empty\.$"):
            call(" ")


def test_disputes_follow_each_meaning_greedily() -> None:
    answer = stc().generate(PROMPT, max_new_tokens=5)[0]
    found = disputed(stc(), PROMPT, answer, n=3, branch_tokens=4)
    assert found == stc().disputed(PROMPT, answer, n=3, branch_tokens=4)
    assert found and found == sorted(found, key=lambda one: (-one.disagreement, one.step))
    vocabulary = stc().clusters.vocabulary
    for dispute in found:
        assert dispute.disagreement == pytest.approx(sum(c.probability for c in dispute.competitors if not c.chosen))
        assert dispute.unheard == pytest.approx(1 - sum(c.probability for c in dispute.competitors), abs=1e-6)
        assert dispute.step in dispute.part.tokens or not dispute.part.tokens
        for one in dispute.competitors:
            ids = [*answer.token_ids[: dispute.step], one.token_ids[0]]
            for _ in range(4):
                ids.append(int(probabilities([*prompt_ids(), *ids]).argmax()))
            start = answer.tokens[dispute.step].start
            blank = answer.text[start].isspace()
            word = start if blank else len(re.sub(r"\S*\Z", "", answer.text[:start]))
            assert one.continuation is not None
            assert vocabulary.decode(ids)[word:].strip().startswith(one.continuation)
    [whole] = disputed(stc(), PROMPT, answer, n=999, max_steps=1, with_agreed=True)
    assert whole.unheard == pytest.approx(0, abs=1e-6)


def test_steps_at_which_nothing_else_is_said_are_left_out_unless_wanted() -> None:
    """With one meaning followed, no step at which it is the answer's own is disputed."""
    answer = stc().generate(PROMPT, max_new_tokens=5)[0]
    agreed = disputed(stc(), PROMPT, answer, n=1, with_agreed=True)
    found = disputed(stc(), PROMPT, answer, n=1)
    assert found == [one for one in agreed if one.disagreement > 0] != agreed


def dispute(step: int, part: Any, disagreement: float, unheard: float, *others: Competitor) -> Dispute:
    return Dispute(step, part, (competitor(0.5, "Oslo", chosen=True), *others), disagreement, unheard)


def test_a_dispute_is_said_with_three_other_meanings_that_have_a_share() -> None:
    [part] = stc().score(PROMPT, " Oslo ")[0].parts(by="phrase")
    names = {"Bergen": 0.2, "Paris": 0.0951, "": 0.09, "Rome": 0.06, "Kyiv": 0.05}
    others = [competitor(chance, name) for name, chance in names.items()]
    considered = "at “Oslo” the model also considered “Bergen” (20%), “Paris” (10%), “Rome” (6%)"
    assert dispute(0, part, 0.4, 0.0, *others).sentence == considered
    alone = "at “Oslo” the model also considered “Rome” (1%)"
    assert dispute(0, part, 0.0, 0.0, competitor(0.0149, "Rome"), competitor(0.005, "Kyiv")).sentence == alone
    assert dispute(0, part, 0.0, 0.0, competitor(0.005, "Kyiv")).sentence == "at “Oslo” it was least sure"


@pytest.mark.parametrize(
    ("disagreement", "unheard", "only"),
    [
        (0.0, 0.0, True),
        (0.15, 0.0, True),
        (0.0, 0.15, True),
        (0.1, 0.06, False),
        (0.16, 0.0, False),
        (None, 0.0, False),
    ],
)
def test_a_doubt_is_of_form_only_if_branches_that_agree_have_nearly_all(
    disagreement: float | None, unheard: float, only: bool
) -> None:
    """At each doubtful step; one that was not looked at is a doubt, and a phrase without doubt has none of form."""
    answer = stc().score(PROMPT, " the TV")[0]
    [part] = answer.parts(by="phrase")
    steps = [step for step in doubtful_steps(answer, 99) if step in part.tokens]
    assert steps
    found = [dispute(step, part, disagreement, unheard) for step in steps if disagreement is not None]
    assert only_in_form(part, answer, found) is only
    assert not only_in_form(part, answer, found[1:])
    assert not only_in_form(replace(part, tokens=range(0)), answer, found)


def test_the_least_certain_steps_are_looked_at_and_no_blanks() -> None:
    [answer] = stc().score(PROMPT, "the TV \n of Paris .")
    assert any(not token.text.strip() for token in answer.tokens)
    said = sorted((token.probability, step) for step, token in enumerate(answer.tokens) if token.text.strip())
    for most in (0, 2, 99):
        assert doubtful_steps(answer, most, 1.0) == sorted(step for _, step in said[:most])
    assert doubtful_steps(answer, 99, said[2][0]) == sorted(step for _, step in said[:2])
    [longer] = stc().score(PROMPT, "the TV of Paris . " * 4)
    assert len(doubtful_steps(longer, doubtful=1.0)) == 8 < len(doubtful_steps(longer, 99, 1.0)), (
        "unless asked for more"
    )
    items = [{"token": f" {name}", "logprob": math.log(chance)} for name, chance in (("a", 0.89), ("b", 0.91))]
    assert doubtful_steps(st.score_logprobs(items)) == [0]
    for most, doubtful in ((-1, 0.5), (1, -0.05), (1, 1.05)):
        with pytest.raises(InvalidInputError):
            doubtful_steps(answer, most, doubtful)


def competitor(probability: float, continuation: str, chosen: bool = False) -> Competitor:
    return Competitor(probability, ((continuation, probability),), (hash(continuation) % 100,), chosen, continuation)


def test_branches_that_say_the_same_are_one() -> None:
    merged = merge(
        [
            competitor(0.4, "The war ended in 1945", chosen=True),
            competitor(0.3, "war ended 1945"),
            competitor(0.2, "It lasted until 1946"),
            competitor(0.1, "the"),
            competitor(0.05, "..."),
            competitor(0.04, "?"),
        ]
    )
    assert [(one.probability, one.chosen) for one in merged] == [
        (pytest.approx(0.7), True),
        (0.2, False),
        (0.1, False),
        (0.05, False),
        (0.04, False),
    ]
    assert merge([competitor(0.7, "Oslo"), competitor(0.3 + 1e-9, "Oslo")])[0].probability == 1.0


SCHEMA = {"properties": {"unit": {"enum": ["the TV", "Paris", "of"]}, "ok": {"type": "boolean"}}}


def test_choices_are_the_probabilities_of_whole_values() -> None:
    text = '{"unit": "Paris", "ok": false, "n": 7}'
    answer = stc().score(PROMPT, text)[0]
    fields = answer.parts(by="field", schema=SCHEMA)
    unit, ok, n = with_choices(stc(), PROMPT, answer, fields, SCHEMA)
    pieces = stc().clusters.vocabulary.pieces
    for part, options, ends in (
        (unit, ["the TV", "Paris", "of"], lambda piece: piece[:1] == b'"'),
        (ok, [True, False], lambda piece: not (piece[:1].isalnum() or piece[:1] in (b"_", b"."))),
    ):
        expected = {}
        for option in options:
            written = json.dumps(option)
            start = part.start - (part.kind == "string")
            first = next(i for i, token in enumerate(answer.tokens) if token.end > start)
            before = answer.token_ids[:first]
            spelled = answer.text[answer.tokens[first].start : start] + written.removesuffix('"')
            log_probability = 0.0
            ids = [*prompt_ids(), *before]
            for token in stc().tokenizer(spelled, add_special_tokens=False)["input_ids"]:
                log_probability += math.log(probabilities(ids)[token])
                ids.append(token)
            end = sum(p for p, piece in zip(probabilities(ids), pieces, strict=True) if ends(piece))
            expected[option if isinstance(option, str) else written] = math.exp(log_probability) * end
        total = sum(expected.values())
        assert part.option_mass == pytest.approx(total, rel=1e-3)
        assert part.choices == pytest.approx({name: value / total for name, value in expected.items()}, rel=1e-3)
    assert n.choices is None and n.option_mass is None
    [_, known, _] = with_choices(stc(), PROMPT, answer, answer.parts(by="field"))
    assert (known.choices, known.option_mass) == (ok.choices, ok.option_mass), (
        "booleans are asked without a schema, too"
    )


def test_a_model_that_is_certain_of_something_else_gives_no_value_a_chance() -> None:
    """What rounding puts above 1, or takes to 0, makes no number that is none."""
    vocabulary = stc().clusters.vocabulary
    network = llama(vocabulary.size, seed=3)
    with torch.no_grad():
        network.lm_head.weight *= 1e4
    certain = st.ScoredModel(network, stc().tokenizer, stc().clusters)
    [answer] = certain.score(PROMPT, '{"unit": "Paris", "ok": false, "on": true}')
    fields = answer.parts(by="field", schema=SCHEMA)
    for part in with_choices(certain, PROMPT, answer, fields, SCHEMA):
        assert part.choices is not None and set(part.choices.values()) <= {0.0, 1.0} and part.option_mass in (0.0, 1.0)


def test_the_mass_of_allowed_values_is_their_sum_and_at_most_one() -> None:
    part = stc().score(PROMPT, '{"ok": true}')[0].parts(by="field")[0]
    for masses, total in (((0.5, 0.1), 0.6), ((0.9, 0.07), 0.97), ((0.6, 0.4 + 1e-9), 1.0), ((0.0, 0.0), 0.0)):
        found = _with(part, dict(zip(("true", "false"), masses, strict=True)))
        assert found.option_mass == pytest.approx(total, abs=1e-12) and (found.option_mass or 0) <= 1
        assert found.choices is not None and sum(found.choices.values()) == pytest.approx(float(total > 0))


def test_fields_without_allowed_values_stay_as_they_are() -> None:
    answer = stc().score(PROMPT, '{"n": 7}')[0]
    fields = answer.parts(by="field")
    assert with_choices(stc(), PROMPT, answer, fields) == fields


def test_a_model_in_bfloat16_is_asked_as_well() -> None:
    """Its rows are in numbers that NumPy does not have; they differ from those of float32 by rounding alone."""
    exact, vocabulary = stc(), stc().clusters.vocabulary
    rounded = st.ScoredModel(llama(vocabulary.size, seed=3).to(torch.bfloat16), exact.tokenizer, exact.clusters)
    text = '{"unit": "Paris", "ok": false, "n": 7}'
    [answer] = exact.score(PROMPT, text)
    for one, other in zip(competing(exact, PROMPT, answer, 2), competing(rounded, PROMPT, answer, 2), strict=True):
        assert other.probability == pytest.approx(one.probability, rel=0.1)
    assert disputed(rounded, PROMPT, answer, with_agreed=True)
    fields = answer.parts(by="field", schema=SCHEMA)
    known, asked = (with_choices(model, PROMPT, answer, fields, SCHEMA) for model in (exact, rounded))
    assert asked[1].choices == pytest.approx(known[1].choices, abs=0.05)


@pytest.mark.parametrize(
    ("text", "behind", "broken_off", "phrase"),
    [
        ("Oslo. It is", 0, False, "Oslo"),
        ("Oslo", 0, False, "Oslo"),
        ("St. Olav", 3, False, "St. Olav"),  # the phrase may end only behind the forced token
        ("Oslo and Ber", 1, True, "Oslo and"),
        ("Bergen", 1, True, "Bergen"),  # no word before it to end with
        ("O Ber", 0, True, "O"),
        ("O Ber", 1, True, "O"),
        ("O Ber", 2, True, "O Ber"),
        (" Ber", 0, True, "Ber"),
        ("! It is", 0, False, ""),
        ("! It is", -1, False, ""),
    ],
)
def test_a_branch_ends_with_its_phrase(text: str, behind: int, broken_off: bool, phrase: str) -> None:
    assert _to_end_of_phrase(text, behind, broken_off=broken_off) == phrase
