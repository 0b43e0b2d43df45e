"""The rounding of an answer's numbers: by how much the least probability of each token is below its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest

from semtoken import score_logprobs
from semtoken.core.engine_tokens import TopStep, TopToken
from tests.core.lists import CITIES, EXACT, agreeing, codes, in_bytes, step
from tests.rows import each

SLACK = 1e-5
"""The error that every number may have."""
HALF, QUARTER = 2.0**-7, 2.0**-10
"""The relative errors of bfloat16 and float16."""
IN_FULL = math.log(0.3)


def off(*numbers: float) -> list[float]:
    """By how much each number may be too high, beyond the error that all have."""
    steps = [TopStep(TopToken(number, 1), ()) for number in numbers]
    tokens = score_logprobs(steps, CITIES, EXACT).tokens
    assert all(token.log_agreeing_bounds is not None for token in tokens)
    return [token.log_probability - token.log_agreeing_bounds[0] - SLACK for token in tokens]  # type: ignore[index]


@each(
    ("numbers", "expected"),
    [
        # decimals
        ((-1.2345, -0.0012), 1e-4),
        ((-1.25, -12.53, -0.01), 1e-2),
        ((-0.12, -0.5), 1e-2),
        ((-0.1, -0.2, -2.0), 0),  # written by hand rather than rounded
        ((-0.0001,), 1e-4),
        ((-0.01,), 0),
        ((*(-0.1 * i for i in range(1, 10)),), 0),
        ((*(-0.1 * i for i in range(1, 10)), -0.1), 0.1),
        ((-1.234567, -0.1), 1e-6),
        ((-1.2345678, -0.1), 0),
        ((-12.345678, -0.1), 1e-6),
        # significant digits: a unit of the last one of each number
        ((-0.5234, -12.34, -1.234, -0.00012345678), 0),
        ((-0.5234, -12.34, -0.0001234), (1e-4, 1e-2, 1e-7)),
        ((-0.000125, -0.5, -1.25, -9.99, -10.0, -30.0, -123.0), (2e-6, 0.001001, 1e-2, 1e-2, 0.1, 0.1, 1.0)),
        ((-0.000125, -10 * (1 - 0.9e-9)), (2e-6, 0.100001)),  # just below a power of ten
        ((-0.000125, -10 * (1 - 1.1e-9)), (2e-6, 0.010001)),
        ((-0.1234567, -0.02345678), (1e-7, 1e-8)),
        # half precision, by its bits
        ((-1.0078125,), 1.0078125 * HALF),
        ((-1.0078125 * (1 - 1.9e-7),), 1.0078125 * HALF),  # as float32 is printed
        ((-1.0009765625,), 1.0009765625 * QUARTER),
        ((-1.0078125, -1.0009765625), (1.0078125 * QUARTER, 1.0009765625 * QUARTER)),
        ((-1.0078125, -(2.0**-60)), (1.0078125 * HALF, 2.0**-67)),  # float16 has no such number
        ((-1.0009765625, -(2.0**-30)), 0),
        ((-0.3,), 0),
        ((-math.log(2),), 0),
        # one number in full tells wherever it comes
        *(((*[-1.25] * place, IN_FULL, *[-1.25] * (41 - place)), 0) for place in (0, 15, 16, 17, 40)),
        # in float32, a quarter of the last decimal
        ((float(np.float32(-1.234567)),), 1e-6),
        ((float(np.float32(-1.244567)),), 1e-6),
        ((float(np.float32(-1.264567)),), 0),
    ],
)
def test_numbers_may_be_off_by_what_they_were_rounded_to(
    numbers: Sequence[float], expected: float | Sequence[float]
) -> None:
    wanted = [expected] * len(numbers) if isinstance(expected, float | int) else expected
    assert off(*numbers) == pytest.approx(list(wanted), rel=1e-3, abs=2e-8)


def bfloat16(number: float) -> float:
    bits = (np.float32(number).view(np.uint32) + np.uint32(0x8000)) & np.uint32(0xFFFF0000)
    return float(bits.view(np.float32))


def significant(digits: int, number: float) -> float:
    return float(f"{number:.{digits}g}")


FORMS: dict[str, Callable[[float], float]] = {
    "in full": float,
    "float32": lambda number: float(np.float32(number)),
    "float16": lambda number: float(np.float16(number)),
    "bfloat16": bfloat16,
    **{f"{n} decimals": partial(round, ndigits=n) for n in range(9)},
    **{f"{n} digits": partial(significant, n) for n in range(1, 10)},
}


@each("form", FORMS)
@each("single", [False, True])
def test_a_number_may_be_off_by_as_much_wherever_it_stands(form: str, single: bool) -> None:
    """The first numbers of an answer are judged one by one, later ones together; sure tokens say nothing."""
    random = np.random.default_rng(0)
    for size in [*(10.0 ** random.uniform(-4.2, 2.8, 40)), *(10.0**power for power in range(-4, 2))]:
        number = FORMS[form](float(size))
        number = float(np.float32(number)) if single else number
        if number not in (0, 100):  # -100 stands for a number that is not known
            assert off(-number)[0] == pytest.approx(off(0.0, 0.0, 0.0, -number)[3], rel=1e-9, abs=4e-12), number


@pytest.mark.parametrize(("number", "most"), [(-1.25, 1e-8), (-0.25, 1e-8), (-3.75, 5e-9 * 3.75), (-5.25, 5e-9 * 5.25)])
def test_a_number_has_decimals_up_to_a_millionth_of_them_or_the_error_of_nine_digits(
    number: float, most: float
) -> None:
    for sign in (1, -1):
        assert off(number + sign * 0.97 * most) == pytest.approx([0.01 + HALF * -number], rel=1e-3)
        assert max(off(number + sign * 1.03 * most)) < 0.01 + HALF * -number - 0.005


@each("own", [-9999.0, -9998.0, -1000.0, -999.0, -100.0, -math.inf, -99.9, -100.1, -101.0])
def test_numbers_that_stand_for_none(own: float) -> None:
    """A number below a hundred that stands for itself is a probability of 0, which is no missing one."""
    likely = TopToken(math.log(0.6), 0)
    found = score_logprobs([TopStep(TopToken(own, 1), (likely, TopToken(own, 1)))], CITIES)
    assert ("missing_log_probability" in codes(found)) == (own not in (-99.9, -100.1, -101.0))


@each(("number", "known"), [(-9999.0, False), (-9998.0, False), (-9997.9, True), (-1000.0, True), (-math.inf, True)])
def test_another_token_with_such_a_number_may_have_what_is_missing(number: float, known: bool) -> None:
    own, other = in_bytes(0.5, "Oslo"), in_bytes(0.1, "Rome")
    found = score_logprobs([step(own, other, in_bytes(1.0, " Oslo")._replace(log_prob=number))], CITIES)
    assert agreeing(found) == pytest.approx((0.5, 0.5 if known else 0.9), abs=1e-4)


@each(
    ("own", "listed", "same"),
    [
        (-0.01, -0.02, True),
        (-1.25, -1.2549, True),
        (-0.5, -0.5009, True),
        (-0.01, -0.021, False),
        (-0.5, -0.6, False),
        (-2.0, -2.1, False),
        (0.0, -0.001, False),
    ],
)
def test_two_numbers_are_one_to_the_last_digit_of_the_shorter_one(own: float, listed: float, same: bool) -> None:
    found = score_logprobs([TopStep(TopToken(own, 1), (TopToken(listed, 1), TopToken(-9.0, 0)))], CITIES)
    assert ("two_numbers" not in codes(found)) == same
