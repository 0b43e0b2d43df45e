"""From labelled answers to a chance, a decision and a promise, with the model that is built into semtoken.

    python examples/calibrate.py [DIRECTORY]

Answers the built-in development questions, fits on those, and decides on a few test questions. DIRECTORY receives the
calibrator; without it a temporary one.
"""

from __future__ import annotations

import sys
import tempfile

import semtoken as st
from semtoken.almanac.questions import is_correct, load_questions

directory = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
stc = st.STC.from_pretrained("almanac")

known = load_questions("dev")[:300]
scored = stc.generate([question.prompt() for question in known], 16, batch_size=32, stop_at_newline=True)
correct = [is_correct(answer.text, question) for answer, question in zip(scored, known, strict=True)]

calibrator = st.Calibrator.fit(scored, correct)
threshold = st.Threshold.fit(scored, correct, alpha=0.2)
calibrator.save(directory, threshold)
print(threshold.statement)

calibrator = st.Calibrator.load(directory)
new = load_questions("test")[:8]
for question, answer in zip(new, stc.generate([q.prompt() for q in new], 16, stop_at_newline=True), strict=True):
    decision = calibrator.decide(answer)
    print(f"{decision.chance:.0%}  {decision.action:7}  {question.question}  {answer.text.strip()}")
