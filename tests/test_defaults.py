"""Defaults and limits: as they are recorded, and the same for one setting at every door where it can be given."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import semtoken
from semtoken.cli.settings import KEYS, Settings, key_of
from semtoken.decisions.auditing import audit as audit_decisions
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.guarantees import Threshold
from semtoken.guarantees.auditing import audit_answers
from semtoken.guarantees.journal.watch import watch
from semtoken.support.garbage import rare_collections
from semtoken.web.proxy.settings import ProxySettings
from tests.rows import each

PACKAGE = Path(semtoken.__file__).parent
LEFT_OUT = {"integrations", "processor", "__main__"}
"""Modules that need tools which the tests lack, and what runs when it is imported."""


def defaults(door: Any) -> dict[str, Any]:
    """The default of each argument of a function, and of each field of a class, with its other public values."""
    of_class = vars(door).items() if inspect.isclass(door) else ()
    given = {name: value for name, value in of_class if not name.startswith("_")}
    for name, one in inspect.signature(door).parameters.items():
        is_options = type(one.default).__module__.startswith("semtoken.cli.")  # which stand for their fields
        given |= vars(one.default) if is_options else {name: one.default}
    return {name: value for name, value in given.items() if value is not inspect.Parameter.empty}


def _doors(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The functions of a module, and its classes with their public methods, by name."""
    for name, value in vars(module).items():
        if getattr(value, "__module__", "") != module.__name__ or not callable(value) or name.startswith("_"):
            continue
        if not (inspect.isclass(value) and issubclass(value, Exception | str)):
            yield name, value
            for inner, one in vars(value).items() if inspect.isclass(value) else ():
                method = getattr(one, "__func__", one)
                if inspect.isfunction(method) and not inner.startswith("_"):
                    yield f"{name}.{inner}", method


def _of_module(module: ModuleType) -> dict[str, dict[str, Any]]:
    """The defaults of its functions and classes that are plain values."""
    each_door = {name: defaults(door) for name, door in _doors(module)}
    plain = {
        name: {key: value for key, value in of_one.items() if isinstance(value, bool | int | float | str)}
        for name, of_one in each_door.items()
    }
    return {name: of_one for name, of_one in plain.items() if of_one}


def test_defaults_are_those_that_users_rely_on() -> None:
    """Whoever changes one changes what others get who leave it out, and so changes defaults.json, too."""
    found: dict[str, Any] = {"semtoken.toml": {key: key_of(Settings(), key) for key in KEYS}}
    for file in sorted(PACKAGE.rglob("*.py")):
        names = file.relative_to(PACKAGE.parent).with_suffix("").parts
        if not LEFT_OUT & set(names):
            place = ".".join(names).removesuffix(".__init__")
            found[place] = _of_module(importlib.import_module(place))
    recorded = Path(__file__).with_name("defaults.json").read_text("utf-8")
    assert json.loads(json.dumps({name: one for name, one in found.items() if one})) == json.loads(recorded)


def numbers(module: ast.Module, where: str) -> Iterator[tuple[str, Any]]:
    """The numbers to which a module gives a name, such as limits and least shares, with that name."""
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            pairs: Iterable[tuple[ast.expr, ast.expr]] = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=True)
            for name, value in pairs:
                if all(isinstance(part, OF_NUMBERS) for part in ast.walk(value)):
                    known = eval(compile(ast.Expression(value), where, "eval"))
                    yield f"{where} {ast.unparse(name)}", sorted(known) if isinstance(known, set) else known


OF_NUMBERS = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.Set, ast.operator, ast.unaryop, ast.expr_context)
"""The parts of an expression of numbers."""


def test_numbers_in_the_code_are_as_they_were_chosen() -> None:
    """Limits, least shares and sizes decide what users get: whoever changes one changes numbers.json, too."""
    with rare_collections(10**7):
        found = {
            name: value
            for file in sorted(PACKAGE.rglob("*.py"))
            for name, value in numbers(ast.parse(file.read_bytes()), file.relative_to(PACKAGE).as_posix())
            if any(isinstance(one, int | float) for one in (value if isinstance(value, tuple | list) else [value]))
        }
    recorded = json.loads(Path(__file__).with_name("numbers.json").read_text("utf-8"))
    assert json.loads(json.dumps(found)) == recorded


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
