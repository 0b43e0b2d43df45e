"""Machine code uses the whole registers, and what was kept before an upgrade in place stops no function."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")
pytestmark = pytest.mark.slow  # it is about time, and compiles in processes of its own

LOOPS = """
from {decorators} import {decorator} as compiled

@compiled
def total(pair):
    return pair.left[0] + pair.right[0]
"""
PLACE = """
from typing import Any, NamedTuple

class Pair(NamedTuple):
    left: Any
    right: Any
"""
CALL = """
import numpy as np
from {place} import Pair
from loops import total
print(total(Pair(np.array([20]), np.array([22]))), sum(total.stats.cache_hits.values()))
"""


def called(folder: Path, place: str) -> str:
    """The output of a new process: the sum, and how many times machine code was found."""
    done = subprocess.run(
        [sys.executable, "-c", CALL.format(place=place)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("decorators", "decorator"),
    [
        ("semtoken.core.kernel", "compiled"),
        ("semtoken.core.kernel", "compiled_fast"),
        ("semtoken.clustering._loops", "compiled"),
    ],
)
def test_a_class_that_has_moved_costs_one_compilation(tmp_path: Path, decorators: str, decorator: str) -> None:
    (tmp_path / "loops.py").write_text(LOOPS.format(decorators=decorators, decorator=decorator))
    (tmp_path / "before.py").write_text(PLACE)
    assert called(tmp_path, "before") == "42 0"
    assert called(tmp_path, "before") == "42 1"  # machine code is kept
    (tmp_path / "before.py").rename(tmp_path / "after.py")
    assert called(tmp_path, "after") == "42 0"
    assert called(tmp_path, "after") == "42 1"


WIDTH = """
import numpy as np
from semtoken.core.kernel import _sum_exp
_sum_exp(np.zeros(4096, np.float32), np.float32(0))
[code] = _sum_exp.inspect_asm().values()
print("zmm" in code)
"""
LESS = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+bmi,+bmi2,+popcnt,+sse4.2,+ssse3"}


@pytest.mark.parametrize("chosen", [{}, LESS], ids=["by default", "as the user says"])
def test_loops_use_registers_of_512_bits_where_there_are_some(tmp_path: Path, chosen: dict[str, str]) -> None:
    import llvmlite.binding

    has_some = any(llvmlite.binding.get_host_cpu_features().get(name) for name in ("avx512vbmi2", "avx512_vbmi2"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment |= {"NUMBA_CACHE_DIR": str(tmp_path), **chosen}
    done = subprocess.run([sys.executable, "-c", WIDTH], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(has_some and not chosen)
