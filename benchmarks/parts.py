"""Time of all parts of an answer of 800 tokens, on one core, beside one pass of `json.loads` over its text.

    OMP_NUM_THREADS=1 python benchmarks/parts.py

The answer is prose with figures, a JSON object in a fence and a piece of code. Each line is the median of the runs; the
last one is everything together, which is to stay under 50 ms.
"""

from __future__ import annotations

import json
import random
import re
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from semtoken.choices import PartKind
from semtoken.core.results import ScoredAnswer, ScoredToken

KINDS: tuple[PartKind, ...] = ("word", "phrase", "sentence", "number", "reference", "field", "identifier", "tool_call")
PROSE = (
    "The invoice of 12 May 2024 comes to 1,234.50 EUR and is due within 30 days. It was not paid by bank transfer, as "
    "Dr. Smith wrote to a.b@example.org. See https://example.org/terms for what happens then. "
)
CODE = "```python\ndef total(lines, rate=0.19):\n    return sum(line.price * line.count for line in lines)\n```\n"


def answer_text() -> str:
    """Prose, a JSON object and code: about 800 tokens of four characters."""
    lines = [{"item": f"part {i}", "price": 10.5 * i, "count": i, "taxed": i % 2 == 0, "note": None} for i in range(18)]
    return PROSE * 4 + "\n```json\n" + json.dumps({"seller": "Müller & Söhne", "lines": lines}) + "\n```\n" + CODE


def scored_answer(text: str) -> ScoredAnswer:
    """The text as an answer in tokens such as tokenizers make them, with made-up probabilities."""
    draw = random.Random(0)
    tokens: list[ScoredToken] = []
    for match in re.finditer(r" ?[^\W\d]{1,6}|\d{1,3}| ?[^\w\s]+|\s+| ", text):
        log_prob = -draw.expovariate(4.0)
        tokens.append(
            ScoredToken(
                id=len(tokens),
                text=match.group(),
                start=match.start(),
                end=match.end(),
                log_probability=log_prob,
                log_agreeing_probability=0.8 * log_prob,
                log_surface_probability=0.9 * log_prob,
                log_meaning_probability=0.8 * log_prob,
                neutral=False,
                cluster_probability=0.0,
                prefix_probability=0.0,
                neutral_probability=0.0,
                alternatives=(),
            )
        )
    return ScoredAnswer(
        text=text,
        tokens=tuple(tokens),
        log_confidence=-1.0,
        preset="default",
        distribution="raw",
        neutral_only=False,
        signature="made up",
    )


def milliseconds(work: Callable[[], object], runs: int) -> float:
    """Median processor time of a call; the first one, which loads libraries, is left out."""
    work()
    times = []
    for _ in range(runs):
        start = time.process_time()
        work()
        times.append(1000 * (time.process_time() - start))
    return statistics.median(times)


def main(runs: Annotated[int, typer.Option(help="How often each is timed.")] = 20) -> None:
    """Print the table."""
    text = answer_text()
    answer = scored_answer(text)
    document = text[text.index("{") : text.rindex("}") + 1]
    print(f"{len(answer.tokens)} tokens, {len(text)} characters")
    for kind in KINDS:
        print(f"{kind:12} {len(answer.parts(kind)):5} parts {milliseconds(partial(answer.parts, kind), runs):8.2f} ms")
    whole = milliseconds(lambda: [answer.parts(kind) for kind in KINDS], runs)
    print(
        f"all parts {whole:.1f} ms; json.loads of the object {milliseconds(lambda: json.loads(document), runs):.2f} ms"
    )


if __name__ == "__main__":
    typer.run(main)
