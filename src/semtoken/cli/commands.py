"""Which commands there are, each loaded when it is used: the help of all reads this table and no command."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import typer
from typer.main import get_group

from semtoken.cli.help import ShortHelp


class CommandPlace(NamedTuple):
    """Where a command, or a group of them, is to be found."""

    module: str
    """The name of its module in `semtoken.cli`."""
    name: str
    """A function, or a `typer.Typer`."""
    summary: str
    """What it is for: the first paragraph of its help."""


PLACES: Mapping[str, CommandPlace] = {
    "ask": CommandPlace("ask", "ask", "Ask a model; see its answer, how uncertain it is, and which words are."),
    "score": CommandPlace("score", "score", "Score a file of prompts, or of prompts with responses, line by line."),
    "score-payload": CommandPlace(
        "payload",
        "score_payload",
        "Score replies that hold log-probabilities: of OpenAI and its like, vLLM, SGLang, llama.cpp.",
    ),
    "check": CommandPlace("check", "check", "Show which of your saved answers to check first, and why."),
    "cluster": CommandPlace(
        "cluster",
        "cluster",
        "Make the clusters of a model's tokens, once a model: a minute for 49,000 tokens, an hour for many more.",
    ),
    "clusters": CommandPlace("clusters", "app", "Look into clusters; list and remove those that are kept."),
    "label": CommandPlace("label", "label", "Say which answers are right: y or n, s to skip, u to undo, q to stop."),
    "calibrate": CommandPlace(
        "calibrate",
        "calibrate",
        "Make a calibrator from labelled answers: the chance of being right, a threshold with a promise, a report.",
    ),
    "drift": CommandPlace(
        "calibrate",
        "drift",
        "How far are recent scores, and hidden states, from those that the calibrator was fitted on?",
    ),
    "compare": CommandPlace(
        "compare",
        "compare",
        "Compare the headline with STC and fifteen other methods on questions whose answers are known.",
    ),
    "decide": CommandPlace("decide", "app", "Ask typed questions, calibrate the answers, audit another server."),
    "bench": CommandPlace(
        "bench", "app", "The paper's experiment on any model: answers, uncertainties, judgements, tables."
    ),
    "lm-eval": CommandPlace(
        "lm_eval",
        "lm_eval",
        "Run tasks of lm-evaluation-harness, with AUROC, PRR and calibration of the uncertainty beside their accuracy.",
    ),
    "mcp": CommandPlace(
        "mcp", "mcp", "Offer ask, score and check to agents, over stdin and stdout (Model Context Protocol)."
    ),
    "serve": CommandPlace(
        "serve",
        "serve",
        "Serve a model over an OpenAI-compatible API; every choice carries its uncertainty under the key semtoken.",
    ),
    "proxy": CommandPlace(
        "proxy",
        "proxy",
        "Put a proxy in front of an OpenAI-compatible server; every choice gets its uncertainty under semtoken.",
    ),
    "journal": CommandPlace("journal", "app", "Look into a journal of scored answers, take it out, delete from it."),
    "watch": CommandPlace(
        "watch", "watch", "Is the promise of the calibrator in use still kept? Look as often as you like."
    ),
    "doctor": CommandPlace(
        "doctor", "doctor", "Examine an OpenAI-compatible endpoint: can semtoken score its answers, and how well?"
    ),
    "demo": CommandPlace(
        "demo", "demo", "See a small model answer: what it is sure of, what it doubts, and what else it considered."
    ),
    "fetch": CommandPlace("models", "fetch", "Download a small real model, check it, and keep it in your cache."),
    "models": CommandPlace(
        "models", "models", "List the small real models that semtoken fetch knows, and which of them are here."
    ),
    "view": CommandPlace(
        "view", "view", "Make one HTML page of scored answers: riskiest first, with a slider and keys for labels."
    ),
}
"""In the order of the help."""


class CommandsOnDemand(Mapping[str, Any]):
    """The commands by name, as `typer` runs them. The module of a command is imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        place = PLACES[name]
        found = getattr(importlib.import_module(f"semtoken.cli.{place.module}"), place.name)
        alone = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False)
        if isinstance(found, typer.Typer):
            alone.add_typer(found, name=name)
        else:
            alone.command(name, cls=ShortHelp)(found)
        return get_group(alone).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(PLACES)

    def __len__(self) -> int:
        return len(PLACES)
