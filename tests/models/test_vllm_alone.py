"""The vLLM backend over a stand-in for its engine, which reads the embedded model by transformers' own forward pass.

vLLM itself is in tests/engines. Here it is as far as the backend sees it: lists of log-probabilities, in the flat form.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from semtoken import ScoredModel
from semtoken.errors import InsufficientMemory, InvalidInputError, ModelError
from semtoken.models.base import Decoding
from semtoken.models.prompt_ids import draw_key
from semtoken.models.vllm.model import VLLMBackend, load_vllm
from semtoken.models.vllm.outputs import BYTES_PER_NUMBER
from semtoken.support.almanac import PROMPT
from tests.models.test_vllm_outputs import flat
from tests.rows import each
from tests.stand_ins import CLOSE, Fields, assert_same, standing_in

NAMES = ("France", "Peru", "Norway", "Japan", "Nigeria")
PROMPTS = [PROMPT.format(question=f"What is the capital of {name}?") for name in NAMES]


class Engine:
    """What the backend asks of `vllm.LLM`, which keeps what it was asked for."""

    def __init__(self, stc: ScoredModel, **config: Any) -> None:
        self.stc = stc
        self.asked: list[tuple[list[list[int]], list[Any]]] = []
        given = {"logprobs_mode": "raw_logprobs", "max_model_len": 400, "max_logprobs": -1, "model": "almanac"}
        self.model_config = Fields(**given | {"revision": None, "get_vocab_size": self.columns} | config)

    def columns(self) -> int:
        return int(self.stc.model.config.vocab_size)

    def get_tokenizer(self) -> Any:
        return self.stc.tokenizer

    def generate(self, inputs: list[Any], params: Any, *, use_tqdm: bool) -> list[Any]:
        assert not use_tqdm
        all_params = params if isinstance(params, list) else [params] * len(inputs)
        self.asked.append(([one["prompt_token_ids"] for one in inputs], all_params))
        return [self._answer(one["prompt_token_ids"], each) for one, each in zip(inputs, all_params, strict=True)]

    def _rows(self, ids: Sequence[int]) -> Any:
        with torch.no_grad():
            return self.stc.model(torch.tensor([ids])).logits[0].double().log_softmax(-1).numpy()

    @staticmethod
    def _listed(row: Any, token: int, k: int) -> tuple[list[int], list[float]]:
        """The chosen token, and then the best ones, of which -1 asks for all."""
        ids = [token, *row.argsort()[::-1][: len(row) if k == -1 else k].tolist()]
        return ids, row[ids].tolist()

    def _answer(self, prompt: list[int], params: Any) -> Any:
        if getattr(params, "prompt_logprobs", None) is not None:
            rows = self._rows(prompt)
            known = zip(rows, prompt[1:], strict=False)
            lists: list[tuple[list[int], list[float]]] = [
                ([], []),
                *(self._listed(row, token, params.prompt_logprobs) for row, token in known),
            ]
            return Fields(prompt_logprobs=flat(lists), outputs=[])
        ids: list[int] = []
        lists, reason = [], "length"
        stop: str | int | None = None
        ends = [*self.stc.model.generation_config.eos_token_id, *getattr(params, "stop_token_ids", ())]
        for _ in range(params.max_tokens):
            row = self._rows(prompt + ids)[-1]
            ids.append(int(row.argmax()))
            lists.append(self._listed(row, ids[-1], params.logprobs))
            text = self.stc.tokenizer.decode(ids)
            found = [one for one in getattr(params, "stop", ()) if one in text]
            if ids[-1] in ends or found:
                reason, stop = "stop", found[0] if found else ids[-1]
                break
        answer = Fields(token_ids=tuple(ids), logprobs=flat(lists), finish_reason=reason, stop_reason=stop)
        return Fields(outputs=[answer], request_id="0")


@dataclass
class EngineArgs:
    """The options that vLLM knows."""

    model: str = ""
    dtype: str = ""
    max_model_len: int = 0


@pytest.fixture(scope="module", autouse=True)
def vllm() -> Iterator[ModuleType]:
    names = {"SamplingParams": Fields, "__version__": "0.32.0"}
    with standing_in(vllm=names, vllm__engine__arg_utils={"EngineArgs": EngineArgs}):
        yield sys.modules["vllm"]


def both(almanac: ScoredModel, **config: Any) -> tuple[Engine, ScoredModel]:
    engine = Engine(almanac, **config)
    return engine, ScoredModel(VLLMBackend(engine))


@each("limit", [-1, 8192])
def test_whole_vocabularies_give_the_scores_of_transformers(almanac: ScoredModel, limit: int) -> None:
    _, stc = both(almanac, max_logprobs=limit)
    for options in ({"max_new_tokens": 3}, {"max_new_tokens": 8, "stop_at_newline": True}, {"stop_strings": ("a",)}):
        given: dict[str, Any] = {"max_new_tokens": 6} | options
        assert_same(stc.generate(PROMPTS[:3], **given), almanac.generate(PROMPTS[:3], **given))
    replies = ["Paris", "", "Oslo\n"]
    assert_same(stc.score(PROMPTS[:3], replies), almanac.score(PROMPTS[:3], replies))
    assert stc.generate(PROMPTS[0], 2)[0].distribution == "raw"


@each("limit", [20, 8191])
def test_the_best_tokens_give_intervals_around_them(almanac: ScoredModel, limit: int) -> None:
    engine, stc = both(almanac, max_logprobs=limit, logprobs_mode="processed_logprobs")
    replies = ["Paris", "", "Oslo\n"]
    pairs = [
        (stc.generate(PROMPTS[:3], 6), almanac.generate(PROMPTS[:3], 6)),
        (stc.score(PROMPTS[:3], replies), almanac.score(PROMPTS[:3], replies)),
    ]
    for found, expected in pairs:
        for one, other in zip(found, expected, strict=True):
            low, high = one.sequence_uncertainty_interval
            assert low - CLOSE <= other.sequence_uncertainty <= high + CLOSE and one.distribution == "processed"
            assert [token.id for token in one.tokens] == other.token_ids
    assert any(one.sequence_uncertainty_interval[0] < one.sequence_uncertainty_interval[1] for one in pairs[0][0])
    (_, params), (_, [reading, _]) = engine.asked
    assert {one.logprobs for one in params} == {20} and (reading.prompt_logprobs, reading.max_tokens) == (20, 1)


def test_a_request_has_what_is_asked_for_and_no_more(almanac: ScoredModel) -> None:
    engine = Engine(almanac)
    backend = VLLMBackend(engine)
    plain = {"temperature": 0.0, "max_tokens": 2, "detokenize": False, "flat_logprobs": True, "logprobs": 0}
    sampling: dict[str, Any] = {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.1}
    backend.generate(PROMPTS[:1], Decoding(2, seed=3))
    options = {"presence_penalty": 0.5}
    backend.generate(PROMPTS[:1], Decoding(2, stop_strings=("zz",), stop_at_newline=True, options=options))
    backend.generate(PROMPTS[:2], Decoding(2, n=2, seed=3, **sampling))
    (_, [greedy]), (_, [stopped]), (asked, sampled) = engine.asked
    assert vars(greedy) == plain
    newlines = [token for token, text in enumerate(backend.vocabulary.texts) if "\n" in text]
    more = {"detokenize": True, "stop": ["zz"], "stop_token_ids": newlines, "presence_penalty": 0.5}
    assert vars(stopped) == plain | more
    prompts = [almanac.tokenizer(prompt)["input_ids"] for prompt in PROMPTS[:2]]
    assert asked == [prompts[0], prompts[0], prompts[1], prompts[1]]
    seeds = [int(np.random.default_rng(draw_key(3, ids, n)).integers(2**63)) for ids in prompts for n in range(2)]
    assert [vars(one) for one in sampled] == [plain | sampling | {"seed": seed} for seed in seeds]
    assert len(set(seeds)) == 4


def test_groups_fit_into_the_memory_budget(almanac: ScoredModel) -> None:
    engine = Engine(almanac)
    one = 4 * engine.columns() * BYTES_PER_NUMBER
    small = ScoredModel(VLLMBackend(engine, memory_budget=2 * one))
    assert_same(small.generate(PROMPTS, 4), almanac.generate(PROMPTS, 4))
    assert [len(prompts) for prompts, _ in engine.asked] == [2, 2, 1]
    engine.asked.clear()
    assert_same(
        small.score(PROMPTS[:2], ["Tokyo is a city", "no"]), almanac.score(PROMPTS[:2], ["Tokyo is a city", "no"])
    )
    assert {len(prompts) for prompts, _ in engine.asked[:-1]} <= {8}
    with pytest.raises(InsufficientMemory, match="memory_budget"):
        ScoredModel(VLLMBackend(engine, memory_budget=one - 1)).generate(PROMPTS[:1], 4)


def test_a_prompt_may_be_as_long_as_the_engine_reads(almanac: ScoredModel) -> None:
    length = len(almanac.tokenizer(PROMPTS[0])["input_ids"])
    for most, fits in ((length, True), (length - 1, False)):
        _, stc = both(almanac, max_model_len=most)
        assert stc.backend.max_length == most
        if fits:
            assert stc.generate(PROMPTS[:1], 1)
        else:
            with pytest.raises(InvalidInputError, match=f"Prompt 0 has {length} tokens; the model reads {most} "):
                stc.backend.check(PROMPTS[:1], Decoding(1))


@each(
    ("limit", "mode", "gives"),
    [
        (-1, "raw_logits", {"log_probability", "entropy", "best", "row", "logits"}),
        (8192, "raw_logprobs", {"log_probability", "entropy", "best", "row", "logits"}),
        (8191, "processed_logprobs", {"log_probability", "entropy", "best", "row"}),
        (20, "raw_logits", {"log_probability"}),
    ],
)
def test_an_engine_gives_what_its_settings_let_it(almanac: ScoredModel, limit: int, mode: str, gives: set[str]) -> None:
    backend = VLLMBackend(Engine(almanac, max_logprobs=limit, logprobs_mode=mode))
    assert (backend.gives, backend.distribution) == (gives, mode.partition("_")[0])
    assert (backend.top_k, backend.name) == (20, "vllm") and backend.memory_budget == 2**31


def test_an_engine_is_started_for_whole_vocabularies(vllm: Any, almanac: ScoredModel) -> None:
    started: list[dict[str, Any]] = []

    def start(**options: Any) -> Engine:
        started.append(options)
        if "broken" in options["model"]:
            raise ValueError("no such model\nmore")
        return Engine(almanac)

    vllm.LLM = start
    backend = load_vllm("a model", max_model_len=64)
    plain: dict[str, Any] = {"dtype": "auto", "revision": None, "trust_remote_code": False, "model": "a model"}
    plain |= {"max_logprobs": -1, "logprobs_mode": "raw_logprobs", "enable_chunked_prefill": False}
    assert isinstance(backend, VLLMBackend) and started == [plain | {"max_model_len": 64}]
    load_vllm("a model", dtype="float32", revision="r", trust_remote_code=True)
    assert started[1] == plain | {"dtype": "float32", "revision": "r", "trust_remote_code": True}
    for options, message in (({"device": "cpu"}, "leave the device out"), ({"max_len": 1}, "'max_len' is no option")):
        with pytest.raises(InvalidInputError, match=message):
            load_vllm("a model", **options)
    with pytest.raises(ModelError, match="vLLM cannot load 'broken': no such model"):
        load_vllm("broken")
