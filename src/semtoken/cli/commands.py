"""The commands, by what somebody wants; each is imported when it is run or asked for help.

A command is a function: its parameters are its arguments and options, its docstring is its help and describes those
that no other command has (parameters.py has the others), what it returns is its exit status (None: 0).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from cyclopts import App


class CommandPlace(NamedTuple):
    """The place where a command is defined, and its purpose."""

    function: str
    """Its module in `semtoken.cli` and its name there, such as "proxy:proxy"; empty for a group of commands."""
    summary: str
    """The first line of its docstring."""
    reads: tuple[str, ...] = ()
    """The sections of semtoken.toml that it reads; a key of another one is rejected on its command line."""


ALL = (
    *("endpoint", "model", "scoring", "calibration", "journal", "server", "serve", "proxy", "decisions", "guarantee"),
    *("audit", "limits", "telemetry", "executor"),
)
IN_PROCESS = ("model", "scoring")
JOURNAL = ("journal",)
SERVERS = ("scoring", "calibration", "journal", "server", "limits", "telemetry")
CHECK = ("endpoint", "scoring", "journal", "executor")
DECIDE = ("endpoint", "model", "calibration", "executor")
AUDIT = ("endpoint", "calibration", "decisions", "audit", "telemetry")
CALIBRATE = ("guarantee", "decisions")

GROUPS: Mapping[str, Mapping[str, CommandPlace]] = {
    "Score": {
        "ask": CommandPlace(
            "ask:ask", "Ask a model, and see how confident each answer is.", (*IN_PROCESS, "calibration")
        ),
        "score": CommandPlace(
            "score:score", "Score a file of prompts, or of prompts with responses.", (*IN_PROCESS, "executor")
        ),
        "check": CommandPlace("check:check", "Rank saved replies, the most doubtful first.", CHECK),
        "decide": CommandPlace("decide:decide", "Answer typed questions, with a probability for each option.", DECIDE),
    },
    "Guarantee": {
        "label": CommandPlace("label:label", "Mark answers as right or wrong in the terminal."),
        "calibrate": CommandPlace(
            "calibrate:calibrate", "Fit a calibrator: probabilities, and a threshold with a guarantee.", CALIBRATE
        ),
        "audit": CommandPlace("audit:audit", "Test whether a guarantee still holds.", AUDIT),
    },
    "Serve": {
        "proxy": CommandPlace(
            "proxy:proxy",
            "Add confidence to the answers of a running server.",
            ("endpoint", "proxy", "decisions", *SERVERS),
        ),
        "serve": CommandPlace(
            "serve:serve", "Serve a local model over an OpenAI-compatible API.", ("model", "serve", *SERVERS)
        ),
        "doctor": CommandPlace(
            "doctor:doctor", "Find out which log-probabilities a server returns.", ("endpoint", "model")
        ),
    },
    "Maintain": {
        "fetch": CommandPlace("fetch:fetch", "Download a small model."),
        "journal": CommandPlace("", "Show, export or delete recorded answers."),
        "config": CommandPlace("config:config", "Show the settings in effect, and where each comes from.", ALL),
    },
    "Research": {
        "bench": CommandPlace("", "Run the paper's experiment on any model: answers, judgments, tables."),
        "cluster": CommandPlace("", "Make the clusters of a model's tokens, and look into them."),
    },
}
"""The commands in the order of the help; of a group of commands the group, see `SUBCOMMANDS`."""

SUBCOMMANDS: Mapping[str, Mapping[str, CommandPlace]] = {
    "journal": {
        "show": CommandPlace(
            "journal:show", "Show the newest entries, the size of the journal, and its calibrators.", JOURNAL
        ),
        "export": CommandPlace(
            "journal:export", "Export entries with their labels, or a calibrator that was used.", JOURNAL
        ),
        "delete": CommandPlace("journal:delete", "Delete entries with their labels.", JOURNAL),
    },
    "bench": {
        "run": CommandPlace(
            "bench_run:run", "Answer questions, record what the methods need, score and judge.", ("model", "executor")
        ),
        "report": CommandPlace("bench_report:report", "Make tables and figures of a run."),
        "judge": CommandPlace("bench_judge:judge", "Judge answers, and see how far the judges agree.", ("endpoint",)),
        "compare": CommandPlace(
            "bench_compare:compare", "Compare methods on questions whose answers are known.", IN_PROCESS
        ),
    },
    "cluster": {
        "make": CommandPlace("cluster:make", "Make the clusters of a model's tokens, which the preset paper reads."),
        "show": CommandPlace("cluster:show", "Show the tokens that share a cluster with a word."),
    },
}
"""The commands of each group."""

PLACES: Mapping[str, CommandPlace] = {name: place for group in GROUPS.values() for name, place in group.items()}
HELP = (
    "Confidence for every answer, field and decision of a language model, from the log-probabilities of one generation."
)


def place_of(names: Sequence[str]) -> CommandPlace:
    """The command at a place such as ("journal", "show")."""
    return PLACES[names[0]] if len(names) == 1 else SUBCOMMANDS[names[0]][names[1]]


@cache
def program() -> App:
    """All commands under their names, as cyclopts runs them; none of them is imported."""
    from cyclopts import App, Parameter

    plain: dict[str, Any] = {
        "help_flags": (),
        "version_flags": (),
        "default_parameter": Parameter(negative=()),  # no --no-force beside --force
    }
    whole = App("semtoken", HELP, **plain)
    for name, place in PLACES.items():
        if name in SUBCOMMANDS:
            group = App(name, place.summary, **plain)
            for inner, one in SUBCOMMANDS[name].items():
                group.command(f"semtoken.cli.{one.function}", name=inner, **plain)
            whole.command(group)
        elif place.function:
            whole.command(f"semtoken.cli.{place.function}", name=name, **plain)
    return whole


def leaves() -> Iterator[tuple[str, ...]]:
    """The place of every command that can be run, such as ("journal", "show")."""
    for name, place in PLACES.items():
        if name in SUBCOMMANDS:
            yield from ((name, inner) for inner in SUBCOMMANDS[name])
        elif place.function:
            yield (name,)
