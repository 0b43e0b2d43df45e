"""Methods from outside: a function in a file (`path/to/file.py:function`), or entry points of installed packages.

Each is tried on one record before any model runs: a misspelled name or a missing import shows at once.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from semtoken.core.results.generation import LAYOUTS, Generation, Layout
from semtoken.errors import InvalidInputError
from semtoken.methods.table import METHODS, method, score, withdraw
from semtoken.support import extras
from semtoken.support.text import did_you_mean

_MODULES = "semtoken_methods_"
"""The names of the modules that are made from files begin with this."""
OWN = "own"
"""The family of a method that is a plain function in a file."""


def known_methods(names: Iterable[str]) -> list[str]:
    """The names in `METHODS` of some methods; those from outside are loaded and tried first."""
    known = []
    for name in names:
        if (found := found_method(name)) is None:
            if name.endswith(".py"):
                raise InvalidInputError(f"{name} is a file. Name the function in it, too: {name}:function.")
            raise InvalidInputError(
                f"There is no method {name}{did_you_mean(name, METHODS)}; there are {', '.join(METHODS)}. "
                "A function of your own is named by its file: path/to/file.py:function."
            )
        known.append(found)
    return known


def found_method(name: Any) -> str | None:
    """The name in `METHODS` of a method, which is loaded and tried if it is from outside; None where there is none."""
    if not isinstance(name, str):
        return None
    if is_outside(name):
        return load_method(name)
    if name not in METHODS:
        load_installed()
    return name if name in METHODS else None


def is_outside(name: str) -> bool:
    """Return True if the name of a method stands for a function in a file, `path/to/file.py:function`."""
    return name.rpartition(":")[0].endswith(".py")


def source_of(name: str) -> Path | None:
    """The file that a method comes from; None for a method of a package."""
    module = sys.modules.get(METHODS[name].function.__module__)
    return Path(str(module.__file__)) if module is not None and module.__name__.startswith(_MODULES) else None


def load_installed() -> None:
    """Load the methods and statistics that installed packages register, and try the methods."""
    before = set(METHODS)
    extras.installed(extras.STATISTICS)
    extras.installed(extras.METHODS)
    for name in set(METHODS) - before:
        try_out(name)


def load_method(name: str) -> str:
    """Load a function from a file, add it to `METHODS`, and try it.

    The file of `path/to/file.py:function` is run. A function with `@method` above it is entered as that says. Any other
    one is a method whose arguments are named after fields of `Generation`, such as `log_probs`; a higher number means a
    riskier answer. Returns its name in `METHODS`.
    """
    path, _, function_name = name.rpartition(":")
    module = _run(Path(path), name)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InvalidInputError(f"{path} has no function {function_name!r}.")
    entered = next((key for key, entry in METHODS.items() if entry.function is function), None)
    if entered is None:
        entered = _enter(function, function_name, path)
    try_out(entered)
    return entered


def _run(path: Path, name: str) -> ModuleType:
    """The module of a file, run once."""
    if not path.is_file():
        raise InvalidInputError(f"The method {name}: there is no file {path}.")
    # A name from the whole path: two files of one name in two folders are two modules.
    own = f"{_MODULES}{path.resolve().as_posix().replace('/', '_').removesuffix('.py')}"
    if own in sys.modules:
        return sys.modules[own]
    spec = importlib.util.spec_from_file_location(own, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Before it is run, as imports do: dataclasses and pickle look their module up by name.
    sys.modules[own] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever somebody's file raises
        del sys.modules[own]
        raise InvalidInputError(f"The method {name}: {path} cannot be run: {type(error).__name__}: {error}") from error
    return module


def _enter(function: Callable[..., float], name: str, path: str) -> str:
    """A plain function becomes a method that reads the fields which its arguments name."""
    if name in METHODS:
        raise InvalidInputError(f"{path} calls its method {name!r}, and there is one of that name. Choose another.")
    parameters = inspect.signature(function).parameters.values()
    needs = tuple(argument.name for argument in parameters if argument.default is inspect.Parameter.empty)
    if unknown := [argument for argument in needs if argument not in LAYOUTS]:
        raise InvalidInputError(
            f"The arguments of {name} in {path} must be named after what is recorded of an answer, and "
            f"{unknown[0]}{did_you_mean(unknown[0], LAYOUTS)} is not. There are {', '.join(LAYOUTS)}."
        )
    described = method(
        name,
        title=name,
        family=OWN,
        needs=needs,
        range=(-math.inf, math.inf),
        reference=path,
        single_sample=not any(LAYOUTS[argument].per == "sample" for argument in needs),
        monotone=False,
    )
    described(function)
    return name


def try_out(name: str) -> None:
    """Apply a method to a made-up record, so that errors show before any model runs."""
    entry = METHODS[name]
    if unknown := [field for field in entry.needs if field not in LAYOUTS]:
        raise InvalidInputError(f"The method {name} needs {', '.join(unknown)}, which no statistic records.")
    try:
        given = score(name, trial_record())
        # float() takes an array of one element, and with other answers it would fail in the middle of a run.
        if np.ndim(given):
            raise TypeError(f"it returns an array of shape {np.shape(given)}, not one number")
        value = float(given)
    except Exception as error:  # whatever somebody's function raises
        withdraw(name)
        raise InvalidInputError(
            f"The method {name} ({entry.reference}) fails on a record that it was tried on before any model runs: "
            f"{type(error).__name__}: {error}"
        ) from error
    if math.isnan(value):
        withdraw(name)
        raise InvalidInputError(f"The method {name} ({entry.reference}) gives NaN for a record that it was tried on.")


def trial_record() -> Generation:
    """A made-up answer of three tokens with three samples and all fields recorded."""
    logs = np.log([0.8, 0.6, 0.9])
    best = np.log([0.6, *[0.4 / 23] * 23])
    own: dict[str, Any] = {
        "token_texts": [" Blue", " whale", "\n"],
        "log_probs": logs,
        "top_ids": [np.array([1, 2])] * 3,
        "top_texts": [[" Blue", " Red"]] * 3,
        "top_log_probs": [np.log([0.6, 0.3])] * 3,
        "sample_texts": [" Blue whale", " Whale", " Shark"],
        "sample_token_ids": [[1, 2]] * 3,
        "sample_log_probs": [np.log([0.7, 0.5])] * 3,
        "p_true_log_probs": np.log([0.6, 0.2]),
        "nli_logits": np.zeros((3, 3, 3)) + np.eye(3)[:, :, None] * [-2.0, 0.0, 2.0],
        "similarity": np.full((3, 3), 0.5) + 0.5 * np.eye(3),
        "sample_token_similarity": [np.array([0.5, 0.9])] * 3,
        "nli_chosen_to_alternative": [np.array([2, 0])] * 3,
        "nli_alternative_to_chosen": [np.array([2, 0])] * 3,
        "hidden_states": np.cos(np.arange(24.0)).reshape(3, 8),
        "best_log_probs": [best[:20]] * 3,
        "attention_to_previous": np.full((3, 4, 2), 0.3),
        "new_word_log_probs": logs[:2],
        "phrase_log_probs": logs[:1],
        "new_phrase_log_probs": logs[:1],
        "stc_log_score": -0.7,
        "stc_no_clustering_log_score": -0.8,
        "stc_no_prefix_log_score": -0.8,
        "default_log_score": -0.8,
    }
    others = {name: _made_up(layout) for name, layout in LAYOUTS.items() if name not in own}
    start = Generation("Blue whale", [1, 2, 3], question="What is the largest animal?", prompt="What is it?")
    return start.with_fields(
        {name: recorded for name, recorded in (others | own).items() if name not in ("text", "token_ids")}
    )


def _made_up(layout: Layout) -> Any:
    """A value of a field that is laid out like that."""
    value: Any = "text" if layout.kind == "string" else 1 if layout.kind.startswith("int") else 0.5
    for _ in range(layout.depth):
        value = [value] * 3
    if layout.form == "array":
        return np.array(value)
    return [np.array(element) for element in value] if layout.form == "arrays" else value
