"""The recorder knows some things of a generation and others not: numbers checked against plain passes of the model."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, LogitsProcessor, StoppingCriteria

import semtoken as st
from semtoken.errors import BackendError, InvalidInputError
from semtoken.support.almanac import load_questions
from tests.models import plain_pass
from tests.rows import each

PROMPTS = [question.prompt() for question in load_questions("dev")[:3]]
TOKENS = 8


@pytest.fixture(scope="module")
def almanac() -> st.ScoredModel:
    return st.ScoredModel.from_pretrained("almanac", dtype="float32")


@pytest.fixture
def stc(almanac: st.ScoredModel) -> Iterator[st.ScoredModel]:
    """The model, whose settings a test may change."""
    settings = copy.deepcopy(almanac.model.generation_config)
    yield almanac
    almanac.model.generation_config = settings


def inputs(stc: st.ScoredModel, prompts: list[str]) -> Any:
    return stc.tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left", return_token_type_ids=False)


def generated(stc: st.ScoredModel, *processors: Any, prompts: list[str] = PROMPTS, **options: Any) -> Any:
    length = {} if "generation_config" in options else {"max_new_tokens": TOKENS}
    return plain_pass.generated(stc.model, stc.tokenizer, prompts, *processors, **length | options)


@cache
def plain_log_confidence(
    model: Any, clusters: st.TokenClusters, before: tuple[int, ...], ids: tuple[int, ...]
) -> float:
    """The score of an answer from one pass of the model over prompt and answer, alone and without padding."""
    with torch.no_grad():
        logits = model(torch.tensor([[*before, *ids]])).logits[0, len(before) - 1 : -1]
    return st.score_logits(logits, ids, clusters).log_confidence


def assert_right(stc: st.ScoredModel, results: list[st.ScoredAnswer], prompts: list[str] = PROMPTS) -> None:
    for result, prompt in zip(results, prompts, strict=True):
        texts = tuple(stc.tokenizer(prompt)["input_ids"]), tuple(result.token_ids)
        expected = plain_log_confidence(stc.model, stc.clusters, *texts)
        assert result.log_confidence == pytest.approx(expected, abs=2e-4)


@pytest.fixture(scope="module")
def newline(almanac: st.ScoredModel) -> int:
    [token] = almanac.tokenizer("\n", add_special_tokens=False)["input_ids"][-1:]
    assert almanac.clusters.vocabulary.texts[token] == "\n"
    return int(token)


def lines(stc: st.ScoredModel, sequences: Any, end: int) -> list[list[int]]:
    """The tokens that were written up to the first newline."""
    start = inputs(stc, PROMPTS)["input_ids"].shape[1]
    rows = [row[start:] for row in sequences.tolist()]
    return [row[: row.index(end) + 1] if end in row else row for row in rows]


def test_generates_own_end_need_not_be_told(stc: st.ScoredModel, newline: int) -> None:
    end = stc.tokenizer.eos_token_id
    for pad, told in ((stc.tokenizer.pad_token_id, None), (end, end), (newline, None), (5, end)):
        recorder = st.Recorder(stc.clusters, eos_token_id=told)
        sequences = generated(stc, recorder, eos_token_id=newline, pad_token_id=pad)
        results = recorder.answers(sequences)
        assert [list(result.token_ids) for result in results] == lines(stc, sequences, newline)
        assert len({len(result.token_ids) for result in results}) > 1  # some were padded
        assert {result.distribution for result in results} == {"raw"}
        assert not any(flag.code == "unknown_end" for result in results for flag in result.flags)
        assert_right(stc, results)


class AfterTokens(StoppingCriteria):
    """Ends each answer after another number of tokens."""

    def __init__(self, start: int) -> None:
        self.start = start

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        return torch.tensor([input_ids.shape[1] - self.start > 2 + row % 3 for row in range(len(input_ids))])


def test_ends_of_any_kind_are_known(stc: st.ScoredModel) -> None:
    recorder = st.Recorder(stc.clusters)
    start = inputs(stc, PROMPTS)["input_ids"].shape[1]
    end = stc.tokenizer.eos_token_id
    sequences = generated(stc, recorder, stopping_criteria=[AfterTokens(start)], eos_token_id=end, pad_token_id=end)
    results = recorder.answers(sequences)
    limits = [min(3 + row % 3, len(line)) for row, line in enumerate(lines(stc, sequences, end))]
    assert [len(result.token_ids) for result in results] == limits
    assert_right(stc, results)
    sequences = generated(stc, recorder, stop_strings=["\n"], tokenizer=stc.tokenizer, pad_token_id=end)
    results = recorder.answers(sequences)
    assert all("\n" not in result.text[:-1] for result in results)
    assert_right(stc, results)


WAYS = ("argument", "settings of the model", "generation_config")
CHANGES: tuple[dict[str, Any], ...] = (
    {"repetition_penalty": 1.7},
    {"sequence_bias": {(30,): 5.0, (40, 41): -3.0}},
    {"guidance_scale": 1.8},
    {"no_repeat_ngram_size": 2},
    {"suppress_tokens": [30, 31]},
    {"min_new_tokens": 3},
)
"""Settings that change logits; each is given in one way, and the first of them in all."""


@pytest.mark.parametrize(
    ("settings", "by"),
    [
        *zip(CHANGES, itertools.cycle(WAYS), strict=False),
        *(pytest.param(CHANGES[0], by, marks=pytest.mark.slow) for by in WAYS[1:]),
    ],
    ids=lambda one: one if isinstance(one, str) else next(iter(one)),
)
def test_changed_logits_are_said_to_be_and_watching_sees_the_models_own(
    stc: st.ScoredModel, settings: dict[str, Any], by: str
) -> None:
    options: dict[str, Any] = dict(settings) if by == "argument" else {}
    if by == "settings of the model":
        for name, value in settings.items():
            setattr(stc.model.generation_config, name, value)
    if by == "generation_config":
        ids = {"eos_token_id": stc.tokenizer.eos_token_id, "pad_token_id": stc.tokenizer.pad_token_id}
        options = {"generation_config": GenerationConfig(**ids, **settings, max_new_tokens=TOKENS, do_sample=False)}
    recorder = st.Recorder(stc.clusters)
    results = recorder.answers(generated(stc, recorder, **options))
    assert {result.distribution for result in results} == {"processed"}
    with recorder.watching(stc.model):
        results = recorder.answers(generated(stc, recorder, **options))
    assert {result.distribution for result in results} == {"raw"}
    assert_right(stc, results)
    own = stc.generate(PROMPTS, TOKENS, **options)
    assert {result.distribution for result in own} == {"raw"}
    assert_right(stc, own)
    assert [one.token_ids for one in own] == [one.token_ids for one in results]


@pytest.mark.parametrize("cached", [False, True])
def test_guidance_without_a_cache(stc: st.ScoredModel, cached: bool) -> None:
    options: dict[str, Any] = {"guidance_scale": 2.5, "use_cache": cached}
    assert_right(stc, stc.generate(PROMPTS, 8, **options))
    recorder = st.Recorder(stc.clusters)
    with recorder.watching(stc.model):
        stc.model(**inputs(stc, PROMPTS[:1]))  # a pass before it is none of the generation's
        assert_right(stc, recorder.answers(generated(stc, recorder, max_new_tokens=8, **options)))


def test_sampling_comes_later(stc: st.ScoredModel) -> None:
    recorder = st.Recorder(stc.clusters)
    torch.manual_seed(3)
    results = recorder.answers(generated(stc, recorder, do_sample=True, temperature=2.0, top_k=50, top_p=0.9))
    assert {result.distribution for result in results} == {"raw"}
    assert_right(stc, results)


class Lower(LogitsProcessor):
    """Changes logits without a trace of minus infinity."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        return scores * 0.5


