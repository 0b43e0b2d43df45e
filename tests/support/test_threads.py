"""How many threads the compiled loops and the clustering use."""

from __future__ import annotations

import pytest

from semtoken.support.compiled import usable_threads


def test_fewer_threads_are_used_if_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    all_of_them = usable_threads()
    for said, used in (("1", 1), ("100000", all_of_them), ("0", all_of_them), ("four", all_of_them)):
        monkeypatch.setenv("OMP_NUM_THREADS", said)
        assert usable_threads() == used, said
