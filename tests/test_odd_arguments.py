"""Arguments that nobody means: refused with a sentence of ours, never with what Python or a library would raise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semtoken as st
from semtoken.errors import SemtokenError
from semtoken.guarantees import Fingerprint
from semtoken.replies.checking import rank_replies
from semtoken.support.almanac import is_correct, load_questions
from tests import tiny, worked

CLUSTERS = worked.clusters()
ANSWER = st.score_logits(worked.logits(*worked.STEPS), worked.ids(*worked.ANSWER), CLUSTERS)
SCORES = -np.random.default_rng(0).exponential(0.7, 60)
RIGHT = (np.random.default_rng(1).random(60) < np.exp(SCORES)).astype(float)


@pytest.fixture(scope="module")
def calibrator() -> st.Calibrator:
    made: st.Calibrator = st.Calibrator.fit(SCORES, RIGHT)
    return made


@pytest.fixture(scope="module")
def stc() -> st.ScoredModel:
    from semtoken.models.transformers.model import TransformersBackend

    tokenizer = tiny.byte_level_bpe()
    return st.ScoredModel(TransformersBackend(tiny.llama(len(tokenizer)), tokenizer))


@pytest.mark.parametrize(
    "call",
    [
        lambda: ANSWER.span_uncertainty(None, 3),  # type: ignore[arg-type]
        lambda: ANSWER.tokens[0].log_probability_under(np.array([])),  # type: ignore[arg-type]
        lambda: CLUSTERS.cluster_ids(1.5),  # type: ignore[arg-type]
        lambda: CLUSTERS.cluster_ids(-1),
        lambda: CLUSTERS.members(2**63),
        lambda: CLUSTERS.find(b"the"),  # type: ignore[arg-type]
        lambda: CLUSTERS.check(b"the"),
        lambda: CLUSTERS.vocabulary.tokens_of([]),  # type: ignore[arg-type]
        lambda: CLUSTERS.vocabulary.require_same(None, mine="a", theirs="b"),  # type: ignore[arg-type]
        lambda: st.Vocabulary.from_tokenizer(tiny.byte_level_bpe(), 7),  # type: ignore[arg-type]
        lambda: st.Generation("a", [1]).with_fields(None),  # type: ignore[arg-type]
        lambda: st.Threshold.fit(SCORES, RIGHT, alpha=0.4).decide(np.array([])),
        lambda: st.Calibrator.load(b"x"),  # type: ignore[arg-type]
        lambda: st.Calibrator.load("\0"),
        lambda: st.Calibrator.load("\ud800"),
        lambda: is_correct(b"Lima", load_questions("dev")[0]),  # type: ignore[arg-type]
        lambda: is_correct("Lima", {"answers": ["Lima"]}),  # type: ignore[arg-type]
        lambda: st.cluster_tokens(np.eye(4, dtype=np.float32), 2, device=False),  # type: ignore[arg-type]
        lambda: st.methods.confidence(-0.3, [], [-0.1], 7),  # type: ignore[arg-type]
        lambda: rank_replies("no file", methods=7),  # type: ignore[arg-type]
        lambda: load_questions([]),  # type: ignore[arg-type]
    ],
)
def test_odd_arguments_are_refused(call: Callable[[], Any], tmp_path: Path) -> None:
    with pytest.raises(SemtokenError, match=r"\w"):
        call()


def test_odd_arguments_of_calibrators_are_refused(calibrator: st.Calibrator) -> None:
    for seed in (-1, 1.5, "a", None):
        with pytest.raises(SemtokenError, match="seed"):
            calibrator.drift(SCORES, seed=seed)  # type: ignore[arg-type]
        with pytest.raises(SemtokenError, match="seed"):
            calibrator.report(SCORES, RIGHT, seed=seed)  # type: ignore[arg-type]
    with pytest.raises(SemtokenError, match="All answers are empty"):
        calibrator.report(np.full(60, -np.inf), RIGHT)
    with pytest.raises(SemtokenError, match="'known' must be a Fingerprint"):
        calibrator.flags(ANSWER, "model")  # type: ignore[arg-type]
    assert calibrator.flags(ANSWER.log_confidence, Fingerprint(model="m")) is not None


def test_odd_arguments_of_a_model_are_refused(stc: st.ScoredModel) -> None:
    odd: list[dict[str, Any]] = [
        {"stop_strings": 1j},
        {"num_return_sequences": "a"},
        {"num_return_sequences": 0},
        {"do_sample": np.array([])},
        {"eos_token_id": 1.5},
        {"logits_processor": 1j},
        {"stop_strings": [7]},
        {"batch_size": float},
        {"max_new_tokens": 1.5},
        {"stop_at_newline": "yes"},
        {"no_such_option": 1},
        {"do_sample": True, "temperature": -1.0},
        {"num_return_sequences": 2**31},
        {"logits_processor": ["a"]},
        {"logits_processor": [[]]},
    ]
    for options in odd:
        with pytest.raises(SemtokenError, match=r"\w"):
            stc.generate("The capital", **{"max_new_tokens": 2, **options})
    for prompts in (None, {"a": 1}, object(), float):
        with pytest.raises(SemtokenError, match="prompts"):
            stc.generate(prompts, 2)  # type: ignore[arg-type]
    with pytest.raises(SemtokenError, match="batch_size"):
        stc.score("The", "TV", batch_size=None)  # type: ignore[arg-type]
    with pytest.raises(SemtokenError, match="responses"):
        stc.score("The", {"TV"})  # type: ignore[arg-type]
    recorder = st.Recorder(stc.tokenizer)
    for sequences in (None, [[1, 2]], np.array(0.3), "text"):
        with pytest.raises(SemtokenError, match="'sequences' must be what generate returned"):
            recorder.answers(sequences)


def test_what_a_function_of_the_user_raises_is_the_users_own(stc: st.ScoredModel) -> None:
    def raises(number: int, answer: Any) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as raised:
        stc.generate("The capital", 2, on_result=raises)
    assert not isinstance(raised.value, SemtokenError)


def test_a_threshold_or_a_calibrator_of_another_kind_is_refused(stc: st.ScoredModel) -> None:
    with pytest.raises(SemtokenError, match="'threshold' must be a Threshold"):
        st.ScoredModel(stc.backend, threshold=range(3))  # type: ignore[arg-type]
    for odd in (range(3), 0, 1j, b""):
        with pytest.raises(SemtokenError, match="'calibrator' must be a Calibrator"):
            st.ScoredModel(stc.backend, calibrator=odd)  # type: ignore[arg-type]


def test_a_device_of_another_kind_is_refused() -> None:
    devices: list[Any] = [[], True, {"a": 1}, 1e308, 2**63, -(2**70)]
    for odd in devices:
        with pytest.raises(SemtokenError, match="torch can put nothing there"):
            st.ScoredModel.from_pretrained("almanac", device=odd)


def test_odd_settings_of_draws_are_refused_and_the_smallest_that_are_not_draw(stc: st.ScoredModel) -> None:
    for odd in (True, -1, 1.5, "many"):
        with pytest.raises(SemtokenError, match="'top_k' must be a whole number"):
            stc.generate("The capital", 2, do_sample=True, top_k=odd)
    for temperature in (1e-320, 1e-38):
        with pytest.raises(SemtokenError, match="no float32 numbers"):
            stc.generate("The capital", 2, do_sample=True, temperature=temperature)
    [coldest] = stc.generate("The capital", 2, do_sample=True, temperature=1e-30)
    [best] = stc.generate("The capital", 2)
    assert coldest.text == best.text


def test_odd_arguments_of_statistics_are_refused(stc: st.ScoredModel) -> None:
    from semtoken.bench.statistics import record
    from semtoken.models.probing.p_true import p_true_log_probs

    odd_needs: list[Any] = [[1, 2], [[]], range(3)]
    for needs in odd_needs:
        with pytest.raises(SemtokenError, match="needs"):
            record(stc, ["Who?"], needs=needs)
    with pytest.raises(SemtokenError, match="spelling"):
        p_true_log_probs(stc, ["Who?"], ["Ada"], spelling=np.array([]))  # type: ignore[arg-type]