def test_processors_of_the_caller(stc: st.ScoredModel) -> None:
    recorder = st.Recorder(stc.clusters)
    [*after] = recorder.answers(generated(stc, recorder, Lower()))
    assert {result.distribution for result in after} == {"raw"}
    assert_right(stc, after)
    for processors in ([Lower(), recorder], [Lower(), Lower(), recorder]):
        assert {one.distribution for one in recorder.answers(generated(stc, *processors))} == {"processed"}


@each("rows", [1, 3])
@each("in_place", [False, True])
@each("back", [1, 2, 5])
def test_an_edited_token_is_noticed_at_once(stc: st.ScoredModel, rows: int, in_place: bool, back: int) -> None:
    recorder = st.Recorder(stc.clusters)
    ids = torch.randint(5, 200, (rows, 12), generator=torch.Generator().manual_seed(0))
    logits = torch.zeros(rows, stc.clusters.vocabulary.size)
    for width in range(4, 10):
        recorder(ids[:, :width] if in_place else ids[:, :width].clone(), logits)
    ids[0, 9 - back] += 1
    with pytest.raises(BackendError, match="edited"):
        recorder(ids[:, :10], logits)
    with pytest.raises(BackendError, match="not those that were recorded"):
        recorder.answers(ids[:, :10])


