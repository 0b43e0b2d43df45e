"""The questions of PROTOCOL.md in their drawn order: NQ.jsonl, WQ.jsonl, CHAT.jsonl, TriviaQA for development, the
further questions of it that research/experiments/learned/PROTOCOL-2.md asks, and the new ones of PROTOCOL-5.md and
PROTOCOL-6.md.

python research/experiments/headline/draw.py FOLDER_OF_THE_SETS OUT
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from itertools import chain
from pathlib import Path
from typing import Any

FILES = {"nq": "nq_open_dev", "wq": "webquestions_test", "tqa": "triviaqa_validation"}
Questions = list[dict[str, Any]]


def in_random_order(lines: Questions) -> Questions:
    """All of a set."""
    order = list(range(len(lines)))
    random.Random(25).shuffle(order)  # noqa: S311
    return [lines[i] for i in order]


def not_drawn_before(name: str, lines: Questions) -> Questions:
    """What no earlier experiment asked as a chat, nor of TriviaQA at all."""
    drawn = random.Random(7).sample(lines, 260)  # noqa: S311
    if name == "tqa":
        drawn += random.Random(3).sample(lines, 1500) + random.Random(0).sample(lines, 3000)  # noqa: S311
    seen = {question["id"] for question in drawn}
    return [question for question in lines if question["id"] not in seen]


def chat(sets: dict[str, Questions]) -> Questions:
    """700 of each set, in turn."""
    parts = [random.Random(25).sample(not_drawn_before(name, lines), 700) for name, lines in sets.items()]  # noqa: S311
    return list(chain.from_iterable(zip(*parts, strict=True)))


STYLES = ("chat-sentence-new", "chat-plain-new", "bare-new")
SENTENCE = "Answer in one short sentence. "


def new_questions(sets: dict[str, Questions], drawn: dict[str, Questions]) -> dict[str, Questions]:
    """For each style 300 questions of NQ and 900 of TriviaQA that nobody was asked before, one of NQ, then three of
    the other. All of WQ has been asked.
    """
    asked = {question["id"] for name in ("chat", "tqa", "tqa-new") for question in drawn[name]}
    asked |= {question["id"] for question in drawn["nq"][:2048]}
    rest = {}
    for name, each in (("nq", 300), ("tqa", 900)):
        left = [question for question in not_drawn_before(name, sets[name]) if question["id"] not in asked]
        rest[name] = random.Random(48).sample(left, len(STYLES) * each)  # noqa: S311
    found = {}
    for i, style in enumerate(STYLES):
        nq, tqa = rest["nq"][300 * i : 300 * (i + 1)], rest["tqa"][900 * i : 900 * (i + 1)]
        questions = chain.from_iterable(zip(nq, tqa[::3], tqa[1::3], tqa[2::3], strict=True))
        found[style] = [in_style(question, style) for question in questions]
    return found


ANSWERED = {"chat-sentence-new": 768, "chat-plain-new": 768, "bare-new": 1024}
"""How many of the questions of PROTOCOL-5.md, in their drawn order, a model has answered."""


def sixth_questions(sets: dict[str, Questions], drawn: dict[str, Questions]) -> dict[str, Questions]:
    """For each style of chat 900 questions of TriviaQA that no model was asked."""
    asked = {question["id"] for name, questions in drawn.items() for question in questions[: ANSWERED.get(name)]}
    left = [question for question in not_drawn_before("tqa", sets["tqa"]) if question["id"] not in asked]
    sample = random.Random(59).sample(left, 1800)  # noqa: S311
    parts = {"chat-sentence-six": sample[:900], "chat-plain-six": sample[900:]}
    return {style: [in_style(question, style) for question in questions] for style, questions in parts.items()}


def in_style(question: dict[str, Any], style: str) -> dict[str, Any]:
    """The question with what is sent, where that is more than the question."""
    return question | {"asked": SENTENCE + question["question"]} if "sentence" in style else question


def main() -> None:
    """The command."""
    folder, out = map(Path, sys.argv[1:])
    sets: dict[str, Questions] = {}
    for name, file in FILES.items():
        with gzip.open(folder / f"{file}.jsonl.gz", "rt", encoding="utf-8") as lines:
            sets[name] = [json.loads(line) | {"set": name} for line in lines]
    drawn = {name: in_random_order(sets[name]) for name in ("nq", "wq")} | {"chat": chat(sets)}
    drawn["tqa"] = random.Random(3).sample(sets["tqa"], 1500)  # noqa: S311
    drawn["tqa-new"] = random.Random(3).sample(sets["tqa"], 3548)[1500:]  # noqa: S311
    drawn |= new_questions(sets, drawn)
    drawn |= sixth_questions(sets, drawn)
    drawn |= {f"{style}-old": [in_style(q, style) for q in drawn["chat"]] for style in ("chat-sentence", "chat-plain")}
    drawn["bare-old"] = [question for question in drawn["chat"] if question["set"] != "wq"]
    out.mkdir(parents=True, exist_ok=True)
    for name, questions in drawn.items():
        text = "".join(json.dumps(question, ensure_ascii=False) + "\n" for question in questions)
        (out / f"{name}.jsonl").write_text(text, encoding="utf-8")
        print(f"{name}: {len(questions):,} questions")


if __name__ == "__main__":
    main()
