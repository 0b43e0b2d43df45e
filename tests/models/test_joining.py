"""Answers that begin and end one by one are those that transformers gives to each prompt alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from semtoken.methods.observers.steps import Completion, Observer, Step
from semtoken.models.base import Arrival, Decoding, JoiningBackend
from tests import tiny
from tests.models.plain_pass import passes_of

torch = pytest.importorskip("torch")
from semtoken.models.transformers import TransformersBackend  # noqa: E402

LENGTHS = (3, 17, 1, 9, 25, 2, 12)
LIMITS = (9, 3, 14, 1, 6, 20, 5)
COMES_AT = (0, 0, 2, 2, 5, 13, 40)
"""The step before which each prompt joins; before the last, all others are complete."""


def llama() -> Any:
    return tiny.llama(len(tiny.byte_level_bpe()))


def sliding(window: int = 8) -> Any:
    """Layers that keep the last tokens beside ones that keep all."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=len(tiny.byte_level_bpe()),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        sliding_window=window,
        layer_types=["sliding_attention", "full_attention"],
        max_position_embeddings=128,
    )
    return Gemma3ForCausalLM(config).eval()


class Watching(Observer):
    """Keeps the log-probabilities of every step, and ends one answer early."""

    def __init__(self, ends: int | None = None) -> None:
        self.logs: dict[int, list[np.ndarray[Any, Any]]] = {}
        self.completions: dict[int, Completion] = {}
        self.rows: list[int] = []
        self.batches: list[int] = []
        self._ends = ends

    def observe(self, step: Step) -> Collection[int]:
        logits = torch.as_tensor(np.asarray(step.logits))[list(step.rows), : step.size]
        for answer, row in zip(step.answers, logits.log_softmax(-1).numpy(), strict=True):
            self.logs.setdefault(answer, []).append(row)
        self.rows.append(len(step.answers))
        self.batches.append(len(np.asarray(step.logits)))
        return [answer for answer in step.answers if answer == self._ends and len(self.logs[answer]) == 4]

    def finish(self, answer: int, completion: Completion) -> None:
        self.completions[answer] = completion


def assert_of_one_pass(model: Any, prompt: list[int], ids: list[int], logs: list[Any], atol: float = 2e-5) -> None:
    """Every row is that of one pass over the whole text."""
    with torch.no_grad():
        whole = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
    np.testing.assert_allclose(np.array(logs), whole.log_softmax(-1).numpy(), atol=atol)


def run(model: Any, decodings: Sequence[Decoding], ends: int | None = None) -> tuple[Watching, list[list[int]]]:
    tokenizer = tiny.byte_level_bpe()
    random = np.random.default_rng(7)
    prompts = [random.integers(5, len(tokenizer), length).tolist() for length in LENGTHS]
    backend = TransformersBackend(model, tokenizer)
    assert isinstance(backend, JoiningBackend) and backend.joins
    watching, steps = Watching(ends), iter(range(10_000))

    def arrivals() -> list[Arrival]:
        step = next(steps)
        if len(watching.completions) == len(LENGTHS) - 1 and step < COMES_AT[-1]:
            step = COMES_AT[-1]  # nothing is left to wait for
        return [
            Arrival(answer, prompts[answer], decodings[answer])
            for answer, comes in enumerate(COMES_AT)
            if comes == step and answer not in watching.logs
        ]

    backend.generate_joining(arrivals, [watching])
    return watching, prompts


@pytest.mark.parametrize("make", [pytest.param(llama, marks=pytest.mark.slow), sliding])
def test_each_answer_is_the_one_that_its_prompt_has_alone(make: Any) -> None:
    model = make()
    model.generation_config.eos_token_id = None
    watching, prompts = run(model, [Decoding(max_new_tokens=limit) for limit in LIMITS], ends=5)
    assert max(watching.rows) > 1 and sum(watching.rows) == sum(map(len, watching.logs.values()))
    for answer, (prompt, limit) in enumerate(zip(prompts, LIMITS, strict=True)):
        found = watching.completions[answer]
        limit = 4 if answer == 5 else limit
        ids = torch.tensor([prompt])
        alone = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=limit, do_sample=False)
        assert found.token_ids == alone[0, len(prompt) :].tolist()
        assert found.truncated == (answer != 5)
        assert_of_one_pass(model, prompt, found.token_ids, watching.logs[answer])


