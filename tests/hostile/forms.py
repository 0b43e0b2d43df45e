"""Forms of arguments: the same numbers in other clothes, what must be refused, and what nobody expects."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import torch

Expected = Literal["same", "refused", "anything"]
Array = Any


class Rude:
    """An object that raises whatever it is asked."""

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __iter__(self) -> Any:
        raise RuntimeError("no items")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no array")

    def __float__(self) -> float:
        raise RuntimeError("no number")

    def __index__(self) -> int:
        raise RuntimeError("no index")

    def __repr__(self) -> str:
        return "Rude()"


def _strided(array: Array) -> Array:
    return np.repeat(array, 2, axis=-1)[..., ::2]


def _gradient(array: Array) -> Array:
    return torch.tensor(array, requires_grad=True)


SAME: Mapping[str, Callable[[Array], Any]] = {
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(a.tolist()),
    "tensor": torch.tensor,
    "gradient": _gradient,
    "column-major": np.asfortranarray,
    "strided": _strided,
    "big-endian": lambda a: a.astype(">f8"),
    "objects": lambda a: a.astype(object),
    "read-only": lambda a: np.frombuffer(a.tobytes(), dtype=a.dtype).reshape(a.shape),
    "mask of nothing": lambda a: np.ma.array(a, mask=np.zeros(a.shape, dtype=bool)),
    "negative strides": lambda a: a[::-1].copy()[::-1],
}
"""Forms of a float64 array; whatever takes an array must give the same number for all of them."""


def _masked(array: Array) -> Array:
    mask = np.zeros(array.shape, dtype=bool)
    mask.flat[array.size // 2] = True
    return np.ma.array(array, mask=mask)


def _ragged(array: Array) -> Any:
    rows = array.tolist()
    return [rows[0], [rows[0]]] if array.ndim == 1 else [rows[0][:-1], *rows[1:], rows[0]]


REFUSED: Mapping[str, Callable[[Array], Any]] = {
    "masked": _masked,
    "complex": lambda a: a + 1j,
    "complex tensor": lambda a: torch.tensor(a + 1j),
    "complex list": lambda a: (a + 1j).tolist(),
    "strings": lambda a: a.astype(str),
    "bytes": lambda a: a.astype("S"),
    "dates": lambda a: np.zeros(a.shape, "M8[s]"),
    "durations": lambda a: np.zeros(a.shape, "m8[s]"),
    "records": lambda a: np.zeros(a.shape, [("x", "f8")]),
    "text": lambda _: "0.5, 0.5",
    "raw bytes": lambda _: b"\0\1",
    "dict": lambda _: {"a": 1.0},
    "set": lambda _: {1.0, 2.0},
    "function": lambda _: len,
    "class": lambda _: float,
    "rude": lambda _: Rude(),
    "list of the rude": lambda _: [Rude()],
    "ragged": _ragged,
    "meta tensor": lambda a: torch.tensor(a).to("meta"),
    "sparse tensor": lambda a: torch.tensor(a).to_sparse(),
    "itself": lambda _: _endless(),
}
"""No array of numbers in any reading: a number for one of them is a silent error."""


def _endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


EXTREMES = (
    *(math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 1e-320, -1e-320, 1e308, -1e308, 2.0**53 + 1),
    *(float(np.finfo(np.float32).min), float(np.finfo(np.float32).max)),
)

DTYPES = ("f2", "f4", "i1", "u1", "i8", "u8", "g")
FACTORS = (1e-320, 1e30, 1e300, -1.0, 0.0)


def _one_changed(rng: random.Random, array: Array) -> Array:
    changed = array.astype(np.float64)
    changed.flat[rng.randrange(array.size)] = rng.choice(EXTREMES)
    return changed


ODD_ARRAYS: tuple[Callable[[random.Random, Array], Any], ...] = (
    lambda rng, a: a[:0],
    lambda rng, a: a[None],
    lambda rng, a: a.ravel()[0],
    lambda rng, a: a[..., :-1],
    lambda rng, a: np.concatenate([a, a]),
    lambda rng, a: a > np.median(a),
    lambda rng, a: a.astype(rng.choice(DTYPES)),
    lambda rng, a: np.full(a.shape, rng.choice(EXTREMES)),
    lambda rng, a: a * rng.choice(FACTORS),
    lambda rng, a: [rng.choice([*EXTREMES, None, 2**70, Fraction(1, 3), True]) for _ in range(rng.randrange(4))],
    lambda rng, a: np.empty((0,) * rng.randrange(1, 4)),
    _one_changed,
)
"""Arrays that may or may not be usable: extreme, empty, of another shape or type."""

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**70, -(2**70), 0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf),
    *(1e308, 1e-320, "", "a", "paper", "default", "\ud800", "\0", "nan", b"", b"x", (), [], [[]], {}, set()),
    *([1, 2], ["a"], {"a": 1}, 1j, Fraction(1, 3), np.float64(0.5), np.int8(3), np.array(0.3), np.array([]), Rude()),
    *(datetime.date(2026, 1, 1), range(3), len, float, object(), np.str_("paper"), torch.tensor(0.5), slice(None)),
)
"""In the place of an option or of anything else."""
