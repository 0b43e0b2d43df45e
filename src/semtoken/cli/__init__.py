"""The command `semtoken`: arguments in, one call into the library, a printed result out."""

from __future__ import annotations


def main() -> None:
    """Entry point of the command."""
    from semtoken.cli.app import app

    app(prog_name="semtoken")
