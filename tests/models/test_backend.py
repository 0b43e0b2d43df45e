"""The interface that all backends share: shared prefixes, seeds, one decoding for each prompt, options of loading."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import GenerationConfig, PreTrainedTokenizerFast

import semtoken as st
from semtoken.bench.statistics.decoding import LogProbabilities
from semtoken.errors import InvalidInputError, ModelError, SemtokenError
from semtoken.methods.observers.steps import Completion, Observer, Step
from semtoken.models import load_backend
from semtoken.models.base import Backend, Decoding
from semtoken.models.prompt_ids import end_ids
from semtoken.models.transformers import TransformersBackend
from semtoken.models.transformers.caches import SHORTEST_PREFIX, shared_beginning
from semtoken.support.almanac import almanac_path, load_questions
from tests.models.plain_pass import generated, passes_of
from tests.models.test_transformers import PROMPTS, random_clusters, scorer

EXAMPLES = "Question: Which city is the capital of France?\nAnswer: Paris\n\n"


@pytest.fixture(scope="module")
def almanac() -> TransformersBackend:
    backend = load_backend("transformers", "almanac", device="cpu")
    assert isinstance(backend, TransformersBackend)
    return backend


def few_shot(count: int) -> list[str]:
    return [EXAMPLES * 2 + question.prompt() for question in load_questions("dev")[:count]]


@pytest.mark.parametrize("sampled", [pytest.param(False, marks=pytest.mark.slow), True], ids=["greedy", "samples"])
def test_a_shared_prefix_is_read_once_and_changes_nothing(almanac: TransformersBackend, sampled: bool) -> None:
    almanac = TransformersBackend(almanac.model, almanac.tokenizer)  # one that has read nothing yet
    prompts = few_shot(8)
    decoding = Decoding(max_new_tokens=6, stop_at_newline=True, batch_size=4)
    if sampled:
        decoding = replace(decoding, n=3, temperature=0.8, seed=5)
    found, passes = {}, dict[bool, list[tuple[int, ...]]]()
    for shared in (False, True):
        log_probs = LogProbabilities()
        with passes_of(almanac.model) as passes[shared]:
            answers = almanac.generate(prompts, replace(decoding, share_prefix=shared), [log_probs])
        found[shared] = (answers, log_probs)
    (plain, plain_probs), (shared_answers, shared_probs) = found[False], found[True]
    assert [one.token_ids for one in plain] == [one.token_ids for one in shared_answers]
    for answer in range(len(plain)):
        np.testing.assert_allclose(shared_probs.of(answer), plain_probs.of(answer), atol=1e-4)
    beginning = len(shared_beginning([almanac.tokenizer(prompt)["input_ids"] for prompt in prompts]))
    assert beginning >= SHORTEST_PREFIX
    assert passes[True][0] == (1, beginning)  # once, as one row
    assert max(columns for _, columns in passes[True][1:]) < beginning
    assert sum(r * c for r, c in passes[True]) < 0.7 * sum(r * c for r, c in passes[False])


def test_a_backend_is_told_from_a_model(almanac: TransformersBackend) -> None:
    assert isinstance(almanac, Backend)
    assert not isinstance(almanac.model, Backend)
    stc = st.ScoredModel(almanac, clusters="almanac")
    assert stc.backend is almanac and stc.model is almanac.model
    with pytest.raises(InvalidInputError, match="brings its own tokenizer"):
        st.ScoredModel(almanac, almanac.tokenizer)


def test_each_prompt_may_have_its_own_decoding() -> None:
    backend = scorer().backend
    limits = [3, 9, 5]
    decodings = [Decoding(max_new_tokens=limit, batch_size=3) for limit in limits]
    decodings[1] = replace(decodings[1], temperature=1.5, seed=8)
    together = backend.generate(PROMPTS, decodings)
    assert [len(one.token_ids) for one in together] == limits
    for prompt, decoding, one in zip(PROMPTS, decodings, together, strict=True):
        assert backend.generate([prompt], decoding) == [one]  # whatever else is in the batch
    assert backend.generate(PROMPTS[1:2], replace(decodings[1], seed=9)) != together[1:2]
    samples = backend.generate(PROMPTS[1:2], replace(decodings[1], n=3))
    assert len({tuple(one.token_ids) for one in samples}) == 3 and samples[0] == together[1]


def test_top_p_next_to_nothing_is_greedy() -> None:
    backend = scorer().backend
    greedy = backend.generate(PROMPTS, Decoding(max_new_tokens=8))
    for narrow in ({"top_p": 1e-6}, {"top_k": 1}, {"min_p": 1.0}):
        assert backend.generate(PROMPTS, Decoding(max_new_tokens=8, temperature=2.0, seed=1, **narrow)) == greedy


def test_an_answer_says_whether_the_limit_cut_it_off() -> None:
    stc = scorer()
    long = stc.generate(PROMPTS[0], max_new_tokens=8)[0]
    assert long.truncated is True
    ended = stc.generate(PROMPTS[0], max_new_tokens=8, eos_token_id=long.token_ids[3])[0]
    assert ended.token_ids == long.token_ids[:4] and ended.truncated is False
    assert stc.generate(PROMPTS[0], max_new_tokens=4, eos_token_id=long.token_ids[3])[0].truncated is False
    assert stc.score(PROMPTS[0], long.token_ids)[0].truncated is None


class Ends(Observer):
    """Ends every answer after its third token, and keeps their completions."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.finished: list[tuple[int, Completion]] = []

    def observe(self, step: Step) -> list[int]:
        for answer in step.answers:
            self.seen[answer] = self.seen.get(answer, 0) + 1
        return [answer for answer in step.answers if self.seen[answer] == 3]

    def finish(self, answer: int, completion: Completion) -> None:
        self.finished.append((answer, completion))


