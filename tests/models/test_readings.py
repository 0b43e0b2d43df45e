"""Observers read of a step, in all paths alike, whatever transformers' own pass over the whole text has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from semtoken.errors import BackendError
from semtoken.methods.observers.steps import ATTENTION, ENTROPY, LOGITS, Observer, Step, best, states
from semtoken.models.base import Arrival, Decoding, require_readings
from tests import tiny

torch = pytest.importorskip("torch")

DEPTHS = (0.2, 0.5, 1.0)
LENGTHS, LIMITS = (3, 11, 6), (7, 4, 5)


class AnyRoute(Observer):
    """Keeps all that can be read of every step."""

    reads = frozenset({ENTROPY, LOGITS, ATTENTION, best(4), *map(states, DEPTHS)})

    def __init__(self) -> None:
        self.seen: dict[int, list[dict[Any, Any]]] = {}
        self.tokens: dict[int, list[int]] = {}

    def observe(self, step: Step) -> None:
        low, high = step.entropies
        assert (low == high).all()
        found = step.best_of(4)
        for i, (answer, row) in enumerate(zip(step.answers, step.rows, strict=True)):
            kept: dict[Any, Any] = {depth: step.states[depth][row].numpy() for depth in DEPTHS}
            kept |= {"attention": step.attention[row].numpy(), "entropy": low[i], "best": found[i][1]}
            self.seen.setdefault(answer, []).append(kept)
            self.tokens.setdefault(answer, []).append(step.tokens[i])


def generated(backend: Any, prompts: Sequence[list[int]], **how: Any) -> AnyRoute:
    seen = AnyRoute()
    backend.generate(prompts, [Decoding(max_new_tokens=limit, **how) for limit in LIMITS], [seen])
    return seen


def generated_by_transformers(backend: Any, prompts: Sequence[list[int]]) -> AnyRoute:
    return generated(backend, prompts, options={"do_sample": False})


def sampled(backend: Any, prompts: Sequence[list[int]]) -> AnyRoute:
    """The second of two answers to each prompt."""
    seen = generated(backend, prompts, n=2, temperature=1.0, seed=1)
    seen.seen = {number: seen.seen[2 * number + 1] for number in range(len(prompts))}
    seen.tokens = {number: seen.tokens[2 * number + 1] for number in range(len(prompts))}
    return seen


def joined(backend: Any, prompts: Sequence[list[int]]) -> AnyRoute:
    """The last prompt comes two steps after the others."""
    seen, step = AnyRoute(), iter(range(100))

    def arrivals() -> list[Arrival]:
        now = next(step)
        come = {0: (0, 1), 2: (2,)}.get(now, ())
        return [Arrival(n, prompts[n], Decoding(max_new_tokens=LIMITS[n])) for n in come]

    backend.generate_joining(arrivals, [seen])
    return seen


def joined_in_pieces(backend: Any, prompts: Sequence[list[int]]) -> AnyRoute:
    """The same, with few tokens of a prompt between two steps."""
    from semtoken.models import pace as reading

    with pytest.MonkeyPatch.context() as patch:
        for limit in ("WHOLE", "FEWEST", "MOST"):
            patch.setattr(reading, limit, 2)
        return joined(backend, prompts)


def read(backend: Any, prompts: Sequence[list[int]]) -> AnyRoute:
    answers = generated(backend, prompts).tokens
    seen = AnyRoute()
    backend.read(prompts, [answers[n] for n in range(len(prompts))], [seen], batch_size=2, chunk_size=3)
    return seen


@pytest.fixture(scope="module")
def backend() -> Any:
    from semtoken.models.transformers import TransformersBackend

    model = tiny.llama(len(tiny.byte_level_bpe()))
    model.generation_config.eos_token_id = None
    return TransformersBackend(model, tiny.byte_level_bpe())


PATHS = [generated, generated_by_transformers, sampled, joined, joined_in_pieces, read]


@pytest.mark.parametrize("path", PATHS)
def test_readings_are_those_of_a_pass_over_the_whole_text(backend: Any, path: Any) -> None:
    random = np.random.default_rng(2)
    prompts = [random.integers(5, backend.vocabulary.size, length).tolist() for length in LENGTHS]
    before = backend.model.config._attn_implementation
    seen = path(backend, prompts)
    assert backend.model.config._attn_implementation == before
    assert set(seen.seen) == {0, 1, 2}
    model = backend.model
    model.set_attn_implementation("eager")
    for n, prompt in enumerate(prompts):
        assert len(seen.tokens[n]) == LIMITS[n]
        with torch.no_grad():
            whole = model(torch.tensor([prompt + seen.tokens[n]]), output_attentions=True, output_hidden_states=True)
        logs = whole.logits[0, :, : backend.vocabulary.size].double().log_softmax(-1).numpy()
        layers = len(whole.hidden_states)
        for t, step in enumerate(seen.seen[n]):
            at = len(prompt) + t - 1  # where the token is chosen
            attended = torch.stack([one[0, :, at, at] for one in whole.attentions]).numpy()
            np.testing.assert_allclose(step["attention"], attended, atol=1e-5)
            for depth in DEPTHS:
                entry = min(max(int(depth * layers), 1), layers - 1)
                if entry < layers - 1:  # the last entry has passed the final norm, too
                    np.testing.assert_allclose(step[depth], whole.hidden_states[entry][0, at].numpy(), atol=1e-4)
            assert step["entropy"] == pytest.approx(-(np.exp(logs[at]) * logs[at]).sum(), abs=1e-5)
            np.testing.assert_allclose(step["best"], np.sort(logs[at])[::-1][:4], atol=1e-5)
    model.set_attn_implementation(before)


class OnlyRows:
    """A backend that gives rows and nothing from inside."""

    name = "rows"
    model = "a model"
    gives = frozenset({"log_probability", "entropy", "best", "row", "logits"})


def test_what_a_backend_cannot_give_is_refused_in_words() -> None:
    with pytest.raises(BackendError, match="rows backend does not give attention weights and hidden states of str"):
        require_readings(OnlyRows(), [AnyRoute()])  # type: ignore[arg-type]
    with pytest.raises(BackendError, match="transformers gives it, for models whose attention"):
        require_readings(OnlyRows(), [AnyRoute()])  # type: ignore[arg-type]
    require_readings(OnlyRows(), [Observer()])  # type: ignore[arg-type]


@pytest.mark.parametrize("path", PATHS)
def test_it_is_refused_before_the_first_step_in_every_path(path: Any) -> None:
    from semtoken.models.transformers import TransformersBackend

    model = tiny.llama(len(tiny.byte_level_bpe()))
    backend = TransformersBackend(model, tiny.byte_level_bpe())
    answers = [[7, 8], [9], [10]]
    model.model.layers = torch.nn.Sequential(*model.model.layers)  # no list of layers any more
    passes: list[int] = []
    model.register_forward_pre_hook(lambda *_: passes.append(1))
    with pytest.raises(BackendError, match="transformers backend does not give attention weights and hidden states"):
        if path is read:
            backend.read([[5], [6], [7]], answers, [AnyRoute()])
        else:
            path(backend, [[5], [6], [7]])
    assert not passes
