from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from semtoken.guarantees.journal.store import Journal
from tests.guarantees.databases import Postgres, can_run_postgres, postgres


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    if not can_run_postgres():
        pytest.skip("no PostgreSQL server on this machine (apt-get install postgresql)")
    with postgres() as found:
        yield found


def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of the kind that a fixture's parameter names."""
    if request.param == "sqlite":
        return str(tmp_path / "journal.db")
    found: str = request.getfixturevalue("server").database()
    return found


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return database_url(request, tmp_path)


@pytest.fixture
def journal(url: str) -> Iterator[Journal]:
    found = Journal.open(url)
    yield found
    found.close()
