"""Functions that are alive get changed code, or nothing happens."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutation.swapping import functions_in, swap

pytestmark = pytest.mark.slow  # it is about a tool of developers, which goes through all objects of this process

SOURCE = """
from functools import cache, wraps

LIMIT = 3

def doubled(function):
    @wraps(function)
    def twice(number):
        return 2 * function(number)
    return twice

@doubled
def below(number, most=LIMIT):
    return sum(1 for k in range(number) if k < most)

class Counted:
    step = 1

    @property
    def value(self):
        return self.step + 10

@cache
def kept():
    return 5
"""


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    file = tmp_path / "swapped.py"
    file.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("swapped", file)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def _swap(module: ModuleType, before: str, after: str) -> bool:
    assert SOURCE.count(before) == 1 and module.__file__ is not None
    functions = functions_in(str(Path(module.__file__).parent))
    return swap(module.__file__, SOURCE, SOURCE.replace(before, after), functions)


def test_a_function_behind_a_decorator_changes_and_so_does_what_is_in_it(module: ModuleType) -> None:
    assert module.below(9) == 6
    assert _swap(module, "k < most", "k <= most")
    assert module.below(9) == 8


def test_what_a_decorator_made_before_changes(module: ModuleType) -> None:
    assert _swap(module, "2 * function", "2 / function")
    assert module.below(9) == 2 / 3


def test_properties_and_functions_that_remember_change(module: ModuleType) -> None:
    assert _swap(module, "self.step + 10", "self.step - 10")
    assert module.Counted().value == -9
    assert _swap(module, "return 5", "return 6")
    assert module.kept() == 6


@pytest.mark.parametrize(
    ("before", "after"), [("LIMIT = 3", "LIMIT = 4"), ("most=LIMIT", "most=LIMIT + 1"), ("step = 1", "step = 1.0")]
)
def test_what_is_no_code_of_a_function_is_left_alone(module: ModuleType, before: str, after: str) -> None:
    assert not _swap(module, before, after)
    assert (module.LIMIT, module.below(9), module.Counted.step) == (3, 6, 1)