def test_an_observer_ends_answers_and_is_told_of_their_end() -> None:
    backend = scorer().backend
    whole = backend.generate(PROMPTS, Decoding(max_new_tokens=10, batch_size=2))
    ends = Ends()
    cut = backend.generate(PROMPTS, Decoding(max_new_tokens=10, batch_size=2), [ends])
    assert [one.token_ids for one in cut] == [one.token_ids[:3] for one in whole]
    assert sorted(answer for answer, _ in ends.finished) == [0, 1, 2]
    assert ends.seen == {0: 3, 1: 3, 2: 3}


class TestLoading:
    def test_options_reach_transformers(self) -> None:
        stc = st.ScoredModel.from_pretrained("almanac", attn_implementation="eager", dtype="bfloat16", device="cpu")
        assert stc.model.config._attn_implementation == "eager"
        assert stc.model.dtype == torch.bfloat16
        mapped = st.ScoredModel.from_pretrained("almanac", device_map={"": "cpu"})
        assert mapped.generate("What is the capital of Peru?", 2)[0].tokens

    @pytest.mark.parametrize(
        ("name", "hint"),
        [("atn_implementation", r" \(did you mean 'attn_implementation'\?\)"), ("presett", ""), ("load_in_3bit", "")],
    )
    def test_unknown_options_are_refused_before_weights_are_looked_for(
        self, name: str, hint: str, tmp_path: Path
    ) -> None:
        bare = shutil.copytree(almanac_path(), tmp_path / "bare", ignore=shutil.ignore_patterns("*.safetensors"))
        with pytest.raises(ModelError, match=r"no file named model\.safetensors"):
            st.ScoredModel.from_pretrained(bare)
        for folder in ("almanac", bare):
            options: dict[str, Any] = {name: 1}
            with pytest.raises(InvalidInputError, match=f"'{name}' is no option.*of the model{hint}\\.$"):
                st.ScoredModel.from_pretrained(folder, **options)

    def test_attributes_of_the_configuration_are_options(self) -> None:
        stc = st.ScoredModel.from_pretrained("almanac", rms_norm_eps=0.25)
        assert stc.model.config.rms_norm_eps == 0.25

    def test_devices_that_are_not_there(self) -> None:
        with pytest.raises(ModelError, match="torch can put nothing there"):
            st.ScoredModel.from_pretrained("almanac", device="abacus")
        if not torch.cuda.is_available():
            with pytest.raises(ModelError, match=r"'cuda': torch can put nothing there\. It sees 0 CUDA"):
                st.ScoredModel.from_pretrained("almanac", device="cuda")
        with pytest.raises(InvalidInputError, match="either device or device_map"):
            st.ScoredModel.from_pretrained("almanac", device="cpu", device_map="auto")

    def test_backends_are_named(self) -> None:
        with pytest.raises(InvalidInputError, match="'transformers', 'vllm', 'llama-cpp'"):
            load_backend("abacus")

    def test_clusters_are_made_when_they_are_needed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stc = scorer()
        made: list[Any] = []

        def make(progress: Any = None) -> st.TokenClusters:
            made.append(progress)
            return random_clusters(stc.tokenizer)

        paper = st.ScoredModel(stc.model, stc.tokenizer, stc.clusters, preset="paper")
        for preset in ("default", "paper"):
            lazy = st.ScoredModel(stc.model, stc.tokenizer, preset=preset)
            monkeypatch.setattr(lazy.backend, "default_clusters", make)
            lazy.backend.generate(PROMPTS, Decoding(max_new_tokens=2))
            assert not made
            found = lazy.generate(PROMPTS, 2)
            assert len(made) == (preset == "paper")  # no preset but `paper` reads them
        assert found == paper.generate(PROMPTS, 2)

    def test_a_recorder_takes_a_path(self, tmp_path: Any) -> None:
        stc = scorer(padding=0)
        stc.clusters.save_pretrained(tmp_path / "clusters")
        recorder = st.Recorder(tmp_path / "clusters")
        sequences = generated(stc.model, stc.tokenizer, PROMPTS[0], recorder, max_new_tokens=5, pad_token_id=0)
        assert recorder.answers(sequences)[0].token_ids == stc.generate(PROMPTS[0], 5)[0].token_ids


