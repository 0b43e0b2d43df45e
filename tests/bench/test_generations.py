"""Greedy answers and samples against plain forward passes of the same model."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies
from scipy.special import softmax
from scipy.stats import chi2
from transformers import GPT2Config, GPT2LMHeadModel

import semtoken as st
from semtoken.bench.statistics import AnswerSettings, Timings, record_greedy, record_samples
from semtoken.bench.statistics.recording import chosen_first
from semtoken.core.results.generation import Generation
from semtoken.errors import InvalidInputError, InvalidLogits, ModelError
from semtoken.models.prompt_ids import draw_key
from semtoken.models.transformers import caches
from semtoken.models.transformers.anatomy import layer_at
from semtoken.models.transformers.choosing import depth_of, draw, drawn_places
from tests import tiny
from tests.bench import statistics_models as models
from tests.known import known
from tests.rows import each

FIELDS = {"log_probs", "top_log_probs", "stc_log_score", "stc_no_clustering_log_score", "stc_no_prefix_log_score"}
DECODING = AnswerSettings(max_new_tokens=9, batch_size=2, n_samples=3)


def prompts(stc: Any) -> list[list[int]]:
    return [stc.tokenizer(question)["input_ids"] for question in models.QUESTIONS]


def greedy(stc: Any, decoding: AnswerSettings = DECODING, ids: list[list[int]] | None = None) -> list[Generation]:
    return record_greedy(stc, ids or prompts(stc), FIELDS, decoding, Timings())


def sampled(stc: Any, decoding: AnswerSettings = DECODING, ids: list[list[int]] | None = None) -> list[Generation]:
    ids = ids or prompts(stc)
    blank = [Generation(text="", token_ids=[]) for _ in ids]
    return record_samples(stc, ids, blank, {"hidden_states"}, decoding, Timings())


def full_pass(stc: Any, prompt: list[int], answer: list[int]) -> tuple[torch.Tensor, Any]:
    """Log-probabilities [n, V] of the steps of an answer, and all hidden states at the positions that predict them."""
    with torch.no_grad():
        output = stc.model(torch.tensor([prompt + answer]), output_hidden_states=True)
    steps = slice(len(prompt) - 1, len(prompt) + len(answer) - 1)
    size = stc.clusters.vocabulary.size
    return output.logits[0, steps, :size].log_softmax(-1), [layer[0, steps] for layer in output.hidden_states]


@pytest.mark.parametrize("kind", list(tiny.TOKENIZERS))
def test_greedy_answers_equal_a_teacher_forced_pass(kind: str) -> None:
    stc = models.answering(kind)
    for ids, generation in zip(prompts(stc), greedy(stc), strict=True):
        answer = list(generation.token_ids)
        log_probs, _ = full_pass(stc, ids, answer)
        assert log_probs.argmax(-1).tolist() == answer
        np.testing.assert_allclose(known(generation.log_probs), log_probs.max(-1).values, atol=1e-4)
        best = log_probs.topk(10)
        assert generation.top_ids is not None and generation.top_log_probs is not None
        for step, (found, values) in enumerate(zip(generation.top_ids, generation.top_log_probs, strict=True)):
            assert found[0] == answer[step]
            assert set(found.tolist()) == set(best.indices[step].tolist())
            np.testing.assert_allclose(values, best.values[step], atol=1e-4)
        assert generation.text == stc.tokenizer.decode(
            answer, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )


def test_stc_scores_come_from_the_same_pass() -> None:
    stc = models.answering()
    generations = greedy(stc)
    rules = {
        "stc_log_score": st.ScoringRules(),
        "stc_no_clustering_log_score": st.ScoringRules(clustering=False),
        "stc_no_prefix_log_score": st.ScoringRules(prefix_matching=False),
    }
    for ids, generation in zip(prompts(stc), generations, strict=True):
        answer = list(generation.token_ids)
        logits, _ = full_pass(stc, ids, answer)
        for field, changed in rules.items():
            expected = st.score_logits(logits, answer, stc.clusters, changed).log_confidence
            assert getattr(generation, field) == pytest.approx(expected, abs=1e-3)


def test_a_cache_that_cannot_be_repeated_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stc = models.answering()
    shared = sampled(stc)
    monkeypatch.setattr(caches, "REPEATABLE", ())
    for one, two in zip(shared, sampled(stc), strict=True):
        assert one.sample_token_ids == two.sample_token_ids
        np.testing.assert_allclose(known(one.hidden_states), known(two.hidden_states), atol=1e-3)
        for mine, other in zip(one.sample_log_probs or (), two.sample_log_probs or (), strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-4)


def test_a_prompt_is_read_once_for_all_its_samples() -> None:
    stc = models.answering()
    rows: list[tuple[int, ...]] = []
    handle = stc.model.register_forward_pre_hook(
        lambda _m, _a, given: rows.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )
    sampled(stc, ids=prompts(stc)[:2])
    handle.remove()
    longest = max(map(len, prompts(stc)[:2]))
    assert rows[0] == (2, longest)
    further = [count for count, width in rows[1:] if width == 1]
    assert len(further) == len(rows) - 1 > 0
    assert 2 * DECODING.n_samples >= further[0] and further == sorted(further, reverse=True)  # ended samples leave


def test_what_is_recorded_does_not_depend_on_the_batch() -> None:
    stc = models.answering()
    other = replace(DECODING, batch_size=5)
    for one, two in zip(greedy(stc), greedy(stc, other), strict=True):
        assert one.token_ids == two.token_ids
        np.testing.assert_allclose(known(one.log_probs), known(two.log_probs), atol=1e-4)
        assert one.stc_log_score == pytest.approx(two.stc_log_score, abs=1e-4)
    for one, two in zip(sampled(stc), sampled(stc, other), strict=True):
        assert one.sample_token_ids == two.sample_token_ids
        np.testing.assert_allclose(known(one.hidden_states), known(two.hidden_states), atol=1e-3)


def test_samples_are_those_of_the_prompt_and_the_seed() -> None:
    stc = models.answering()
    ids = prompts(stc)
    forward, backward = sampled(stc), sampled(stc, replace(DECODING, n_samples=4), ids[::-1])[::-1]
    assert [g.sample_token_ids for g in forward] == [g.sample_token_ids[:3] for g in backward if g.sample_token_ids]
    other = sampled(stc, replace(DECODING, seed=1))
    assert [g.sample_token_ids for g in forward] != [g.sample_token_ids for g in other]


def test_sample_log_probabilities_are_those_of_temperature_one() -> None:
    stc = models.answering()
    for ids, generation in zip(prompts(stc), sampled(stc, replace(DECODING, temperature=0.5)), strict=True):
        assert generation.sample_token_ids is not None and generation.sample_log_probs is not None
        for answer, recorded in zip(generation.sample_token_ids, generation.sample_log_probs, strict=True):
            log_probs, _ = full_pass(stc, ids, list(answer))
            expected = log_probs[range(len(answer)), list(answer)]
            np.testing.assert_allclose(recorded, expected, atol=1e-4)


def test_the_state_is_that_of_the_middle_layer_before_the_last_token() -> None:
    stc = models.answering()
    lengths = set()
    for ids, generation in zip(prompts(stc), sampled(stc, replace(DECODING, n_samples=6)), strict=True):
        assert generation.sample_token_ids is not None and generation.hidden_states is not None
        for answer, state in zip(generation.sample_token_ids, generation.hidden_states, strict=True):
            _, layers = full_pass(stc, ids, list(answer))
            np.testing.assert_allclose(state, layers[(stc.model.config.num_hidden_layers + 1) // 2][-1], atol=1e-3)
            lengths.add(len(answer))
    assert len(lengths) > 1, "answers of different lengths are needed for this test to say something"


@each(("layers", "entry"), [(2, 1), (3, 2), (4, 2), (5, 3)])
def test_middle_layer_of_another_architecture(layers: int, entry: int) -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=layers, n_embd=8, n_head=2, vocab_size=11, n_positions=16)).eval()
    seen: list[torch.Tensor] = []
    layer_at(model, 0.5).register_forward_hook(
        lambda _m, _a, out: seen.append(out[0] if isinstance(out, tuple) else out)
    )
    with torch.no_grad():
        states = model(torch.tensor([[1, 2, 3]]), output_hidden_states=True).hidden_states
    torch.testing.assert_close(seen[0], states[entry])


def test_a_model_without_a_list_of_layers_is_refused() -> None:
    stc = models.answering()
    model = tiny.llama(stc.clusters.vocabulary.size)
    model.model.layers = torch.nn.Sequential(*model.model.layers)
    with pytest.raises(ModelError, match="list of 2 layers"):
        layer_at(model, 0.5)


def test_answers_end_at_the_first_newline_and_keep_it() -> None:
    stc = models.answering()
    newline = [i for i, text in enumerate(stc.clusters.vocabulary.texts) if "\n" in text]
    sure = replace_head(stc, newline[0])
    (generation,) = record_greedy(sure, prompts(stc)[:1], FIELDS, DECODING, Timings())
    assert list(generation.token_ids) == newline[:1]
    assert generation.stc_log_score == -np.inf  # a blank answer
    (going_on,) = record_greedy(sure, prompts(stc)[:1], FIELDS, replace(DECODING, stop_at_newline=False), Timings())
    assert len(going_on.token_ids) == DECODING.max_new_tokens
    (samples,) = sampled(sure, ids=prompts(stc)[:1])
    assert samples.sample_token_ids == [newline[:1]] * DECODING.n_samples


def replace_head(stc: Any, token: int) -> Any:
    """The same with a bias that makes one token certain."""
    model = tiny.llama(stc.model.config.vocab_size)
    model.generation_config.eos_token_id = stc.tokenizer.eos_token_id
    bias = torch.zeros(stc.model.config.vocab_size)
    bias[token] = 1e4
    model.lm_head.bias = torch.nn.Parameter(bias)
    return st.ScoredModel(model, stc.tokenizer, stc.clusters)


def test_nan_is_refused_with_its_step() -> None:
    stc = replace_head(models.answering(), 5)
    with torch.no_grad():
        stc.model.lm_head.bias[7] = torch.nan
    with pytest.raises(InvalidLogits, match="step 0"):
        sampled(stc)


def streams(seed: int, count: int) -> list[np.random.Generator]:
    """The random numbers of so many answers."""
    return [np.random.default_rng([seed, row]) for row in range(count)]


@each("size", [1, 2, 16, 17, 255, 300])
def test_draws_follow_the_distribution_at_the_temperature(size: int) -> None:
    """By Pearson's test, over the tokens that are expected often enough for it."""
    logits = np.random.default_rng(size).normal(scale=1.5, size=size)
    logits[size // 2 : size - 1] = -np.inf
    count = 4_000
    drawn = draw(torch.from_numpy(logits).repeat(count, 1), streams(size, count), temperature=0.7)
    observed, expected = np.bincount(drawn.numpy(), minlength=size), count * softmax(logits / 0.7)
    often = expected > 5
    statistic = ((observed - expected)[often] ** 2 / expected[often]).sum()
    assert statistic < chi2.isf(1e-6, max(1, often.sum() - 1))
    assert observed.sum() == count and not observed[expected == 0].any()


@given(strategies.integers(0, 2**32 - 1), strategies.integers(1, 5000))
def test_nothing_of_weight_zero_is_drawn(seed: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    weights = (rng.random((6, columns)) * (rng.random((6, columns)) < 0.02)).astype(np.float32)
    weights[:, rng.integers(columns)] = rng.random(6) + 0.1
    numbers = rng.choice([0.0, 0.5, 1 - 2**-53, *rng.random(3)], (6, depth_of(columns)))
    found = drawn_places(torch.from_numpy(weights), torch.from_numpy(numbers)).numpy()
    assert (weights[np.arange(6), found] > 0).all()


def test_rounding_of_logits_changes_next_to_no_draw() -> None:
    """The control, one running sum over all tokens, changes several."""
    generator, rows, size, changed, by_sum = torch.Generator().manual_seed(0), 250, 4000, 0, 0
    for first in range(0, 2000, rows):
        logits = torch.randn(rows, size, generator=generator) * 3
        both = logits, logits + torch.randn(rows, size, generator=generator) * 1e-5
        one, other = (draw(which, streams(first, rows), 1.0) for which in both)
        changed += int((one != other).sum())
        numbers = torch.rand(rows, 1, generator=generator, dtype=torch.float64)
        one, other = (torch.searchsorted(which.softmax(-1).double().cumsum(-1), numbers) for which in both)
        by_sum += int((one != other).sum())
    assert changed <= 1
    assert by_sum >= 3


def test_successive_draws_of_a_stream_are_independent() -> None:
    logits, own = torch.zeros(4000, 2), streams(3, 4000)
    first, second = (draw(logits, own, temperature=1.0).numpy() for _ in range(2))
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(4000)


def test_keys_of_different_samples_prompts_and_seeds_differ() -> None:
    keys = {tuple(draw_key(seed, ids, m)) for seed in (0, 1) for ids in ([1, 2], [2, 1], [1]) for m in (0, 1)}
    assert len(keys) == 12


@each("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_temperatures_are_refused(temperature: float) -> None:
    with pytest.raises(InvalidInputError, match="temperature must be a positive number"):
        draw(torch.zeros(1, 2), streams(0, 1), temperature)


@each("temperature", [1e-3, 1e-300, 5e-324])
def test_the_smallest_temperatures_take_the_best_token(temperature: float) -> None:
    logits = torch.randn(50, 30, generator=torch.Generator().manual_seed(0)) * 5
    assert torch.equal(draw(logits, streams(0, 50), temperature), logits.argmax(-1))


@each("name", ["n_samples", "batch_size", "max_new_tokens", "top_k"])
def test_impossible_decodings_are_refused(name: str) -> None:
    none: dict[str, Any] = {name: 0}
    with pytest.raises(InvalidInputError, match=f"'{name}' must be a whole number of at least 1, got 0"):
        AnswerSettings(**none)


def test_the_chosen_token_stands_first_and_counts_once() -> None:
    best, values = np.array([4, 7, 9]), np.array([-0.1, -2.0, -3.0])
    assert [part.tolist() for part in chosen_first(7, -2.0, best, values)] == [[7, 4, 9], [-2.0, -0.1, -3.0]]
    assert [part.tolist() for part in chosen_first(5, -9.0, best, values)] == [[5, 4, 7], [-9.0, -0.1, -2.0]]


def test_logits_held_do_not_grow_with_the_answer() -> None:
    stc = models.answering()
    held: list[int] = []

    def count(*_: Any) -> None:
        if len(held) in (2, 8):
            rows = (value for value in gc.get_objects() if _is_rows_of_logits(value, stc.clusters.vocabulary.size))
            held.append(sum({row.untyped_storage().data_ptr(): row.numel() for row in rows}.values()))
        else:
            held.append(0)

    handle = stc.model.register_forward_hook(count)
    sampled(stc, replace(DECODING, max_new_tokens=10), ids=prompts(stc)[2:3])
    handle.remove()
    assert len(held) > 8 and 0 < held[8] <= held[2]


def _is_rows_of_logits(value: Any, size: int) -> bool:
    return type(value) is torch.Tensor and value.dtype == torch.float32 and value.dim() > 1 and value.shape[-1] >= size
