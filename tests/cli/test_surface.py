"""Every command that cyclopts runs: its help on one screen, its summary, its example."""

from __future__ import annotations

import ast
import re
import shlex
from collections import Counter
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from semtoken.cli.commands import PLACES, SUBCOMMANDS, leaves, place_of, program
from semtoken.cli.help import command_at, help_of, rows, text_and_examples
from semtoken.cli.settings import KEYS, SECTIONS
from tests.cli.run import invoke
from tests.rows import each
from tests.sources import trees

PLACES_OF_ALL = list(leaves())
MOST_OPTIONS = 14
ROOT = Path(__file__).parents[2]
OF_OTHERS = {
    *("--logprobs-mode", "--max-logprobs", "--spec-type", "--interrupt"),  # vLLM, llama-server, llama-cpp-python
    *("--head", "--include-dashboard", "--autoscaling-config", "--address"),  # Ray
    *("--scorer", "--model-base-url"),  # Inspect
    *("--disable-pip-version-check", "--quiet", "--no-deps", "--only-binary", "--dest", "--porcelain"),  # pip, git
    *("--replies", "--least", "--names", "--out"),  # our scripts
    *("--generate", "--prompt", "--section.key"),  # arrows in a drawing, a placeholder
}
"""Options of other programs that pages and messages name."""


@cache
def own_options(place: tuple[str, ...]) -> list[str]:
    """The first name of each option of a command."""
    return [row.names.split(",")[0].split()[0] for row in rows(command_at(place)) if not row.is_argument]


@pytest.mark.parametrize("place", PLACES_OF_ALL, ids=" ".join)
def test_the_help_is_one_screen_with_an_example(place: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = invoke([*place, "--help"])
    lines = done.stdout.splitlines()
    assert done.exit_code == 0 and len(lines) <= 60 and max(map(len, lines)) <= 80
    assert lines[0].startswith(f"Usage: semtoken {' '.join(place)}")
    assert lines[2] == place_of(place).summary
    assert sum(line.startswith("Example: semtoken ") for line in lines) == 1
    for option in own_options(place):
        assert option in done.stdout
    monkeypatch.setenv("COLUMNS", "60")  # of which an example is as wide as what is typed
    narrow = [line for line in invoke([*place, "--help"]).stdout.splitlines() if not line.startswith("Example: ")]
    assert max(map(len, narrow)) <= 60
    assert len(own_options(place)) <= MOST_OPTIONS or place[0] == "bench"


@each("place", PLACES_OF_ALL, ids=" ".join)
def test_the_example_is_a_command_line_that_is_understood(place: tuple[str, ...]) -> None:
    _, [example] = text_and_examples(command_at(place))
    words = shlex.split(example.partition(" > ")[0])[1:]
    assert tuple(words[: len(place)]) == place
    command, _, _ = program().parse_args(words, exit_on_error=False, print_error=False)
    assert command is command_at(place).default_command


def test_every_summary_is_what_the_command_says() -> None:
    for place in PLACES_OF_ALL:
        [summary, *_] = text_and_examples(command_at(place))[0]
        assert place_of(place).summary == summary, place


def test_every_argument_and_option_is_described() -> None:
    """A docstring that describes no parameter of its command, or misspells one, would leave its line empty."""
    assert [(place, row.names) for place in PLACES_OF_ALL for row in rows(command_at(place)) if not row.help] == []


def test_one_name_has_one_short_form_and_one_kind_everywhere() -> None:
    short: dict[str, set[str]] = {}
    for place in PLACES_OF_ALL:
        for row in rows(command_at(place)):
            if found := re.match(r"(--[a-z-]+), (-[a-z])\b", row.names):
                short.setdefault(found[2], set()).add(found[1])
    assert all(len(names) == 1 for names in short.values()), short


def test_sections_that_commands_read_are_sections() -> None:
    for place in PLACES_OF_ALL:
        assert set(place_of(place).reads) <= set(SECTIONS), place


def test_what_a_command_does_not_read_is_refused() -> None:
    """Each command with a key of one section, and each section with some command: all pairs would be ten times as
    many.
    """
    tried: Counter[str] = Counter()
    for place in PLACES_OF_ALL:
        unread = set(SECTIONS) - set(place_of(place).reads)
        if not unread:  # `config` shows all
            continue
        section = min(unread, key=lambda name: (tried[name], name))
        tried[section] += 1
        _, [example] = text_and_examples(command_at(place))
        words = shlex.split(example.partition(" > ")[0])[1:]
        key = next(key for key in KEYS if key.startswith(f"{section}."))
        done = invoke([*words, f"--{key}=1"])
        expected = f"Error: --{key} has no effect on `semtoken {' '.join(place)}`: leave it out.\n"
        assert (done.exit_code, done.stderr) == (2, expected)
    assert tried.keys() == set(SECTIONS)


@each("place", PLACES_OF_ALL, ids=" ".join)
def test_a_mistyped_option_is_refused(place: tuple[str, ...]) -> None:
    with pytest.raises(CycloptsError):
        program().parse_args([*place, "--no-such-option"], exit_on_error=False, print_error=False)
    done = invoke([*place, "--no-such-option"])
    assert done.exit_code == 2 and "--no-such-option" in done.stderr


@each("port, taken", [("-1", False), ("0", True), ("65535", True), ("65536", False)])
def test_ports_are_those_that_there_are(port: str, taken: bool) -> None:
    with nullcontext() if taken else pytest.raises(CycloptsError):
        program().parse_args(["proxy", "--port", port], exit_on_error=False, print_error=False)


def test_groups_list_their_commands() -> None:
    for group, inner in SUBCOMMANDS.items():
        for words in ([group], [group, "--help"]):
            done = invoke(words)
            assert done.exit_code == 0 and all(f"  {name} " in done.stdout for name in inner)
    assert set(PLACES) == {line.split()[0] for line in help_of(()).splitlines() if re.match(r"  [a-z]", line)}


def options_in(text: str) -> set[str]:
    """The long options that a text names."""
    return {found.rstrip(".-") for found in re.findall(r"(?<![\w-])--[a-z][a-z.-]*", text)}


def test_every_option_that_a_page_or_a_message_names_exists() -> None:
    known = {"--config", "--verbose", "--help", "--version", *OF_OTHERS}
    known |= {f"--{key.replace('_', '-')}" for key in KEYS} | {f"--{section}" for section in SECTIONS}
    for place in PLACES_OF_ALL:
        known.update(*(options_in(row.names) for row in rows(command_at(place))))
    texts = {path: path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]}
    for path, tree in trees("--[a-z]"):
        strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        texts[path] = "\n".join(value for value in strings if isinstance(value, str))
    unknown = {str(path.relative_to(ROOT)): options_in(text) - known for path, text in texts.items()}
    assert {path: names for path, names in unknown.items() if names} == {}
