"""The learned number end to end: states of a real model, labels, the file, and answers that it belongs to or not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import semtoken as st
from semtoken.almanac import PROMPT, load_questions
from semtoken.calibration import learn_from
from semtoken.calibration.labels import AnswerRecord, answer_record, log_scores
from semtoken.calibration.learned_number import DISTANCE, LEARNED
from semtoken.calibration.learning import shared_ends
from semtoken.errors import ArtifactError, BackendError, CalibratorMismatch, InvalidInput

pytest.importorskip("sklearn")
LABELS = 160


def prompts_of(first: int, count: int) -> list[str]:
    return [PROMPT.replace("{question}", one.question) for one in load_questions("dev")[first : first + count]]


@pytest.fixture(scope="module")
def answers() -> list[st.ScoredResponse]:
    stc = st.STC.from_pretrained("almanac", states=True)
    return stc.generate(prompts_of(0, LABELS), 16, batch_size=32, stop_at_newline=True)


@pytest.fixture(scope="module")
def calibrator(answers: list[st.ScoredResponse]) -> st.Calibrator:
    """Made-up labels which the state knows and the headline does not, so that the gate opens."""
    return st.Calibrator.fit(answers, made_up(answers), learn=True)


def made_up(answers: list[st.ScoredResponse]) -> list[bool]:
    rows = np.stack([answer.state.values for answer in answers if answer.state is not None])
    centred = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    axis = np.linalg.svd(centred, full_matrices=False)[2][0]
    return list(centred @ axis > np.median(centred @ axis))


def test_the_state_is_that_of_transformers_at_the_last_written_token(answers: list[st.ScoredResponse]) -> None:
    """Read by transformers itself: entry int(.65 (L + 1)) of the hidden states, before the terminator."""
    stc = st.STC.from_pretrained("almanac")
    answer, prompt = answers[3], prompts_of(3, 1)[0]
    assert answer.truncated is False and answer.state is not None
    ids = stc.tokenizer(prompt)["input_ids"] + answer.token_ids[:-1]
    with torch.no_grad():
        states = stc.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    expected = states[int(0.65 * len(states))][0, -1].float().numpy()
    np.testing.assert_allclose(answer.state.values, expected, rtol=1e-3, atol=1e-3)
    assert stc.tokenizer.decode(stc.tokenizer(prompt)["input_ids"]) == answer.state.prompt


def test_states_are_kept_only_where_they_are_asked_for() -> None:
    assert st.STC.from_pretrained("almanac").generate(prompts_of(0, 1), 4)[0].state is None
    with pytest.raises(InvalidInput, match="depth in"):
        st.STC.from_pretrained("almanac", states=1.5)


def test_a_loaded_calibrator_gives_later_answers_their_learned_number(
    calibrator: st.Calibrator, answers: list[st.ScoredResponse], tmp_path: Path
) -> None:
    assert calibrator.learned is not None and calibrator.learning.startswith("uses the learned number")
    calibrator.save(tmp_path)
    stc = st.STC.from_pretrained("almanac", calibrator=tmp_path)
    later = stc.generate(prompts_of(0, 8), 16, batch_size=4, stop_at_newline=True)
    for answer, labelled in zip(later, answers, strict=False):
        assert answer.state is None and labelled.state is not None
        risk = calibrator.learned.weights @ [-labelled.log_score] + calibrator.learned.intercept
        risk += calibrator.learned.state_weights @ labelled.state.values
        np.testing.assert_allclose(answer.scores[LEARNED], risk, rtol=1e-4, atol=1e-4)
        assert answer.scores[DISTANCE] == pytest.approx(1, abs=2)
        assert answer.chance is not None
    again = st.Calibrator.load(tmp_path)
    assert again.learning == calibrator.learning and again.chance(later[0]) == later[0].chance
    data = bytearray((tmp_path / "calibrator.json").read_bytes())
    place = data.index(b'"state_weights"') + 30
    data[place] = ord("1") if data[place] != ord("1") else ord("2")
    (tmp_path / "calibrator.json").write_bytes(bytes(data))
    with pytest.raises(ArtifactError, match="changed after it was written"):
        st.Calibrator.load(tmp_path)


def test_chance_and_threshold_are_fitted_on_numbers_that_did_not_see_the_label(
    answers: list[st.ScoredResponse],
) -> None:
    found = learn_from(answers, made_up(answers))
    assert found.learning.learned is not None
    own = [found.learning.learned.risk(_readings(answer))[0] for answer in answers]
    told = [answer.scores[LEARNED] for answer in found.answers]
    np.testing.assert_array_equal(told, found.learning.risk)
    assert np.abs(np.array(told) - own).max() > 0.01
    threshold = st.Threshold.fit(found.answers, made_up(answers), alpha=0.3, by=LEARNED)
    assert threshold.fingerprint.method == LEARNED


def _readings(answer: st.ScoredResponse) -> Any:
    from semtoken.calibration.learning import WITH_STATES, readings_of

    return readings_of([answer], WITH_STATES, states=True)


def test_another_prompt_is_refused_with_words(calibrator: st.Calibrator) -> None:
    stc = st.STC.from_pretrained("almanac")
    assert calibrator.learned is not None
    stc.use_learned(calibrator.learned)
    [answer] = stc.generate(["The capital of France is"], 4)
    assert LEARNED not in answer.scores
    assert [flag.code for flag in answer.flags] == ["learned_refused"]
    with pytest.raises(CalibratorMismatch, match="learned on prompts each of which begins with"):
        calibrator.chance(answer)


def test_a_text_that_was_read_is_not_taken_for_a_generated_answer(calibrator: st.Calibrator) -> None:
    stc = st.STC.from_pretrained("almanac")
    assert calibrator.learned is not None
    stc.use_learned(calibrator.learned)
    [answer] = stc.score(prompts_of(0, 1), ["China"])
    with pytest.raises(CalibratorMismatch, match="this one was read from a text"):
        calibrator.chance(answer)


def test_another_model_is_refused_before_it_answers(calibrator: st.Calibrator) -> None:
    with pytest.raises(CalibratorMismatch, match="another model or precision"):
        st.STC.from_pretrained("almanac", dtype=torch.bfloat16, calibrator=calibrator)
    tuned = st.STC.from_pretrained("almanac")
    with torch.no_grad():
        for parameter in tuned.model.parameters():
            parameter += 0.001
    with pytest.raises(CalibratorMismatch, match="another model or precision"):
        st.STC(tuned.model, tuned.tokenizer, calibrator=calibrator)


def test_a_backend_without_states_is_refused(calibrator: st.Calibrator) -> None:
    stc = st.STC.from_pretrained("almanac")

    class Without(type(stc.backend)):  # type: ignore[misc]
        @property
        def gives(self) -> frozenset[Any]:
            return super().gives - {"states"}

    with pytest.raises(BackendError, match="hidden states"):
        st.STC(Without(stc.model, stc.tokenizer), calibrator=calibrator)


def test_without_states_five_numbers_are_learned_from(answers: list[st.ScoredResponse]) -> None:
    """Labels that two of them know together, and the headline does not, open the gate."""
    stc = st.STC.from_pretrained("almanac", methods=["max_token_entropy"])
    plain = stc.generate(prompts_of(0, LABELS), 16, batch_size=32, stop_at_newline=True)
    gap = np.array([answer.scores["max_token_entropy"] + answer.log_probability for answer in plain])
    peaked = list(gap > np.median(gap))
    found = learn_from(plain, peaked)
    assert found.learning.learned is not None and not found.learning.learned.reads_states
    made = st.Calibrator.fit(plain, peaked, learn=True)
    again = st.STC.from_pretrained("almanac", calibrator=made)
    [answer] = again.generate(prompts_of(1, 1), 16, stop_at_newline=True)
    assert {"max_token_entropy", LEARNED} <= answer.scores.keys() and answer.chance is not None


def test_what_cannot_be_learned_from_is_refused(answers: list[st.ScoredResponse]) -> None:
    labels = made_up(answers)
    with pytest.raises(InvalidInput, match="not from bare scores"):
        learn_from([-0.5, -0.1], [True, False])
    with pytest.raises(InvalidInput, match="seed"):
        learn_from(answers, labels, seed=-1)
    with pytest.raises(InvalidInput, match="159 of 160 answers have a hidden state"):
        learn_from([replace(answers[0], state=None), *answers[1:]], labels)
    other = replace(answers[0], state=replace(answers[0].state, weights="0" * 16))  # type: ignore[type-var]
    with pytest.raises(InvalidInput, match="different models, layers or kinds"):
        learn_from([other, *answers[1:]], labels)


def with_state(answer: st.ScoredResponse, values: Any) -> st.ScoredResponse:
    assert answer.state is not None
    return replace(answer, state=replace(answer.state, values=np.asarray(values, dtype=np.float64)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_state_that_is_not_finite_gives_no_number(
    calibrator: st.Calibrator, answers: list[st.ScoredResponse], bad: float
) -> None:
    """Neither where it was labelled nor where a calibrator meets it."""
    size = answers[7].state.values.size  # type: ignore[union-attr]
    broken = with_state(answers[7], [bad, *[0.0] * (size - 1)])
    with pytest.raises(CalibratorMismatch, match="state of answer 7 holds no finite numbers"):
        learn_from([*answers[:7], broken, *answers[8:]], made_up(answers))
    told = calibrator.with_learned(broken)
    assert LEARNED not in told.scores and [flag.code for flag in told.flags] == ["learned_refused"]
    with pytest.raises(CalibratorMismatch, match="holds no finite numbers"):
        calibrator.chance(broken)


def test_a_number_beyond_what_a_double_holds_is_refused(
    calibrator: st.Calibrator, answers: list[st.ScoredResponse]
) -> None:
    assert calibrator.learned is not None
    size = calibrator.learned.state_weights.size
    wild = replace(calibrator, learned=replace(calibrator.learned, state_weights=np.full(size, 1e308)))
    with pytest.raises(CalibratorMismatch, match="is not finite"):
        wild.chance(answers[0])
    with pytest.raises(CalibratorMismatch, match="is not finite"):
        calibrator.chance(with_state(answers[0], np.full(size, 1e200)))


def test_a_question_that_is_there_twice_is_not_learned_from(answers: list[st.ScoredResponse]) -> None:
    """With each question twice the fold that is held back was seen: made-up labels would be remembered, not found."""
    labels = made_up(answers)
    longer = replace(answers[3], text=answers[3].text + " indeed")
    with pytest.raises(InvalidInput, match="Answers 3 and 160 are to the same question"):
        learn_from([*answers, longer], [*labels, True])
    bare = [replace(answer, state=None) for answer in answers]
    prompts = [f"Question {i}" for i in range(159)] + ["Question 0"]
    with pytest.raises(InvalidInput, match="Answers 0 and 159 are to the same question"):
        learn_from(bare, labels, prompts=prompts)
    records = [AnswerRecord(f"line {i}", {"question": "Who?", "text": f"{i}"}, -0.1, True) for i in range(2)]
    with pytest.raises(InvalidInput, match="Answers 0 and 1 are to the same question"):
        learn_from(records, [True, False])


@pytest.mark.parametrize("value", ["far", float("nan"), "nan", True, [1.0], {"far": 1.0}], ids=str)
def test_a_score_of_a_file_that_is_no_number_is_refused(calibrator: st.Calibrator, value: object) -> None:
    record = answer_record("line 3", {"log_score": -0.1, "score_learned": value, "score_state_distance": value})
    with pytest.raises(InvalidInput, match="line 3: the score by state_distance must be a number"):
        calibrator.compare_states([record])
    with pytest.raises(InvalidInput, match="line 3: the score by learned must be a number"):
        log_scores([record], LEARNED)


@pytest.mark.parametrize("value", [-1.0, float("inf"), "-0.5"])
def test_a_distance_that_cannot_be_is_not_compared(calibrator: st.Calibrator, value: object) -> None:
    with pytest.raises(InvalidInput, match="a number from 0 on"):
        calibrator.compare_states([answer_record("line 3", {"log_score": -0.1, "score_state_distance": value})])


def test_a_file_that_reads_an_unknown_number_is_refused(calibrator: st.Calibrator, tmp_path: Path) -> None:
    """Its checksum is right: somebody wrote it, or another release did."""
    assert calibrator.learned is not None
    replace(calibrator, learned=replace(calibrator.learned, names=("mood",))).save(tmp_path)
    with pytest.raises(ArtifactError, match="reads 'mood', which no answer has"):
        st.Calibrator.load(tmp_path)


@pytest.mark.parametrize("labels", [[True] * LABELS, [False] * LABELS, [True] * 29 + [False] * 131])
def test_labels_of_one_kind_keep_the_headline(answers: list[st.ScoredResponse], labels: list[bool]) -> None:
    found = learn_from(answers, labels)
    assert found.learning.learned is None and "30 of them right and 30 wrong" in found.learning.statement
    assert found.answers == answers


def test_149_labels_are_too_few_and_150_are_enough(answers: list[st.ScoredResponse]) -> None:
    labels = made_up(answers)
    few, enough = (learn_from(answers[:n], labels[:n]).learning for n in (149, 150))
    assert few.gain is None and "at least 150 labels" in few.statement
    assert enough.gain is not None


def test_a_line_of_a_file_holds_the_state(answers: list[st.ScoredResponse]) -> None:
    state = answers[0].state
    assert state is not None
    read = AnswerRecord("line 1", state.to_fields(), -0.1, None).state
    assert read is not None
    np.testing.assert_array_equal(read.values, state.values)
    assert replace(read, values=state.values).to_fields() == state.to_fields()
    with pytest.raises(InvalidInput, match="line 1: the hidden state cannot be read"):
        _ = AnswerRecord("line 1", state.to_fields() | {"state": "!!"}, -0.1, None).state


def test_the_form_of_prompts_ends_where_the_question_may_begin() -> None:
    prompts = ["Q: who is it?\nA:", "Q: who was it?\nA:", "Q: whose is it?\nA:"]
    assert shared_ends(prompts) == ("Q: ", "\nA:")
    chat = [f"<|im_start|>user\n{one}<|im_end|>\n<|im_start|>assistant\n" for one in ("When?", "Where?")]
    assert shared_ends(chat) == ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n")
    assert shared_ends(["a?", "b?"]) == ("", "")
    assert shared_ends(["Who was it?"] * 2) == ("Who was it?", "")  # nothing but form, where no two differ
