"""The table of all recorded exchanges."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from semtoken.errors import SemtokenError
from semtoken.replies import score_reply
from tests.engines.held import doctoring
from tests.engines.held.exchanges import Exchange, load, reading, recorded
from tests.engines.held.requests import ASKED

TABLE = Path(__file__).parents[3] / "benchmarks" / "engines-held.md"
FLOAT32 = "; the same within {} nats"
CLOSE = {
    "langchain": 0.005,
    "litellm": 0.005,
    "llama-cpp-python": 0.001,
    "llama-server": 0.005,
    "llama-server-draft": 0.005,
    "llama-server-q4": 0.8,
    "mlx-lm": 0.001,
    "vllm": 0.001,
    "vllm-processed": 0.001,
}
"""Nats at a token within which a number is the model's own, by engine. float32 in both; llama-server-q4 computes with
the quantized weights themselves, which is too coarse to tell small faults."""
ARITHMETIC = {engine: FLOAT32.format(close) for engine, close in CLOSE.items()} | {
    "llama-server-q4": "; Q4_1 in the server, which computes with 8-bit activations; the same within 0.8 nats"
}
HEAD = """# Engines' numbers, held against the model's own

This page is written by `python -m tests.engines.held`. It starts an engine, asks it, and compares each
log-probability that semtoken reads with transformers in float32, teacher-forced on the reply's tokens with the same
weights (SmolLM2-135M-Instruct, Q4_1, dequantized to float32 for both). `raw` is the model's own distribution,
`processed` the one after bias, penalties, temperature, top-k and top-p. Requests with the same verdict share a row,
with the smallest and largest of their differences: each is the largest at a token, in nats. In `client-gone` the client
left a stream of 200 tokens. Beside each table stands what `semtoken doctor --quick` says. The default tests replay all.
"""
ROW = "|{}|{}|{}|{}|{}|\n"


def table() -> str:
    """The page."""
    text, consulted = HEAD, doctoring.consultations()
    for engine, group in groupby(in_order(), key=lambda exchange: exchange.engine):
        exchanges = list(group)
        first = exchanges[0]
        text += f"\n## {engine}\n\n{first.version}, {first.date}{ARITHMETIC.get(engine, '')}.\n\n"
        if engine in consulted:
            text += doctoring.line(consulted[engine]) + "\n\n"
        text += (
            ROW.format("requests", "semtoken calls it", "from raw", "from processed", "verdict") + "|---" * 5 + "|\n"
        )
        text += "".join(rows(exchanges))
    return text


def in_order() -> list[Exchange]:
    """All exchanges, engine by engine, in the order in which they were asked."""
    names = list(ASKED)
    return sorted(map(load, recorded()), key=lambda exchange: (exchange.engine, names.index(exchange.name)))


def rows(exchanges: list[Exchange]) -> Iterator[str]:
    """A row for all requests with the same verdict, with the smallest and largest of their differences."""
    alike: dict[tuple[str, str], list[Exchange]] = {}
    for exchange in exchanges:
        alike.setdefault(judged(exchange), []).append(exchange)
    for (called, said), group in alike.items():
        names = ", ".join(f"{one.name} ({one.note.split('; ')[-1]})" if one.note else one.name for one in group)
        found = [[furthest(one, kind) for one in group] for kind in ("raw", "processed")]
        yield ROW.format(names, called, *map(ends, found), said.replace("|", "\\|"))


def judged(exchange: Exchange) -> tuple[str, str]:
    """Semtoken's name for the numbers, and the verdict."""
    if exchange.status != 200:
        return "-", f"the server refuses it: {exchange.status}"
    parsed_reply, problem = reading(exchange.reply)
    called = "-" if parsed_reply is None or problem else parsed_reply.distribution
    return called, verdict(exchange, called, problem)


def ends(found: list[float | None]) -> str:
    """The smallest and the largest difference of those that are known."""
    known = sorted(value for value in found if value is not None)
    shown = [f"{value:.1e}" if value < 0.001 else f"{value:.3f}" for value in known]
    return " to ".join(dict.fromkeys((shown[0], shown[-1]))) if shown else "-"


def furthest(exchange: Exchange, kind: str) -> float | None:
    """The largest difference of all choices; None where one of them was not held."""
    found = [choice.furthest.get(kind) for choice in exchange.choices]
    return None if not found or None in found else max(value for value in found if value is not None)


def verdict(exchange: Exchange, called: str, problem: str) -> str:
    """Whether the numbers are what semtoken calls them."""
    if called == "-":
        return "no number: " + re.sub(
            r"^\d+ of \d+ ", "", re.split(r"[.:;] | before | and give ", problem)[0].rstrip(".")
        )
    if exchange.engine.endswith("-draft") and "zero_log_probabilities" in flags_of(exchange):
        return "flagged: the draft's tokens come with 0 in place of a number"
    same = [kind for kind in ("raw", "processed") if near(exchange, kind)]
    if called in same:
        return "holds"
    if same:
        return f"the numbers are {same[0]}"
    if furthest(exchange, "raw") is None:
        return "not held: the reply does not tell its tokens"
    if furthest(exchange, "processed") is None and called == "processed":
        return "not raw, as semtoken says; its grammar was not applied to the model"
    return "far from both"


def flags_of(exchange: Exchange) -> set[str]:
    """The flags of its scores."""
    try:
        return {flag.code for scored in score_reply(exchange.reply) for flag in scored.flags}
    except SemtokenError:  # a tool call alone, say
        return set()


def near(exchange: Exchange, kind: str) -> bool:
    """Whether the numbers are the model's own of this kind."""
    far = furthest(exchange, kind)
    return far is not None and far <= CLOSE[exchange.engine]
