"""Defaults: as they are recorded, and the same for one setting at every door where it can be given."""

from __future__ import annotations

import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import semtoken
from semtoken.bench.datasets import read_dataset
from semtoken.bench.judges.kinds import RougeJudge, SimilarityJudge
from semtoken.bench.judges.llm import LLMJudge
from semtoken.bench.settings import (
    ClusteringSettings,
    ControlsSettings,
    DatasetSettings,
    DecodingSettings,
    ModelSettings,
    RunSettings,
)
from semtoken.cli.commands import leaves
from semtoken.cli.help import command_at
from semtoken.cli.settings import KEYS, Settings, key_of
from semtoken.clustering.token_clusters import ClusterSettings
from semtoken.decisions.auditing import audit as audit_decisions
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.guarantees import Threshold
from semtoken.guarantees.auditing import audit_answers
from semtoken.guarantees.journal.watch import watch
from semtoken.support.executors.ray import RayExecutor
from semtoken.web.doctor.diagnosis import Streaming
from semtoken.web.proxy.settings import ProxySettings
from tests.rows import each

ROOT = Path(__file__).parents[1]
FURTHER = (
    *(RunSettings, ModelSettings, DatasetSettings, DecodingSettings, ControlsSettings, ClusteringSettings),
    *(ClusterSettings, RougeJudge, SimilarityJudge, LLMJudge, RayExecutor, ProxySettings, read_dataset, Streaming),
)
"""What the pages describe in words, beside the objects of docs/api."""


def defaults(door: Any) -> dict[str, Any]:
    """The default of each argument of a function, and of each field of a class."""
    given = {name: one.default for name, one in inspect.signature(door).parameters.items()}
    for name, value in list(given.items()):
        if type(value).__module__.startswith("semtoken.cli."):  # a class of options, which stands for its fields
            given |= vars(given.pop(name))
    return {name: value for name, value in given.items() if value is not inspect.Parameter.empty}


def documented() -> Iterator[tuple[str, Any]]:
    """The functions, classes and public methods that the pages describe, by name."""
    pages = "\n".join(page.read_text("utf-8") for page in sorted((ROOT / "docs" / "api").glob("*.md")))
    for name in re.findall(r"^::: (semtoken\S*)", pages, re.MULTILINE):
        yield from _doors(pkgutil.resolve_name(name))
    for one in FURTHER:
        yield from _doors(one)
    for place in leaves():
        yield "semtoken " + " ".join(place), command_at(place).default_command


def _doors(value: Any) -> Iterator[tuple[str, Any]]:
    members = {name: getattr(one, "__func__", one) for name, one in vars(value).items() if not name.startswith("_")}
    if inspect.ismodule(value):
        for name in getattr(value, "__all__", None) or members:
            one = getattr(value, name)
            if getattr(one, "__module__", "").startswith(value.__name__):
                yield from _doors(one)
    elif callable(value):
        yield value.__qualname__, value
        for name, one in members.items() if inspect.isclass(value) else ():
            if inspect.isfunction(one):
                yield f"{value.__qualname__}.{name}", one


def test_defaults_are_those_that_users_rely_on() -> None:
    """Whoever changes one changes what others get who leave it out, and so changes defaults.json, too."""
    found = {name: defaults(door) for name, door in documented() if not _is_error(door)}
    found["semtoken.toml"] = {key: key_of(Settings(), key) for key in KEYS}
    plain = {
        name: {key: value for key, value in of_one.items() if isinstance(value, bool | int | float | str)}
        for name, of_one in found.items()
    }
    recorded = json.loads(Path(__file__).with_name("defaults.json").read_text("utf-8"))
    assert {name: of_one for name, of_one in plain.items() if of_one} == recorded


def _is_error(door: Any) -> bool:
    return inspect.isclass(door) and issubclass(door, Exception)


MEBIBYTE = 2**20
FITS = (Threshold.fit, DecisionCalibrator.fit)
OF_THE_LIBRARY: list[tuple[str, Any, str, float]] = [
    ("endpoint.top_logprobs", ProxySettings, "top_logprobs", 1),
    ("proxy.hold_seconds", ProxySettings, "hold", 1),
    ("decisions.route", ProxySettings, "decisions", 1),
    ("decisions.concurrency", ProxySettings, "decision_requests", 1),
    ("limits.request_mb", ProxySettings, "max_request_bytes", MEBIBYTE),
    ("limits.reply_mb", ProxySettings, "max_scored_bytes", MEBIBYTE),
    ("limits.scored_tokens", ProxySettings, "max_scored_tokens", 1),
    ("limits.scoring_seconds", ProxySettings, "max_scoring_seconds", 1),
    ("limits.connections", ProxySettings, "max_connections", 1),
    ("limits.connect_seconds", ProxySettings, "connect_timeout", 1),
    ("limits.read_seconds", ProxySettings, "read_timeout", 1),
    ("limits.request_seconds", ProxySettings, "request_timeout", 1),
    *(("guarantee.alpha", fit, "alpha", 1) for fit in FITS),
    *(("guarantee.delta", fit, "delta", 1) for fit in FITS),
    *(("guarantee.kind", fit, "guarantee", 1) for fit in FITS),
    *(("audit.level", audited, "level", 1) for audited in (audit_answers, audit_decisions, watch)),
    ("model.batch_size", semtoken.ScoredModel.generate, "batch_size", 1),
    *((f"model.{name}", semtoken.ScoredModel.from_pretrained, name, 1) for name in ("backend", "dtype")),
    ("model.trust_remote_code", semtoken.ScoredModel.from_pretrained, "trust_remote_code", 1),
]
"""A key of the settings of commands, what it is given to, the argument there, and its unit in that of the argument."""


@each(("key", "door", "argument", "unit"), OF_THE_LIBRARY)
def test_a_command_without_settings_does_what_the_library_does(key: str, door: Any, argument: str, unit: float) -> None:
    assert key_of(Settings(), key) * unit == defaults(door)[argument]
