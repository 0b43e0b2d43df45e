"""The recipe for DSPy, as it stands on the page, with `semtoken serve`."""

from __future__ import annotations

from semtoken import ScoredModel
from semtoken.support.almanac import Question
from tests.integrations.live.serving import served
from tests.integrations.recipes import run


def test_its_log_probabilities_give_an_interval_around_the_score_of_stc(
    stc: ScoredModel, questions: list[Question]
) -> None:
    with served(stc) as url:
        for question in questions[:4]:
            found = run("dspy.LM", BASE=f"{url}/v1", question=question.question)
            [answer] = stc.generate([question.prompt()], 24, stop_at_newline=True)
            lower, upper = found["scored"].sequence_uncertainty_interval
            assert lower - 1e-5 <= answer.sequence_uncertainty <= upper + 1e-5
            assert upper - lower < 0.1
