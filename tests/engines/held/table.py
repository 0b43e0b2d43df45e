"""The table of all recorded exchanges."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from tests.engines.held.exchanges import Exchange, load, reading, recorded
from tests.engines.held.requests import ASKED

TABLE = Path(__file__).parents[3] / "docs" / "engines-held.md"
CLOSE = {"llama-server": 0.005, "llama-server-q4": 0.8, "vllm": 0.001, "vllm-processed": 0.001}
"""Nats at a token within which a number is the model's own, by engine. float32 in both; llama-server-q4 computes with
the quantised weights themselves, which is too coarse to tell small faults."""
ARITHMETIC = {
    "llama-server": ", dequantised to float32 for the server too; a number within 0.005 nats is the same",
    "llama-server-q4": ": the server computes with 8-bit activations; a number within 0.8 nats is the same",
    "vllm": " dequantised to float32; a number within 0.001 nats is the same",
    "vllm-processed": " dequantised to float32; a number within 0.001 nats is the same",
}
HEAD = """# Engines' numbers, held against the model's own

This page is written by `python -m tests.engines.held`. It starts an engine, asks it, and compares each
log-probability that semtoken reads with transformers in float32, teacher-forced on the reply's tokens with the same
weights. `raw` is the model's own distribution, `processed` the one after bias, penalties, temperature, top-k and top-p.
Differences are the largest at a token, in nats. The default tests replay every exchange here.
"""
ROW = "| {} | {} | {} | {} | {} |\n"


def table() -> str:
    """The page."""
    text = HEAD
    for engine, group in groupby(in_order(), key=lambda exchange: exchange.engine):
        exchanges = list(group)
        first = exchanges[0]
        text += (
            f"\n## {engine}\n\n{first.version}, {first.date}; weights: {first.weights}{ARITHMETIC.get(engine, '')}.\n\n"
        )
        text += ROW.format("request", "semtoken calls it", "from raw", "from processed", "verdict") + "|---" * 5 + "|\n"
        text += "".join(row(exchange) for exchange in exchanges)
    return text


def in_order() -> list[Exchange]:
    """All exchanges, engine by engine, in the order in which they were asked."""
    names = list(ASKED)
    return sorted(map(load, recorded()), key=lambda exchange: (exchange.engine, names.index(exchange.name)))


def row(exchange: Exchange) -> str:
    """One exchange's row."""
    if exchange.status != 200:
        return ROW.format(exchange.name, "-", "-", "-", f"the server refuses it: {exchange.status}")
    payload, problem = reading(exchange.reply)
    called = "-" if payload is None or problem else payload.distribution
    far = {kind: furthest(exchange, kind) for kind in ("raw", "processed")}
    shown = [
        "-" if far[kind] is None else f"{far[kind]:.1e}" if (far[kind] or 0) < 0.001 else f"{far[kind]:.3f}"
        for kind in far
    ]
    note = f" ({exchange.note})" if exchange.note else ""
    return ROW.format(exchange.name, called, *shown, (verdict(exchange, called, problem) + note).replace("|", "\\|"))


def furthest(exchange: Exchange, kind: str) -> float | None:
    """The largest difference of all choices; None where one of them was not held."""
    found = [choice.furthest.get(kind) for choice in exchange.choices]
    return None if not found or None in found else max(value for value in found if value is not None)


def verdict(exchange: Exchange, called: str, problem: str) -> str:
    """Whether the numbers are what semtoken calls them."""
    if called == "-":
        return "no number: " + problem.split(". ")[0].rstrip(".") + "."
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


def near(exchange: Exchange, kind: str) -> bool:
    """Whether the numbers are the model's own of this kind."""
    far = furthest(exchange, kind)
    return far is not None and far <= CLOSE[exchange.engine]
