"""One test over many rows: none is left out after one that fails or is skipped, and the failing ones are named."""

from __future__ import annotations

import pytest

from tests.rows import each


def test_every_row_is_tried_and_those_that_fail_are_named() -> None:
    tried = []

    @each("given, expected", [(1, 1), (2, 3), (0, 0), (4, 5)], ids=lambda value: f"n{value}")
    def check(given: int, expected: int) -> None:
        tried.append(given)
        if given == 0:
            pytest.skip("nothing is given")
        assert given == expected

    with pytest.raises(BaseExceptionGroup) as found:
        check()
    assert tried == [1, 2, 0, 4]
    assert ["n2-n3" in str(one.__notes__) for one in found.value.exceptions] == [True, False]
    assert "n4-n5" in str(found.value.exceptions[1].__notes__)


def test_what_was_left_out_is_said_where_no_row_fails() -> None:
    @each("given", [1, 0])
    def check(given: int) -> None:
        if not given:
            pytest.skip("nothing is given")

    with pytest.raises(pytest.skip.Exception, match="1 of 2 rows of given were left out"):
        check()


def test_a_table_without_rows_proves_nothing() -> None:
    with pytest.raises(AssertionError, match="No rows"):
        each("given", [])(lambda given: None)()