@pytest.mark.parametrize(
    ("make", "reads"),
    [pytest.param(llama, 6 * 9, marks=pytest.mark.slow), (lambda: sliding(64), 6 * 9), (sliding, 6 * 20)],
)
def test_what_prompts_have_in_common_is_read_once(make: Any, reads: int) -> None:
    """A window of eight tokens keeps too little for others to begin with."""
    model, tokenizer = make(), tiny.byte_level_bpe()
    random = np.random.default_rng(3)
    beginning = random.integers(5, len(tokenizer), 11).tolist()
    prompts = [beginning + random.integers(5, len(tokenizer), length).tolist() for length in (3, 9, 1, 6)]
    prompts.append(prompts[3][:4])  # shorter than what is known: its last token is read
    prompts.append(prompts[1])
    prompts.append([*prompts[3][:-2], 7, 8])
    backend, watching = TransformersBackend(model, tokenizer), Watching()
    assert backend.joins
    with passes_of(model) as passes:
        for numbers in ([0], [1, 2, 3, 4, 5, 6]):
            waiting = iter([[Arrival(n, prompts[n], Decoding(max_new_tokens=2)) for n in numbers]])
            backend.generate_joining(partial(next, waiting, []), [watching])
    assert [rows * tokens for rows, tokens in (passes[0], passes[2])] == [14, reads]
    for n, prompt in enumerate(prompts):
        assert_of_one_pass(model, prompt, watching.completions[n].token_ids, watching.logs[n])


