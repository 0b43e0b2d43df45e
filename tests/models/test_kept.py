"""Nothing kept of a model outlives what it was made from: every change is followed by the numbers of a fresh model."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import semtoken as st
from semtoken.bench.statistics.decoding import LogProbabilities
from semtoken.decisions import Choice
from semtoken.errors import ModelError
from semtoken.models.base import Arrival, Decoding
from semtoken.models.transformers import TransformersBackend
from semtoken.models.transformers.identity import state_key
from tests import tiny
from tests.decisions.models import tokenizer as chat_tokenizer
from tests.models.plain_pass import (
    PROMPTS,
    SIZES,
    Written,
    backend_of,
    passes_of,
    tiny_model,
    with_adapter,
    with_wide_weights,
)

pytestmark = pytest.mark.usefixtures("own_cache")

STATE = "the capital of France is Paris , the capital of Japan is Tokyo , and a television set is a TV . " * 4
QUESTION = Choice("Where is it?", ["Oslo", "Paris", "Tokyo"], "place")


def new_weights(model: Any) -> None:
    model.load_state_dict(tiny_model("Llama", seed=77).state_dict())


def a_step_of_training(model: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=5.0)
    model(input_ids=torch.tensor([[5, 6, 7, 8]]), labels=torch.tensor([[5, 6, 7, 8]])).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def one_row_through_data(model: Any) -> None:
    model.get_input_embeddings().weight.data[7:60] += 0.5


def other_settings(model: Any) -> None:
    for layer in model.model.layers:
        layer.self_attn.scaling *= 3


def other_code(model: Any) -> None:
    layer, before = model.model.layers[0], model.model.layers[0].forward
    # A factor would leave the keys and values of the next layer as they are: a norm comes before them.
    layer.forward = lambda *args, **kwargs: before(*args, **kwargs) + 1.0


def a_steering_hook(model: Any) -> None:
    model.model.layers[0].register_forward_hook(lambda module, args, output: output + 1.0)


def another_rope(model: Any) -> None:
    model.model.rotary_emb.inv_freq.mul_(0.5)


def whole_matrices_through_data(model: Any) -> None:
    for weight in model.model.layers[1].mlp.parameters():
        weight.data += 0.2


CHANGES = [
    new_weights,
    a_step_of_training,
    one_row_through_data,
    whole_matrices_through_data,
    other_settings,
    other_code,
    a_steering_hook,
    another_rope,
]


def decided(backend: TransformersBackend) -> list[float]:
    [answer] = st.ScoredModel(backend).decide(STATE, [QUESTION])
    return [float(value) for value in answer.probabilities]


def joined(backend: TransformersBackend) -> list[list[float]]:
    seen, written = LogProbabilities(), Written()
    ids = [list(backend.tokenizer(STATE + prompt)["input_ids"]) for prompt in PROMPTS[:2]]
    waiting = [[Arrival(n, one, Decoding(max_new_tokens=3))] for n, one in enumerate(ids)]
    backend.generate_joining(lambda: waiting.pop() if waiting else [], [seen, written])
    return [[*map(float, seen.of(n)), *map(float, written.ids[n])] for n in range(2)]


def shared(backend: TransformersBackend) -> list[float]:
    prompts = [STATE + prompt for prompt in PROMPTS]
    seen = LogProbabilities()
    backend.generate(prompts, Decoding(max_new_tokens=3, share_prefix=True), [seen])
    return [float(value) for n in range(len(prompts)) for value in seen.of(n)]


ASKED = [decided, joined, shared]


@pytest.mark.parametrize(
    "pairs",
    [
        [*zip(CHANGES[1:], itertools.cycle(ASKED), strict=False)],
        pytest.param([*itertools.product(CHANGES, ASKED)], marks=pytest.mark.slow),
    ],
    ids=["each kind of change in one way", "every pair"],
)
def test_what_was_read_before_a_change_is_not_used_after_it(pairs: Iterable[tuple[Any, Any]]) -> None:
    for number, (change, asked) in enumerate(pairs):
        own, named = chat_tokenizer(), f"{change.__name__}, {asked.__name__}"
        model = tiny_model("Llama", max_position_embeddings=4096)
        used = TransformersBackend(model, own)
        before = asked(used)
        if number < len(ASKED):  # what is kept gives the same numbers
            np.testing.assert_allclose(np.ravel(asked(used)), np.ravel(before), atol=1e-5, err_msg=named)
        change(model)
        expected = asked(TransformersBackend(copy.deepcopy(model), own))
        assert not np.allclose(np.ravel(expected), np.ravel(before), atol=1e-3), f"{named}: the change is none"
        np.testing.assert_allclose(np.ravel(asked(used)), np.ravel(expected), atol=1e-4, err_msg=named)


def test_numbers_that_change_places_are_a_change() -> None:
    model = tiny_model("Llama")
    before, matrix = state_key(model), model.model.layers[0].self_attn.q_proj.weight.data
    matrix[0, 0], matrix[1, 1] = matrix[1, 1].clone(), matrix[0, 0].clone()
    assert state_key(model) != before


@pytest.mark.parametrize("length", [8, 3], ids=["another is being written", "the other has just ended"])
@pytest.mark.parametrize("change", [one_row_through_data, other_settings])
def test_a_prompt_that_joins_after_a_change_is_read_again(change: Callable[[Any], None], length: int) -> None:
    """Nobody asks between two steps whether the model is the same."""
    own, model = chat_tokenizer(), tiny_model("Llama", max_position_embeddings=4096)
    ids = list(own(STATE)["input_ids"])
    later = [*ids, *own("Oslo")["input_ids"]]

    def read(backend: TransformersBackend, meanwhile: Callable[[], None]) -> list[float]:
        seen, steps = LogProbabilities(), iter(range(100))

        def arrivals() -> list[Arrival]:
            step = next(steps)
            if step == 2:
                meanwhile()
                return [Arrival(1, later, Decoding(max_new_tokens=3))]
            return [Arrival(0, ids, Decoding(max_new_tokens=length))] if step == 0 else []

        backend.generate_joining(arrivals, [seen])
        return [float(value) for value in seen.of(1)]

    before = read(TransformersBackend(model, own), lambda: None)
    found = read(TransformersBackend(model, own), lambda: change(model))
    expected = read(TransformersBackend(copy.deepcopy(model), own), lambda: None)
    assert not np.allclose(before, expected, atol=1e-3)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("window", "longest"), [(None, [40, 3, 3, 30, 3]), (48, [40, 3, 3, 63, 47]), (8, [43, 43, 33, 63, 50])]
)
def test_a_beginning_is_read_on_from_the_last_one_where_its_cache_holds_it(
    window: int | None, longest: list[int]
) -> None:
    """The cache of a layer with a window may have lost what comes before. Of each call the longest pass is known."""
    model, own = tiny_model("Mistral", sliding_window=window), tiny.byte_level_bpe()
    ids = list(own(STATE)["input_ids"])
    used = TransformersBackend(model, own)
    assert used.proof.joined
    with passes_of(model) as passes:
        for length, most in zip((40, 40, 30, 60, 47), longest, strict=True):
            prompts = [[*ids[:length], *further] for further in ([5, 6], [7], [8, 9, 10])]
            seen, alone = LogProbabilities(), LogProbabilities()
            passes.clear()
            used.generate(prompts, Decoding(max_new_tokens=2, share_prefix=True), [seen])
            assert max(tokens for _, tokens in passes) == most
            TransformersBackend(model, own).generate(prompts, Decoding(max_new_tokens=2, batch_size=1), [alone])
            for answer in range(3):
                np.testing.assert_allclose(seen.of(answer), alone.of(answer), atol=1e-4)


@pytest.mark.parametrize("window", [None, 8, 256])
def test_a_shared_beginning_is_read_on_from_a_prompt_that_joined(window: int | None) -> None:
    model, own = tiny_model("Mistral", sliding_window=window, max_position_embeddings=4096), chat_tokenizer()
    used = TransformersBackend(model, own)
    joined(used)
    with passes_of(model) as passes:
        used._state = state_key(model)  # the hook looks, and changes nothing
        found = shared(used)
    length, most = len(own(STATE)["input_ids"]), max(tokens for _, tokens in passes)
    assert (most < 60 < length) if window != 8 else (most > length)
    np.testing.assert_allclose(found, shared(TransformersBackend(copy.deepcopy(model), own)), atol=1e-4)


def test_a_proof_is_dropped_after_a_write_through_data() -> None:
    backend = backend_of("Llama")
    backend.generate(PROMPTS, Decoding(max_new_tokens=1))
    known = backend.proof
    one_row_through_data(backend.model)
    backend.generate(PROMPTS, Decoding(max_new_tokens=1))
    assert backend.proof is not known and backend.proof.padded


def test_an_adapter_is_switched_off_and_on_and_scaled() -> None:
    own = chat_tokenizer()
    base = tiny_model("Llama", max_position_embeddings=4096)
    without = decided(TransformersBackend(copy.deepcopy(base), own))
    model = with_adapter(base, r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False).eval()
    model.add_adapter("other", model.peft_config["default"])
    model.eval()
    used = TransformersBackend(model, own)
    first = decided(used)
    model.set_adapter("other")
    second = decided(used)
    assert second == pytest.approx(decided(TransformersBackend(copy.deepcopy(model), own)), abs=1e-5)
    with model.disable_adapter():
        assert decided(used) == pytest.approx(without, abs=1e-5)
    model.set_adapter("default")
    assert decided(used) == pytest.approx(first, abs=1e-5)
    assert not np.allclose(first, second, atol=1e-3) and not np.allclose(first, without, atol=1e-3)


CODE = """
import transformers

class Own(transformers.LlamaForCausalLM):
    def forward(self, *args, **kwargs):
        kwargs.pop("return_dict", None)
        output = super().forward(*args, **kwargs)
        {line}
        return output
"""


def own_class(folder: Path, name: str, line: str) -> Any:
    """A class of the same name from a file of its own, as the modeling code of a checkpoint."""
    path = folder / f"{name}.py"
    path.write_text(CODE.format(line=line))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module.Own


def test_the_same_weights_with_other_code_are_another_model(tmp_path: Path) -> None:
    import transformers

    def made(kind: Any) -> TransformersBackend:
        return TransformersBackend(with_wide_weights(kind(transformers.LlamaConfig(**SIZES))), tiny.byte_level_bpe())

    right = made(own_class(tmp_path, "modeling_a", "pass"))
    assert st.ScoredModel(right).score(PROMPTS, ["Paris"] * 3)
    right.generate(PROMPTS, Decoding(max_new_tokens=2))
    looks_ahead = made(own_class(tmp_path, "modeling_b", "output.logits = output.logits + output.logits.sum(1, True)"))
    with pytest.raises(ModelError, match="changes with the tokens that follow"):
        st.ScoredModel(looks_ahead).score(PROMPTS, ["Paris"] * 3)