class TestALoopOfOnesOwn:
    """Nothing is known there but what it says."""

    @staticmethod
    def run(stc: st.ScoredModel, recorder: st.Recorder, end: int, pad: int) -> Any:
        given = inputs(stc, PROMPTS)
        ids, mask, going = given["input_ids"], given["attention_mask"], torch.ones(len(PROMPTS), dtype=torch.bool)
        for _ in range(12):
            with torch.no_grad():
                positions = (mask.cumsum(-1) - 1).clamp(min=0)
                logits = stc.model(input_ids=ids, attention_mask=mask, position_ids=positions).logits[:, -1]
            tokens = recorder(ids, logits).argmax(-1)
            tokens = torch.where(going, tokens, torch.tensor(pad))
            going &= tokens != end
            ids, mask = torch.cat([ids, tokens[:, None]], 1), torch.cat([mask, torch.ones_like(tokens)[:, None]], 1)
        return ids

    def test_nothing_told(self, stc: st.ScoredModel, newline: int) -> None:
        recorder = st.Recorder(stc.clusters)
        for pad in (stc.tokenizer.pad_token_id, newline):
            ids = self.run(stc, recorder, newline, pad)
            written = lines(stc, ids, newline)
            results = recorder.answers(ids)
            assert {result.distribution for result in results} == {"unknown"}
            for result, line in zip(results, written, strict=True):
                flagged = any(flag.code == "unknown_end" for flag in result.flags)
                assert flagged or list(result.token_ids) == line
                if pad != newline and len(line) < 12:  # of several special tokens at the end, the first may be its own
                    assert list(result.token_ids) == [*line, pad]

    def test_a_special_token_inside_an_answer_takes_none_of_it_away(self, stc: st.ScoredModel) -> None:
        recorder = st.Recorder(stc.clusters)
        inside = stc.tokenizer.pad_token_id
        ids = torch.tensor([[5, 6, 9, inside, 10]])
        for width in range(2, 5):
            recorder(ids[:, :width], torch.zeros(1, stc.clusters.vocabulary.size))
        [result] = recorder.answers(ids)
        assert list(result.token_ids) == [9, inside, 10]

    def test_told(self, stc: st.ScoredModel, newline: int) -> None:
        recorder = st.Recorder(stc.clusters, eos_token_id=newline)
        with recorder.watching(stc.model):
            ids = self.run(stc, recorder, newline, 7)
        results = recorder.answers(ids)
        assert [list(result.token_ids) for result in results] == lines(stc, ids, newline)
        assert {(result.distribution, result.flags) for result in results} == {("raw", ())}
        assert_right(stc, results)

    def test_lengths_are_told(self, stc: st.ScoredModel, newline: int) -> None:
        recorder = st.Recorder(stc.clusters)
        ids = self.run(stc, recorder, newline, 7)
        results = recorder.answers(ids, lengths=list(map(len, lines(stc, ids, newline))))
        assert not any(result.flags for result in results)
        assert_right(stc, results)


