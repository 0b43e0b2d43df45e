"""Printed next steps are commands that there are, and what is not installed is named with what installs it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from semtoken.cli.app import Words
from semtoken.cli.commands import PLACES, SUBCOMMANDS
from semtoken.cli.help import command_at
from semtoken.cli.settings import KEYS
from semtoken.support import extras
from semtoken.support.extras import EXTRAS
from tests.sources import SOURCE, texts, trees

ROOT = SOURCE.parents[1]
NAMES = {
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    "llama_cpp": "llama-cpp-python",
    "sentence_transformers": "sentence-transformers",
    "prometheus_client": "prometheus-client",
    "rouge_score": "rouge-score",
    "pyrate_limiter": "pyrate-limiter",
    "huggingface_hub": "huggingface-hub",
    "starlette": "fastapi",  # brings it, as pydantic_core below
    "pydantic_core": "pydantic",  # pydantic itself brings and pins it
}
"""Modules whose package has another name."""
OF_HOSTS = {
    *("inspect_ai", "lm_eval", "litellm", "openai", "langchain_core", "llm", "mcp", "opentelemetry", "lm_polygraph"),
    "uqlm",
}
"""Tools that semtoken plugs into, and what LiteLLM brings; they are there wherever that code runs."""
BROUGHT_ALONG = {"triton", "click", "typing_extensions", "h11"}
"""Modules that a package of an extra brings, or that are looked for and not needed."""


def packages(listed: list[str]) -> set[str]:
    return {re.split(r"[\s\[<>=;,~!]", one)[0].lower() for one in listed}


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


IMPORT = re.compile(r"^ *(?:from (\w+)[\w.]* import|import (\w+))\b", re.MULTILINE)


def imported() -> Iterator[tuple[str, Path]]:
    """Modules of other packages that the source imports, at whatever place."""
    for path, text in texts().items():
        for names in IMPORT.findall(text):
            if (top := "".join(names)) not in sys.stdlib_module_names | {"semtoken", "__future__"}:
                yield top, path


def test_each_module_is_of_the_core_or_of_an_extra_that_brings_it() -> None:
    core = packages(PROJECT["dependencies"])
    brought = {extra: packages(listed) for extra, listed in PROJECT["optional-dependencies"].items()}
    for extra, modules in EXTRAS.items():
        lacking = [one for one in modules if NAMES.get(one, one) not in brought[extra]]
        assert not lacking, f"pyproject.toml: the extra {extra} does not bring {lacking}"
    known = {module for modules in EXTRAS.values() for module in modules} | OF_HOSTS | BROUGHT_ALONG
    unknown = {(top, path.name) for top, path in imported() if top not in known and NAMES.get(top, top) not in core}
    assert not unknown, f"add them to EXTRAS of semtoken.support.extras: {sorted(unknown)}"


WITHOUT = """
import json, os, sys
import cyclopts, numpy, semtoken.core.results  # which no extra brings: once for all
from semtoken.cli import main

class Absent:
    def __init__(self, modules):
        self.modules = modules
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

statuses = []
for number, (absent, arguments) in enumerate(json.load(sys.stdin)):
    if os.fork() == 0:
        sys.meta_path.insert(0, Absent(absent))
        sys.argv, sys.stderr = ["semtoken", *arguments], open(f"{number}.err", "w")
        main()
    statuses.append(os.waitstatus_to_exitcode(os.wait()[1]))