@pytest.mark.parametrize(
    ("settings", "expected"),
    [(None, (2,)), ({}, (2,)), ({"eos_token_id": 5}, (5,)), ({"eos_token_id": [7, 2, 5]}, (2, 5, 7))],
)
def test_the_tokens_that_end_an_answer(settings: dict[str, Any] | None, expected: tuple[int, ...]) -> None:
    """They come from the generation settings, as for transformers, the tokenizer's first; else from the tokenizer."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"a": 0, "b": 1, "end": 2})), eos_token="end"
    )
    model = None if settings is None else SimpleNamespace(generation_config=GenerationConfig(**settings))
    assert end_ids(model, tokenizer) == expected


@pytest.mark.parametrize(
    "prompts",
    [b"x", [b"abc"], [True, False], [276, 2.7], [276, "7"], [276, None], [[276], [6.5]], [276, -1], [[276, 8192]]],
    ids=repr,
)
def test_what_is_no_token_id_gives_no_number(almanac: TransformersBackend, prompts: Any) -> None:
    """Bytes and truth values are no ids, none is rounded, and none that the model cannot read reaches it."""
    scored = st.ScoredModel(almanac)
    with pytest.raises(SemtokenError, match=r"token ids|token_ids|out of range|must be a list"):
        scored.generate(prompts, 2)
    responses = prompts if isinstance(prompts, list) and isinstance(prompts[0], list) else [prompts]
    with pytest.raises(SemtokenError, match=r"token ids|token_ids|out of range"):
        scored.score(["Which city is it?"] * len(responses), responses)


def test_a_text_that_is_too_long_with_its_response(almanac: TransformersBackend) -> None:
    """The prompt itself is short: the message says that both count."""
    with pytest.raises(
        InvalidInputError,
        match=r"Prompt 0 and its response, without the last token, have [\d,]+ tokens; the model reads 512",
    ):
        st.ScoredModel(almanac).score("Which city is it?", " Oslo" * 600)


def test_an_empty_stop_text_and_no_chunk_are_refused(almanac: TransformersBackend) -> None:
    """The one would end every answer at its first token, the other reads no token at a time."""
    scored = st.ScoredModel(almanac)
    with pytest.raises(InvalidInputError, match="empty text in stop_strings"):
        scored.generate("Which city is it?", 2, stop_strings=["x", ""])
    for size in (0, -3, 1.5):
        with pytest.raises(InvalidInputError, match="chunk_size"):
            scored.score("Which city is it?", "Oslo", chunk_size=size)
