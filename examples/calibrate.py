"""From labeled answers to a probability, a decision and a guarantee, with the model that is built into semtoken.

    python examples/calibrate.py [DIRECTORY [RECENT.jsonl]]

Answers the built-in development questions, fits on those, and decides on test questions, of which a few are shown.
DIRECTORY receives the calibrator; without it a temporary one. RECENT.jsonl receives the answers to the test questions,
as `semtoken audit` reads them.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import semtoken as st
from semtoken.support.almanac import is_correct, load_questions

directory = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
model = st.ScoredModel.from_pretrained("almanac")

draw = random.Random(0)  # noqa: S311 - the sets are in order of what is asked
known = draw.sample(load_questions("dev"), 300)
scored = model.generate([question.prompt() for question in known], 16, batch_size=32, stop_at_newline=True)
correct = [is_correct(answer.text, question) for answer, question in zip(scored, known, strict=True)]

calibrator = st.Calibrator.fit(scored, correct)
threshold = st.Threshold.fit(scored, correct, alpha=0.2)
calibrator.save(directory, threshold)
print(threshold.statement)

calibrator = st.Calibrator.load(directory)
new = draw.sample(load_questions("test"), 200)
answers = model.generate([question.prompt() for question in new], 16, batch_size=32, stop_at_newline=True)
for question, answer in list(zip(new, answers, strict=True))[:8]:
    decision = calibrator.decide(answer)
    print(f"{decision.probability_correct:.0%}  {decision.action:7}  {question.question}  {answer.text.strip()}")
if len(sys.argv) > 2:
    Path(sys.argv[2]).write_text("".join(answer.to_json() + "\n" for answer in answers), encoding="utf-8")