print(json.dumps(statuses))
"""
LACKING = (
    (("serve",), ["serve", "--port", "0"]),
    (("serve",), ["proxy", "--base-url", "http://127.0.0.1:9", "--port", "0"]),
    (("serve",), ["doctor", "--base-url", "http://127.0.0.1:9"]),
    (("transformers",), ["ask", "Who?", "--device", "cpu"]),
    (("transformers",), ["cluster", "make", "model"]),
    (("transformers",), ["bench", "compare"]),
    (("bench", "serve"), ["bench", "run", "--model", "almanac", "--dataset", "almanac-dev", "--output", "out"]),
    (("calibrate",), ["calibrate", "labeled.jsonl", "-o", "out"]),
)
"""Extras that are not installed, and a command that needs them."""
SOME = tuple(LACKING[number] for number in (1, 3))
"""The two extras that most commands need."""


@pytest.mark.skipif(
    not hasattr(os, "fork"), reason="Windows does not fork, and each command would load everything again"
)
@pytest.mark.parametrize("cases", [SOME, pytest.param(LACKING, marks=pytest.mark.slow)], ids=["some", "all"])
def test_what_is_not_installed_is_said_with_the_line_that_installs_it(cases: tuple[Any, ...], tmp_path: Path) -> None:
    rows = (
        f'{{"id": "{i}", "question": "q{i}", "response": "x", "log_confidence": -{i}.5, "correct": {i % 2}}}'
        for i in range(60)
    )
    (tmp_path / "labeled.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}", encoding="utf-8")
    given = json.dumps([[[module for extra in absent for module in EXTRAS[extra]], line] for absent, line in cases])
    command = [sys.executable, "-c", WITHOUT]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True, cwd=tmp_path)
    statuses = json.loads(done.stdout.splitlines()[-1])
    for number, ((absent, line), status) in enumerate(zip(cases, statuses, strict=True)):
        told = (tmp_path / f"{number}.err").read_text(encoding="utf-8")
        assert status == (2 if line[0] in ("doctor", "calibrate") else 1), (absent, line, told)
        assert "Traceback" not in told, (absent, line, told)
        assert re.search(rf"pip install 'semtoken\[[\w,-]*\b{absent[0]}\b", told), (absent, line, told)


def test_one_line_installs_all_that_a_command_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    every = {module for extra in ("serve", "transformers") for module in EXTRAS[extra]}
    there: set[str] = set()
    monkeypatch.setattr(extras, "find_spec", lambda name: object() if name in there else None)
    first = f"Install it with: {extras.install_line('serve')}"
    assert extras.all_that_is_missing("serve", first).endswith("pip install 'semtoken[serve,transformers]'")
    assert extras.all_that_is_missing("proxy", first) == ""
    there |= set(EXTRAS["serve"])
    assert extras.all_that_is_missing("serve", f"Install it with: {extras.install_line('transformers')}") == ""
    there |= every
    assert extras.all_that_is_missing("serve", "") == ""
    commands = set(PLACES)
    assert extras.OF_COMMANDS.keys() <= commands


# --- printed commands --------------------------------------------------------------------------------------------


def printed() -> list[tuple[str, list[str]]]:
    """(file, words) of each command that a text of the package holds, in backticks or as a next step."""
    found = []
    commands = "|".join(PLACES)
    for path, tree in trees(rf"semtoken (?:{commands})\b|`semtoken "):
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                quoted = re.findall(r"`semtoken ([^`]+)`", node.value)
                quoted += re.findall(rf"[:,] +semtoken ((?:{commands})\b.*)", node.value)
                quoted += re.findall(rf"^ .{{10,25}} semtoken ((?:{commands})\b.*)", node.value)
                found += [(path.name, one.partition(" semtoken ")[0].split()) for one in quoted]
    return found


@cache
def options_of(place: tuple[str, ...]) -> set[str]:
    return {name for one in command_at(place).assemble_argument_collection() for name in one.names if one.parse}


def test_printed_commands_and_their_options_are_there() -> None:
    every = printed()
    assert len(every) > 60
    assert {"ask", "serve", "fetch", "label", "calibrate", "check"} <= {words[0] for _, words in every}
    for where, words in every:
        given = Words([word.strip(".,:;()'") for word in words])
        assert given.place or not given.command, f"{where} prints `semtoken {' '.join(words)}`: no such command"
        if not given.place or (given.place[0] in SUBCOMMANDS and len(given.place) == 1):
            continue
        options = options_of(given.place)
        named = {word.partition("=")[0] for word in given.command if re.match(r"--[a-z]", word)}
        assert named <= options, f"{where} prints `semtoken {' '.join(words)}`: {named - options} is no option"


def test_options_that_the_page_names_are_there() -> None:
    places = [Words(command.split()).place for command in PLACES]
    options = set().union(*(options_of(place) for place in places if place[0] not in SUBCOMMANDS))
    options |= {"--" + key.replace("_", "-") for key in KEYS}
    named = {
        option
        for file in (SOURCE / "web" / "page" / "files").glob("*.js")
        for option in re.findall(r"(?<![\w-])--[a-z][\w.-]*\w", file.read_text(encoding="utf-8"))
    }
    assert {"--calibrator", "--journal.sample"} <= named <= options, named - options
