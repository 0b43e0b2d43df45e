"""The command `semtoken`: arguments in, one call into the library, a printed result out.

One module for each command (`ask.py`, `score.py`, `bench_run.py`, ...); app.py runs a command line and prints errors,
commands.py lists the commands without importing one, help.py writes their help, settings.py reads `semtoken.toml`.
Shared are parameters.py (arguments and options), model.py (a model by its name), server.py (a server by its address),
loading.py (calibrators, rules, what runs shards), journals.py, listening.py, run_progress.py, outputs.py (what must
not be replaced) and console.py (results on stdout, all else on stderr).

Enter at `main`. No other package imports this one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping, Sequence
from typing import Any

INTERRUPTED = 130
"""The exit status of a command that Ctrl-C ended, as shells say it."""
SPINS = "10000"
"""The number of looks of a torch thread for the others before it sleeps (libgomp's own setting: 300,000)."""


def main() -> None:
    """Entry point of the command."""
    wait_briefly(os.environ)
    open_closed()
    replace_unknown(sys.stdout)
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command line, and return the exit status; Ctrl-C ends it with one line, also while modules are imported."""
    try:
        from semtoken.cli.app import launch

        return launch(arguments)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED


def open_closed() -> None:
    """Put the empty device in the place of standard streams that were closed when the program started.

    Python has None for such a stream. The next file that is opened, such as a journal, would get the stream's number,
    and what libraries print.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def replace_unknown(stream: Any) -> None:
    """Have a stream write ? for characters that its encoding lacks, such as a code page of Windows, where it would stop
    with an error; a choice in PYTHONIOENCODING stays.
    """
    if getattr(stream, "errors", "") == "strict":  # a pipe or a file
        stream.reconfigure(errors="replace")


def wait_briefly(environment: MutableMapping[str, str]) -> None:
    """Have threads of torch that wait for each other sleep soon, unless the environment says how they wait.

    Where something else keeps a processor busy, a thread that waits keeps the one from it that the others need: eight
    answers of SmolLM2 took 25 to 40 s on two processors, and take 7. On an idle machine they take 3% longer at most.
    libgomp reads the setting when torch is imported, so this comes before.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", SPINS)
