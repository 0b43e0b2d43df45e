"""Public functions with arguments that nobody expects: they answer rightly, or refuse with an error of ours."""

from __future__ import annotations

import contextlib
import inspect
import math
import random
import resource
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from semtoken.errors import SemtokenError
from tests.hostile.endings import fault_of
from tests.hostile.forms import ODD, ODD_ARRAYS, REFUSED, SAME, Expected
from tests.hostile.outcomes import Outcome, case_random

MEMORY = 2 * 2**30  # bytes that one call may ask for beyond what the process has


OF_THE_CALLER = ("progress", "on_result", "on_checked", "timings")
"""Arguments that are called or filled: what an odd one raises is the caller's own."""


@dataclass(frozen=True)
class Target:
    """A public function with a call that works."""

    function: Callable[..., Any]
    given: Mapping[str, Any]
    """Arguments that work, beside the defaults of the others; those that are numpy arrays of float64 take any form of
    numbers."""
    low: float = -math.inf
    high: float = math.inf
    """The least number and the greatest that it may give."""
    nan: bool = False
    """NaN is an answer: undefined."""
    weight: float = 1.0
    """How often it is called, beside others."""
    booleans: tuple[str, ...] = ()
    """Arguments of right and wrong, of which true and false are forms."""
    refuses: bool = False
    """Even the call that works ends with an error of ours, for want of a file or of more steps."""
    read: Callable[[Any], Any] | None = None
    """Takes from its result whatever is looked at; None: the whole."""
    named: str = ""
    """Its name, where that of the function does not tell it from another."""

    @property
    def name(self) -> str:
        """The name of the function, with its class."""
        return self.named or getattr(self.function, "func", self.function).__qualname__

    @cached_property
    def good(self) -> Mapping[str, Any]:
        """All arguments of the call that works."""
        left_alone = {*OF_THE_CALLER, *getattr(self.function, "keywords", ())}  # those of a partial function
        parameters = inspect.signature(self.function).parameters.values()
        options = [one for one in parameters if one.default is not one.empty and one.name not in left_alone]
        return {one.name: one.default for one in options} | dict(self.given)

    def call(self, **arguments: Any) -> Any:
        """The part of its result that is looked at."""
        found = self.function(**arguments)
        return found if self.read is None else self.read(found)


@dataclass(frozen=True)
class Case:
    """One call."""

    target: Target
    arguments: Mapping[str, Any]
    expected: Expected
    how: str


def make_case(rng: random.Random, targets: list[Target]) -> Case:
    """A call of one function with one or two arguments changed."""
    target = rng.choices(targets, weights=[one.weight for one in targets])[0]
    arguments = dict(target.good)
    arrays = [name for name, value in arguments.items() if isinstance(value, np.ndarray) and value.dtype == np.float64]
    kind = rng.random()
    name = rng.choice(list(arguments))
    if kind < 0.25 and arrays:
        name = rng.choice(arrays)
        form = rng.choice(list(SAME))
        arguments[name] = SAME[form](arguments[name])
        return Case(target, arguments, "same", f"{name}: {form}")
    if kind < 0.5 and arrays:
        name = rng.choice(arrays)
        form = rng.choice(list(REFUSED))
        arguments[name] = REFUSED[form](arguments[name])
        return Case(target, arguments, "refused", f"{name}: {form}")
    changes = []
    for _ in range(rng.choice([1, 1, 2])):
        value = target.good[name]
        if name in arrays and rng.random() < 0.7:
            arguments[name] = rng.choice(ODD_ARRAYS)(rng, value)
        else:
            arguments[name] = rng.choice(ODD)
        changes.append(f"{name}: {shown(arguments[name])}")
        name = rng.choice(list(arguments))
    return Case(target, arguments, "anything", ", ".join(changes))


def shown(value: Any) -> str:
    """A value in a few characters."""
    try:
        return repr(value)[:80].replace("\n", " ")
    except Exception:
        return object.__repr__(value)


def judge(case: Case, right: Mapping[str, Any]) -> str | None:
    """Call; what is wrong with how it ended, None: nothing. `right` is what each function answers to good arguments."""

    def work() -> str | None:
        try:
            found = case.target.call(**case.arguments)
        except SemtokenError as error:
            if case.expected == "same":
                return f"refused the same numbers: {error}"
            raise
        if case.expected == "refused":
            return f"answered {shown(found)}"
        if case.expected == "same" and not alike(found, right[case.target.name]):
            return f"answered {shown(found)}, not {shown(right[case.target.name])}"
        return next((f"answered {number}" for number in numbers_in(found) if not in_range(number, case.target)), None)

    return fault_of(work)


def answer_of(target: Target) -> Any:
    """The answer of a function to its good arguments; None where it refuses them, as it then must."""
    if not target.refuses:
        return target.call(**target.good)
    try:
        target.call(**target.good)
    except SemtokenError:
        return None
    raise AssertionError(f"{target.name} answers")


def in_range(number: float, target: Target) -> bool:
    """Whether a function may answer with a number."""
    if math.isnan(number):
        return target.nan
    slack = 1e-9 * max(1.0, abs(number))
    return target.low - slack <= number <= target.high + slack


def numbers_in(found: Any) -> list[float]:
    """The numbers of an answer whose range is known: those of floats, arrays and lists of them."""
    if isinstance(found, bool):
        return []
    if isinstance(found, int | float | np.floating | np.integer):
        return [float(found)]
    if isinstance(found, np.ndarray | list | tuple):
        return [number for item in list(found)[:50] for number in numbers_in(item)]
    return []


def alike(one: Any, two: Any) -> bool:
    """Equality up to rounding, in which a NaN equals another."""
    if isinstance(one, int | float | np.floating) and isinstance(two, int | float | np.floating):
        return math.isclose(one, two, rel_tol=1e-6, abs_tol=1e-9) or (math.isnan(one) and math.isnan(two))
    if isinstance(one, np.ndarray | list | tuple) and isinstance(two, np.ndarray | list | tuple):
        return len(one) == len(two) and all(alike(a, b) for a, b in zip(one, two, strict=True))
    return bool(one == two)


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """Calls that ask for much more memory than the process has get a MemoryError, which is not ours."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def without_hub() -> Iterator[None]:
    """No name is looked up on the hub: an odd text where a model's name may stand would wait for a network."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def attack(seed: int, calls: int, first: int = 0, targets: list[Target] | None = None) -> Outcome:
    """Call public functions; case `first` and those after it."""
    from tests.hostile.targets import all_targets

    chosen = all_targets() if targets is None else targets
    outcome = Outcome("functions", f"calls of {len(chosen)} public functions with odd arguments")
    kinds: dict[str, int] = {}
    start = time.monotonic()
    with warnings.catch_warnings(), np.errstate(all="ignore"), without_hub():
        warnings.simplefilter("ignore")
        right = {one.name: answer_of(one) for one in chosen}
        with little_memory():
            for number in range(first, first + calls):
                case = make_case(case_random(seed, "functions", number), chosen)
                where = f"{case.target.name}({case.how}) [--seed {seed} --first {number} --calls 1]"
                outcome.count(judge(case, right), where)
                kinds[case.expected] = kinds.get(case.expected, 0) + 1
    counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    outcome.notes.append(f"{counts}; {time.monotonic() - start:.0f} s")
    return outcome
