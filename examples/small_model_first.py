"""A small model answers; a large one is asked where the small one is not sure; one guarantee covers both.

    python examples/small_model_first.py [SMALL LARGE]

SMALL and LARGE are directories or hub ids. Without them both are the model that is built into semtoken, so that the
script runs at once: the second one is then asked again in vain. The questions, their answers and who is right are the
built-in ones, too.
"""

from __future__ import annotations

import random
import sys

from cascade import Cascade, CascadeThreshold

import semtoken as st
from semtoken.support.almanac import Question, is_correct, load_questions

models = [st.ScoredModel.from_pretrained(name) for name in (sys.argv[1:3] or ["almanac", "almanac"])]
draw = random.Random(0)  # noqa: S311 - the sets are in order of what is asked
known, more = draw.sample(load_questions("dev"), 100), draw.sample(load_questions("test"), 220)
options = {"batch_size": 32, "stop_at_newline": True}


def answers(model: st.ScoredModel, questions: list[Question]) -> list[st.ScoredAnswer]:
    """Short answers of one of the models."""
    return model.generate([question.prompt() for question in questions], 16, **options)


def labels(scored: list[st.ScoredAnswer]) -> list[bool]:
    """Which answers to the labeled questions are right."""
    return [is_correct(answer.text, question) for answer, question in zip(scored, known, strict=True)]


small, large = (answers(model, known) for model in models)
without_labels = tuple(answers(model, more) for model in models)
threshold = CascadeThreshold.fit(small, labels(small), large, labels(large), unlabeled=without_labels, alpha=0.3)
print(threshold.statement)

asked = draw.sample(load_questions("test"), 8)
cascade = Cascade(*models, threshold)
for question, found in zip(asked, cascade.answer([one.prompt() for one in asked], 16, **options), strict=True):
    print(f"{found.model:6}  {found.decision.action:7}  {question.question}  {found.response.text.strip()}")
