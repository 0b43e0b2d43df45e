"""The command `semtoken`: arguments in, one call into the library, a printed result out.

One module for each command (`ask.py`, `score.py`, `compare.py`, `bench_run.py`, ...); `app.py` puts them together and
prints errors, and commands.py lists them without importing one. Shared are options.py, model_options.py (a name -> an
`STC`), console.py (results on stdout, all else on stderr) and listening.py (commands that open a port).

Enter at `main`. No other package imports this one.
"""

from __future__ import annotations


def main() -> None:
    """Entry point of the command."""
    from semtoken.cli.app import app

    app(prog_name="semtoken")