@pytest.mark.parametrize("asked", ["twice", "never again", "for other rows"])
def test_a_pass_that_need_not_be_that_of_the_step_is_not_called_the_models_own(stc: st.ScoredModel, asked: str) -> None:
    recorder = st.Recorder(stc.clusters)
    ids = torch.tensor([stc.tokenizer(PROMPTS[0])["input_ids"]])
    other = torch.full_like(ids, 7)
    with recorder.watching(stc.model), torch.no_grad():
        logits = stc.model(ids).logits[:, -1]
        for _ in range(4):
            if asked == "twice":
                logits = stc.model(ids).logits[:, -1]
                logits = 2 * logits - stc.model(other).logits[:, -1]  # guidance by another prompt
            elif asked == "for other rows":
                unguided, own = stc.model(torch.cat([other, ids])).logits[:, -1:].unbind(0)
                logits = 2 * own - unguided
            token = recorder(ids, logits).argmax(-1)
            ids, other = torch.cat([ids, token[:, None]], 1), torch.cat([other, token[:, None]], 1)
    [result] = recorder.answers(ids)
    assert result.distribution == "unknown"


def _sample(model: Any, input_ids: Any, logits_processor: Any, generation_config: Any, **others: Any) -> Any:
    """Somebody's copy of transformers' loop, with a temperature of its own."""
    unfinished_sequences = torch.ones(len(input_ids), dtype=torch.long)
    while input_ids.shape[1] < generation_config.max_length:
        outputs = model(input_ids)
        scores = logits_processor(input_ids, outputs.logits[:, -1] / 2)
        input_ids = torch.cat([input_ids, (scores.argmax(-1) * unfinished_sequences)[:, None]], 1)
    return input_ids


def test_nothing_is_claimed_of_a_copy_of_the_loop(stc: st.ScoredModel) -> None:
    recorder = st.Recorder(stc.clusters)
    [result] = recorder.answers(generated(stc, recorder, prompts=PROMPTS[:1], custom_generate=_sample))
    assert result.distribution == "unknown"


def test_where_transformers_names_its_variables_otherwise_nothing_is_claimed(
    stc: st.ScoredModel, newline: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semtoken.models.transformers.generate_loop.LOOP", "_another_name")
    recorder = st.Recorder(stc.clusters)
    sequences = generated(stc, recorder, eos_token_id=newline)
    for result, line in zip(recorder.answers(sequences), lines(stc, sequences, newline), strict=True):
        assert result.distribution == "unknown"
        assert list(result.token_ids) == line or any(flag.code == "unknown_end" for flag in result.flags)


def test_beams_and_assistants_are_refused_at_the_first_step(stc: st.ScoredModel) -> None:
    for options, said in (({"num_beams": 2}, "Beam search"), ({"prompt_lookup_num_tokens": 3}, "Assisted decoding")):
        with pytest.raises(BackendError, match=f"{said} is rejected"):
            generated(stc, st.Recorder(stc.clusters), prompts=PROMPTS[:1], **options)


# --- scores by further methods -----------------------------------------------------------------------------------


def test_a_recorder_gives_the_scores_that_stc_gives(stc: st.ScoredModel) -> None:
    names = ["confidence", "max_token_entropy", "trace", "self_certainty", "epr", "mean_new_word", "phrase_and_mean"]
    expected = st.ScoredModel(stc.backend, methods=names).generate(PROMPTS, TOKENS)
    recorder = st.Recorder(stc.clusters, methods=names)
    sequences = generated(stc, recorder)
    questions = [prompt.rpartition("Question:")[2] for prompt in PROMPTS]
    with pytest.raises(InvalidInputError, match="3 answers and 1 questions"):
        recorder.answers(sequences, questions=questions[:1])
    for result, one in zip(recorder.answers(sequences, questions=questions), expected, strict=True):
        assert result.scores.keys() == set(names)
        for name in set(names) - {"mean_new_word"}:
            assert result.scores[name] == pytest.approx(one.scores[name], rel=1e-3, abs=1e-4), name
    sequences = generated(stc, recorder)
    [cut, *_] = recorder.answers(sequences, lengths=[1] * len(PROMPTS))
    assert cut.n_tokens == 1 and cut.scores["max_token_entropy"] <= expected[0].scores["max_token_entropy"] + 1e-4


def test_what_a_processor_does_not_see_is_refused_before_the_first_step(stc: st.ScoredModel) -> None:
    with pytest.raises(BackendError, match="recorder backend does not give attention weights"):
        st.Recorder(stc.clusters, methods=["rauq"])
    with pytest.raises(InvalidInputError, match="semantic_entropy needs nli_logits"):
        st.Recorder(stc.clusters, methods=["semantic_entropy"])
