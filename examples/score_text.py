"""Score text that already exists, and show it shaded in the terminal and as a web page.

    python examples/score_text.py [MODEL [CLUSTERS [PAGE.html]]]

MODEL is a directory or hub id; without it, the model that is built into semtoken.
"""

from __future__ import annotations

import sys
from pathlib import Path

import rich

import semtoken as st
from semtoken.display import shaded_html, shaded_text, token_table

name, clusters, page = (*sys.argv[1:], *("almanac", None, None)[len(sys.argv) - 1 :])

model = st.ScoredModel.from_pretrained(name or "almanac", clusters=clusters)
prompt = "Answer these questions:\n\nQuestion:\nWhat is the capital of Japan?\nAnswer:\n"
answers = model.score([prompt] * 3, ["Tokyo\n", "Kyoto\n", "the capital of Japan is Tokyo\n"])

for answer in answers:
    rich.print(shaded_text(answer), f"  {answer.summary}")
rich.print(token_table(answers[0]))
if page is not None:
    Path(page).write_text("".join(map(shaded_html, answers)), encoding="utf-8")
