"""Databases for the tests of the journal: SQLite files, and Debian's PostgreSQL server if it is there."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)


def _as_postgres(*command: str) -> None:
    """Run as the user postgres: the server refuses root."""
    before = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    done = subprocess.run([*before, *command], capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr


class Postgres:
    """A server on a socket in a folder of its own; `lasting`: what it acknowledges outlasts a power cut."""

    def __init__(self, folder: Path, *, lasting: bool = False) -> None:
        self._folder, self._bin, self._lasting = folder, BINARIES[0].parent, lasting
        self.user = "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
        _as_postgres(str(self._bin / "initdb"), "-D", str(folder / "data"), "-A", "trust", "--no-sync", "-E", "UTF8")

    def start(self) -> None:
        options = f"-c listen_addresses='' -c unix_socket_directories={self._folder} -c max_connections=120"
        options += "" if self._lasting else " -c fsync=off"
        data, log = str(self._folder / "data"), str(self._folder / "log")
        _as_postgres(str(self._bin / "pg_ctl"), "-D", data, "-w", "-l", log, "-o", options, "start")

    def stop(self) -> None:
        _as_postgres(str(self._bin / "pg_ctl"), "-D", str(self._folder / "data"), "-w", "-m", "immediate", "stop")

    def database(self) -> str:
        """A new database; its URL."""
        import psycopg

        name = f"journal_{uuid.uuid4().hex[:8]}"
        with psycopg.connect(f"postgresql://{self.user}@/postgres?host={self._folder}", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql://{self.user}@/{name}?host={self._folder}"


@contextmanager
def postgres(*, lasting: bool = False) -> Iterator[Postgres]:
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # a path of a socket must be short
    try:
        if os.getuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        folder.chmod(0o755)
        server = Postgres(folder, lasting=lasting)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def can_run_postgres() -> bool:
    if not BINARIES:
        return False
    if os.getuid() != 0:
        return True
    return any(user.pw_name == "postgres" for user in pwd.getpwall()) and shutil.which("runuser") is not None
