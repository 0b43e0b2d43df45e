"""STC and Recorder against score_logits on the full logits of the same tokens."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import semtoken as st
from semtoken.errors import (
    BackendError,
    InvalidInputError,
    InvalidLogits,
    ModelError,
    VocabularyError,
    VocabularyMismatch,
)
from semtoken.models.probing.p_true import p_true_log_probs
from semtoken.models.transformers import TransformersBackend
from tests import tiny
from tests.models.plain_pass import generated
from tests.rows import each

PROMPTS = ["The capital of France is", "who is it", "A TV or a television set , Television and"]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|user|>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def random_clusters(tokenizer: Any, k: int = 80) -> st.TokenClusters:
    vocabulary = st.Vocabulary.from_tokenizer(tokenizer)
    return st.TokenClusters(np.random.default_rng(0).integers(0, k, vocabulary.size, dtype=np.int32), vocabulary)


@cache
def clusters_of(kind: str) -> st.TokenClusters:
    return random_clusters(tiny.TOKENIZERS[kind]())


def scorer(kind: str = "byte-level", *, padding: int = 40, **rules: Any) -> st.ScoredModel:
    tokenizer = tiny.TOKENIZERS[kind]()
    model = tiny.llama(len(tokenizer) + padding)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return st.ScoredModel(model, tokenizer, clusters_of(kind), **rules)


def full_logits(stc: st.ScoredModel, prompt: str, answer: list[int]) -> Any:
    """Logits of the whole sequence in one plain forward pass."""
    ids = stc.tokenizer(prompt)["input_ids"] + answer
    with torch.no_grad():
        return stc.model(torch.tensor([ids])).logits[0, len(ids) - len(answer) - 1 : -1]


def assert_same(scored: st.ScoredAnswer, expected: st.ScoredAnswer) -> None:
    assert scored.token_ids == expected.token_ids
    assert scored.text == expected.text
    for token, other in zip(scored.tokens, expected.tokens, strict=True):
        assert token.log_agreeing_probability == pytest.approx(other.log_agreeing_probability, abs=1e-4)
        assert token.log_probability == pytest.approx(other.log_probability, abs=1e-4)
        assert token.neutral == other.neutral
    assert scored.log_confidence == pytest.approx(expected.log_confidence, abs=1e-3)


@each(
    ("kind", "rules", "decoding"),
    [
        ("byte-level", ("paper", "whole-word"), {}),
        ("sentencepiece", ("paper", "off"), {}),
        ("wordpiece", ("default", "paper"), {}),
        ("byte-level", ("default", "off"), {}),
        ("byte-level", ("default",), {"do_sample": True, "temperature": 1.7, "top_k": 20}),
        ("byte-level", ("default",), {"do_sample": True, "num_return_sequences": 3}),
        ("byte-level", ("default",), {"repetition_penalty": 1.8}),
        ("byte-level", ("default",), {"no_repeat_ngram_size": 1, "min_new_tokens": 5}),
    ],
)
def test_generate_and_score_equal_the_full_logits(kind: str, rules: Any, decoding: dict[str, Any]) -> None:
    """The raw ones, whatever the decoding; several samples of a prompt come one after another."""
    stc = scorer(kind, preset=st.ScoringRules(*rules))
    torch.manual_seed(0)
    generated = stc.generate(PROMPTS, max_new_tokens=8, batch_size=2, **decoding)
    prompts = [prompt for prompt in PROMPTS for _ in range(decoding.get("num_return_sequences", 1))]
    scored = stc.score(prompts, [answer.token_ids for answer in generated], batch_size=3, chunk_size=7)
    for prompt, answer, rescored in zip(prompts, generated, scored, strict=True):
        logits = full_logits(stc, prompt, answer.token_ids)
        expected = st.score_logits(logits, answer.token_ids, stc.clusters, stc.rules)
        assert_same(answer, expected)
        assert_same(rescored, expected)
        assert answer.distribution == rescored.distribution == "raw"


def test_an_answer_ends_at_a_newline_or_stop_string() -> None:
    stc = scorer()
    long = stc.generate(PROMPTS, max_new_tokens=30)
    vocabulary = stc.clusters.vocabulary
    for answer in stc.generate(PROMPTS, max_new_tokens=30, stop_at_newline=True):
        newlines = [i for i, token in enumerate(answer.token_ids) if "\n" in vocabulary.texts[token]]
        assert newlines in ([], [len(answer.tokens) - 1])
    stop = long[0].text[5:7]
    stopped = stc.generate(PROMPTS[0], max_new_tokens=30, stop_strings=[stop])[0]
    assert stop in stopped.text
    assert stop not in vocabulary.decode(stopped.token_ids[:-1])
    assert stopped.token_ids == long[0].token_ids[: len(stopped.tokens)]
    assert_same(stopped, stc.score(PROMPTS[0], stopped.token_ids)[0])


def test_padding_behind_a_finished_answer_is_not_scored() -> None:
    stc = scorer()
    long = stc.generate(PROMPTS, max_new_tokens=16)
    ends = [long[0].token_ids[4], long[1].token_ids[12], stc.tokenizer.eos_token_id]
    together = stc.generate(PROMPTS, max_new_tokens=16, eos_token_id=ends)
    assert len({len(answer.tokens) for answer in together}) > 1
    for prompt, answer in zip(PROMPTS, together, strict=True):
        assert_same(answer, stc.generate(prompt, max_new_tokens=16, eos_token_id=ends)[0])
        assert all(token not in ends for token in answer.token_ids[:-1])


def test_chat_messages_go_through_the_template(monkeypatch: pytest.MonkeyPatch) -> None:
    stc = scorer()
    messages = [{"role": "user", "content": "who is it"}]
    with pytest.raises(InvalidInputError, match="no chat template"):
        stc.generate([messages])
    monkeypatch.setattr(stc.tokenizer, "chat_template", CHAT_TEMPLATE)
    by_hand = "<|user|>who is it<|assistant|>"
    assert stc.generate([messages], max_new_tokens=8) == stc.generate(by_hand, max_new_tokens=8)
    assert stc.generate(messages, max_new_tokens=8) == stc.generate([messages], max_new_tokens=8)
    monkeypatch.setattr(stc.tokenizer, "chat_template", "{{ raise_exception('only one turn') }}")
    with pytest.raises(InvalidInputError, match="rejects the messages of prompt 0: only one turn"):
        stc.generate([messages])


def test_the_text_of_a_response_is_tokenized_as_it_follows_the_prompt() -> None:
    stc = scorer("sentencepiece")
    by_text = stc.score(PROMPTS[0], " Paris .")[0]
    ids = stc.tokenizer(PROMPTS[0] + " Paris .")["input_ids"][len(stc.tokenizer(PROMPTS[0])["input_ids"]) :]
    assert by_text.token_ids == ids != stc.tokenizer(" Paris .", add_special_tokens=False)["input_ids"]
    assert_same(by_text, st.score_logits(full_logits(stc, PROMPTS[0], ids), ids, stc.clusters))


def test_an_empty_response_is_uncertain() -> None:
    empty, full = scorer().score(PROMPTS[:2], ["", " Paris"])
    assert empty.sequence_uncertainty == 1 and empty.log_confidence == -np.inf and empty.empty
    assert full.tokens


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_scored_in_float32(dtype: torch.dtype) -> None:
    tokenizer = tiny.byte_level_bpe()
    model = tiny.llama(len(tokenizer)).to(dtype)
    stc = st.ScoredModel(model, tokenizer, random_clusters(tokenizer))
    answer = stc.generate(PROMPTS[0], max_new_tokens=12)[0]
    recorder = st.Recorder(stc.clusters)
    kept: dict[str, Any] = {"output_logits": True, "return_dict_in_generate": True}
    output = generated(model, tokenizer, PROMPTS[0], recorder, max_new_tokens=12, **kept)
    logits = torch.cat(output.logits).double().numpy()
    expected = st.score_logits(logits, answer.token_ids, stc.clusters)
    assert answer.log_confidence == pytest.approx(
        expected.log_confidence, abs=1e-5 + 1e-4 * abs(expected.log_confidence)
    )
    assert_same(recorder.answers(output)[0], expected)


def recorded(stc: st.ScoredModel, recorder: st.Recorder, **options: Any) -> Any:
    options = {"max_new_tokens": 12, "pad_token_id": stc.tokenizer.pad_token_id} | options
    return generated(stc.model, stc.tokenizer, PROMPTS, recorder, **options)


def test_the_recorder_keeps_a_few_numbers_a_step() -> None:
    stc = scorer(padding=0)
    recorder = st.Recorder(stc.clusters)
    recorded(stc, recorder, max_new_tokens=70)
    assert recorder._now is not None
    scores = recorder._now._scores
    assert len(scores._exact._rows) <= 64
    recorder.running()
    size = stc.clusters.vocabulary.size
    answers = scores._exact._answers.values()
    kept = sum(len(step.row.logits) for answer in answers for step in answer._open if step.row is not None)
    kept += sum(len(logs) for answer in answers for _, logs in answer.rows._later.values())
    assert len(scores._exact._answers[0].ids) == 69
    assert kept < 10 * size * len(PROMPTS)  # not 69 rows


def test_results_of_another_generation_are_refused() -> None:
    stc = scorer(padding=0)
    recorder = st.Recorder(stc.clusters)
    for ask in (recorder.answers, recorder.running):
        with pytest.raises(BackendError, match="0 sequences were recorded"):
            ask(torch.zeros(1, 5, dtype=torch.long))
    sequences = recorded(stc, recorder)
    other = sequences.clone()
    other[0, -3] = (other[0, -3] + 1) % stc.clusters.vocabulary.size
    for ask in (recorder.answers, recorder.running):
        with pytest.raises(BackendError, match="not those that were recorded"):
            ask(other)
    assert len(recorder.running(sequences)) == 3
    with pytest.raises(BackendError, match="another generation"):
        recorded(stc, recorder)
    recorder.reset()
    assert len(recorder.answers(recorded(stc, recorder))) == 3


def test_bad_input_never_yields_a_number() -> None:
    stc = scorer()
    blank: list[Any] = ["", "  \n", []]
    for prompt in blank:
        with pytest.raises(InvalidInputError, match="Prompt 1"):
            stc.generate(["fine", prompt])
    with pytest.raises(InvalidInputError, match="2 prompts and 1 responses"):
        stc.score(PROMPTS[:2], ["one"])
    with pytest.raises(VocabularyError, match="out of range"):
        stc.score(PROMPTS[0], [1, 2, 10_000])
    with pytest.raises(InvalidInputError, match="256"):
        stc.generate("a " * 400)
    with pytest.raises(InvalidInputError, match="must be positive"):
        stc.generate("a", max_new_tokens=0)


def test_nothing_is_read_beyond_the_models_context() -> None:
    stc = scorer()
    room = stc.backend.max_length
    assert room == 256
    read: list[int] = []

    def note(module: Any, args: Any, given: dict[str, Any]) -> None:
        positions = given.get("position_ids")  # a text that is read alone has none
        read.append(given["input_ids"].shape[1] if positions is None else int(positions.max()) + 1)

    assert isinstance(stc.backend, TransformersBackend)
    _ = stc.backend.proof  # no pass of it is counted
    handle = stc.model.register_forward_pre_hook(note, with_kwargs=True)
    with handle:
        for length, left in ((room, 1), (room - 1, 2), (room - 7, 8)):
            [answer] = stc.generate([[5] * length], 100, eos_token_id=[599])
            assert (len(answer.tokens), answer.truncated) == (left, True)
        stc.backend.next_log_probs([[5] * room], [[1], [2]])
        assert max(read) == room
        read.clear()
        for continuations in ([[1, 2]], [[1], [2, 3]]):
            with pytest.raises(InvalidInputError, match="257 tokens"):
                stc.backend.next_log_probs([[5] * room], continuations)
        with pytest.raises(InvalidInputError, match="256"):
            p_true_log_probs(stc, ["word " * 3000], ["yes"])
        with pytest.raises(InvalidInputError, match="256"):
            stc.score([[5] * room], [[1, 2]])
        assert not read
        written = stc.generate([[5] * (room - 1)], 100, eos_token_id=[599])  # the last token need not be read
        given = stc.score([[5] * (room - 1)], [written[0].token_ids])
    assert max(read) == room
    assert given[0].log_probability == pytest.approx(written[0].log_probability, abs=1e-4)


def test_logits_that_are_no_distribution_name_the_step() -> None:
    stc = scorer()
    with torch.no_grad():
        stc.model.get_output_embeddings().weight[3] = float("nan")
    with pytest.raises(InvalidLogits, match=r"step 0 .*NaN"):
        stc.generate(PROMPTS, max_new_tokens=4)


def test_models_and_tokenizers_that_do_not_fit_are_refused() -> None:
    from transformers import AutoModel

    tokenizer = tiny.byte_level_bpe()
    clusters = random_clusters(tokenizer)
    headless = AutoModel.from_config(tiny.llama(len(tokenizer)).config)
    with pytest.raises(ModelError, match="no output head"):
        st.ScoredModel(headless, tokenizer, clusters)
    with pytest.raises(VocabularyMismatch, match=r"(?s)tokens.*fingerprint"):
        st.ScoredModel(tiny.llama(len(tokenizer)), tokenizer, random_clusters(tiny.sentencepiece_bpe()))
    with pytest.raises(VocabularyMismatch, match="own tokenizer"):
        st.ScoredModel(tiny.llama(100), tokenizer, clusters)


def test_results_arrive_one_by_one() -> None:
    seen: list[tuple[int, str]] = []
    stc = scorer()
    answers = stc.generate(PROMPTS, max_new_tokens=3, batch_size=1, on_result=lambda i, r: seen.append((i, r.text)))
    assert seen == [(i, answer.text) for i, answer in enumerate(answers)]


def test_a_directory_is_loaded_with_its_clusters(tmp_path: Path, own_cache: Path) -> None:
    tokenizer = tiny.byte_level_bpe()
    model = tiny.llama(len(tokenizer))
    loaded = st.ScoredModel.from_pretrained(str(tiny.saved(model, tmp_path / "model")))
    assert loaded.clusters.n_clusters == len(tokenizer) // 2
    again = st.ScoredModel(model, tokenizer)  # the same weights in memory: the cached clusters
    assert (again.clusters.labels == loaded.clusters.labels).all()
    assert len(list((own_cache / "clusters").iterdir())) == 1
    assert_same(loaded.generate(PROMPTS[0], max_new_tokens=5)[0], again.generate(PROMPTS[0], max_new_tokens=5)[0])


def test_a_checkpoint_without_a_head_is_refused_though_transformers_would_make_one_up(tmp_path: Path) -> None:
    tokenizer = tiny.byte_level_bpe()
    tiny.saved(tiny.llama(len(tokenizer)).model, tmp_path)
    with pytest.raises(ModelError, match="no output head"):
        st.ScoredModel.from_pretrained(str(tmp_path), clusters=random_clusters(tokenizer))
    with pytest.raises(ModelError, match="There is no directory"):
        st.ScoredModel.from_pretrained(str(tmp_path / "nothing"))


def test_tied_embeddings_are_a_head(tmp_path: Path) -> None:
    tokenizer = tiny.byte_level_bpe()
    tiny.saved(tiny.llama(len(tokenizer), tied=True), tmp_path)
    stc = st.ScoredModel.from_pretrained(str(tmp_path), clusters=random_clusters(tokenizer))
    assert stc.generate(PROMPTS[0], max_new_tokens=3)[0].tokens
