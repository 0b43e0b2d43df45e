"""The function that scores a batch of lines, by the embedded model, beside calls of the model for each line alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import semtoken as st
from semtoken.bench.score_file import Item, ScoringJob
from semtoken.bench.score_file.batches import batch_scorer, facts_of
from semtoken.bench.score_file.lines import item_of
from semtoken.support.almanac import load_questions
from semtoken.support.files.record_files import Record
from tests.json_lines import read_lines, write_lines

ASKED = load_questions("test")[:3]
LINES = [
    {"question": ASKED[0].question},
    {"prompt": ASKED[1].prompt()},
    {"question": ASKED[2].question},
    {"question": ASKED[1].question, "response": "Oslo"},
]


@pytest.fixture(scope="module")
def model() -> st.ScoredModel:
    return st.ScoredModel.from_pretrained("almanac")


def items() -> list[Item]:
    made = [item_of(Record(number, fields)) for number, fields in enumerate(LINES, start=1)]
    assert all(isinstance(one, Item) for one in made)
    return [one for one in made if isinstance(one, Item)]


def numbers(answers: list[st.ScoredAnswer]) -> list[tuple[str, float | None]]:
    return [(one.text, pytest.approx(one.log_confidence, abs=1e-5)) for one in answers]  # type: ignore[misc]


def test_questions_are_asked_in_the_form_of_the_model_and_answers_come_in_order(model: st.ScoredModel) -> None:
    found = batch_scorer(model, "almanac", max_new_tokens=12)(items())
    wanted = [
        *model.generate([ASKED[0].prompt()], 12, stop_at_newline=True),
        *model.generate([ASKED[1].prompt()], 12, stop_at_newline=False),
        *model.generate([ASKED[2].prompt()], 12, stop_at_newline=True),
        *model.score([ASKED[1].prompt()], ["Oslo"]),
    ]
    assert [(one.text, one.log_confidence) for one in found] == numbers(wanted)


@pytest.mark.parametrize(("raw", "ends"), [(False, [(1, False), (2, True)]), (True, [(3, False)])])
def test_only_answers_to_questions_end_at_a_newline(
    model: st.ScoredModel, monkeypatch: pytest.MonkeyPatch, raw: bool, ends: list[tuple[int, bool]]
) -> None:
    """The embedded model ends at a newline by itself, so what it is asked for is looked at on the way to it."""
    generate, asked = model.generate, []

    def seen(prompts: Any, *numbers: Any, **options: Any) -> Any:
        asked.append((len(prompts), options["stop_at_newline"]))
        return generate(prompts, *numbers, **options)

    monkeypatch.setattr(model, "generate", seen)
    batch_scorer(model, "almanac", max_new_tokens=2, raw=raw)(items())
    assert asked == ends


def test_raw_questions_stay_as_they_are(model: st.ScoredModel) -> None:
    found = batch_scorer(model, "almanac", max_new_tokens=6, raw=True)(items()[:1])
    assert [(one.text, one.log_confidence) for one in found] == numbers(model.generate([ASKED[0].question], 6))


def test_a_job_keeps_the_facts_of_its_model(model: st.ScoredModel, tmp_path: Path) -> None:
    facts = facts_of(model)
    assert (facts["device_used"], facts["dtype_used"]) == (str(model.backend.model.device), "torch.float32")
    assert facts["clusters_signature"] is None
    source = write_lines(tmp_path / "in.jsonl", LINES)
    job = ScoringJob(source, tmp_path / "out.jsonl", facts, batch_size=4)
    job.run(batch_scorer(model, "almanac", max_new_tokens=3))
    assert [line["response"] for line in read_lines(tmp_path / "out.jsonl")][3] == "Oslo"
    assert job.is_finished(job.check())