@pytest.mark.parametrize("make", [pytest.param(llama, marks=pytest.mark.slow), sliding])
def test_long_prompts_are_read_in_pieces_and_nobody_waits_for_more_than_one(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them begin in the same way, one fills the model's context, and one is not wanted any more half-way."""
    from semtoken.models import pace as reading

    for limit in ("WHOLE", "FEWEST", "MOST"):
        monkeypatch.setattr(reading, limit, 8)
    model, tokenizer = make().double(), tiny.byte_level_bpe()
    model.generation_config.eos_token_id = None
    backend, random = TransformersBackend(model, tokenizer), np.random.default_rng(5)
    longest = backend.max_length
    assert longest is not None and longest >= 128
    prompts = [random.integers(5, len(tokenizer), length).tolist() for length in (5, 90, 4, 31, longest, 8, 60)]
    prompts[3][:25] = prompts[1][:25]
    limits, comes = (60, 3, 4, 5, 9, 6, 2), (0, 3, 3, 4, 4, 9, 2)
    watching, steps, asked = Watching(), iter(range(10_000)), iter(range(10_000))
    wanted = {6: lambda: next(asked) < 3}

    def arrivals() -> list[Arrival]:
        now = next(steps)
        come = [number for number, step in enumerate(comes) if step == now]
        return [Arrival(n, prompts[n], Decoding(max_new_tokens=limits[n]), wanted.get(n, lambda: True)) for n in come]

    with passes_of(model) as passes:
        backend.generate_joining(arrivals, [watching])
    read = [shape for shape in passes if shape[1] > 1]
    assert max(rows * columns for rows, columns in read) == 8
    assert watching.completions[6] == Completion([], truncated=True) and 6 not in watching.logs
    for one, other in pairwise(passes):  # a step of the running answers comes between two pieces
        assert one[1] == 1 or other[1] == 1 or one[0] * one[1] + other[0] * other[1] <= 16
    for answer in sorted(set(range(len(prompts))) - {6}):
        found = watching.completions[answer].token_ids
        assert len(found) == min(limits[answer], longest - len(prompts[answer]) + 1)
        assert_of_one_pass(model, prompts[answer], found, watching.logs[answer], atol=2e-6)


@pytest.mark.parametrize("waiting", [1, 3, 12])
@pytest.mark.parametrize(("fixed", "each"), [(1.0, 0.01), (5.0, 0.0), (1.0, 0.002), (0.1, 1.0)])
def test_the_pace_grows_as_long_as_reading_takes_less_than_a_step_and_a_half(
    fixed: float, each: float, waiting: int
) -> None:
    """A step of three answers takes 4, and a pass over prompts so much and so much more for each token."""
    from semtoken.models.pace import FEWEST, MOST, Pace

    pace, share = Pace(), max(1, waiting / 3)
    assert pace.budget(waiting, 0) == MOST
    budgets = []
    for _ in range(40):
        pace.note_step(4.0)
        budget = pace.budget(waiting, 3)
        pace.note_reading(fixed + each * budget, budget, waiting, 3)
        budgets.append(budget)
    [settled] = set(budgets[10:])
    assert settled in {min(MOST, int(share * FEWEST * 2**k)) for k in range(8)}
    assert settled <= FEWEST * share or fixed + each * settled <= 1.5 * 4.0 * share
    assert settled == MOST or fixed + each * settled >= 0.75 * 4.0 * share


def test_draws_are_those_that_each_prompt_has_alone_up_to_rounding() -> None:
    """Rounding that differs between batches can change a draw, which is rare enough for so few of them."""
    model = llama()
    model.generation_config.eos_token_id = None
    kinds = [Decoding(temperature=1.0, seed=3), Decoding(temperature=0.5, top_k=9, seed=4), Decoding()]
    decodings = [Decoding(**vars(kinds[i % 3]) | {"max_new_tokens": limit}) for i, limit in enumerate(LIMITS)]
    watching, prompts = run(model, decodings)
    backend = TransformersBackend(model, tiny.byte_level_bpe())
    for answer, (prompt, decoding) in enumerate(zip(prompts, decodings, strict=True)):
        [alone] = backend.generate([prompt], decoding)
        assert watching.completions[answer].token_ids == alone.token_ids


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_values_so_far_are_the_same_together_and_one_by_one(preset: Any) -> None:
    from semtoken import TokenClusters, Vocabulary
    from semtoken.core import scorer_for
    from semtoken.core.rules import ScoringRules
    from semtoken.models.scores import AnswerScores

    vocabulary = Vocabulary.from_tokenizer(tiny.byte_level_bpe())
    random = np.random.default_rng(2)
    clusters = TokenClusters(random.integers(0, 100, vocabulary.size).astype(np.int32), vocabulary)
    scorer = scorer_for(clusters, ScoringRules(preset))
    together, alone = AnswerScores(scorer), [AnswerScores(scorer) for _ in range(4)]
    blank = vocabulary.blank.nonzero()[0]
    for number in range(12):
        logits = random.normal(size=(4, vocabulary.size), scale=4).astype(np.float32)
        tokens = random.integers(5, vocabulary.size, 4).tolist()
        tokens[3] = int(blank[number % len(blank)])  # an answer that has nothing but blanks
        together.observe(Step(range(4), tokens, vocabulary.size, logits, range(4)))
        for answer, scores in enumerate(alone):
            scores.observe(Step([0], [tokens[answer]], vocabulary.size, logits, [answer]))
        for answer, found in zip((2, 0, 3), together.running_together([2, 0, 3]), strict=True):
            expected = alone[answer].running(0)
            assert found.n_settled == expected.n_settled and found.n_tokens == expected.n_tokens == number + 1
            assert found.sequence_uncertainty_interval == pytest.approx(
                expected.sequence_uncertainty_interval, abs=1e-12
            )
            assert found.sequence_uncertainty == pytest.approx(expected.sequence_uncertainty, abs=1e-12)


def test_a_model_with_penalties_of_its_own_is_left_to_transformers() -> None:
    model = llama()
    model.generation_config.repetition_penalty = 1.1
    assert not TransformersBackend(model, tiny.byte_level_bpe()).joins


@pytest.mark.parametrize(("make", "n"), [(llama, 3), (sliding, 1)])
def test_complete_answers_leave_a_batch_and_the_others_do_not_change(make: Any, n: int) -> None:
    model, tokenizer = make(), tiny.byte_level_bpe()
    model.generation_config.eos_token_id = None
    random = np.random.default_rng(8)
    prompts = [random.integers(5, len(tokenizer), length).tolist() for length in 2 * LENGTHS]
    kinds = [Decoding(n=n, temperature=1.0, seed=3), Decoding(n=n, temperature=0.5, top_k=9, seed=4), Decoding(n=n)]
    decodings = [replace(kinds[i % 3], max_new_tokens=limit, batch_size=14) for i, limit in enumerate(2 * LIMITS)]
    backend = TransformersBackend(model, tokenizer)
    leaving, staying = Watching(ends=5), Watching(ends=5)
    found = backend.generate(prompts, decodings, [leaving])
    # Whoever gives options to transformers has the whole batch to its end.
    whole = backend.generate(prompts, [replace(one, options={"use_cache": True}) for one in decodings], [staying])
    assert found == whole == [leaving.completions[answer] for answer in range(14 * n)]
    for answer, logs in staying.logs.items():
        np.testing.assert_allclose(leaving.logs[answer], logs, atol=2e-5)
    assert set(staying.batches) == {14 * n}
    assert len(set(leaving.batches)) > 1 and leaving.rows == staying.rows
    assert all(rows > batch / 2 or batch < 8 for rows, batch in zip(leaving.rows, leaving.batches, strict=True))
