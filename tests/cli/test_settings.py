"""`semtoken.toml`, variables and `--section.key`: which goes first, and how a mistake is told."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from semtoken.cli.settings import KEYS, Settings, key_of, read_settings, variable_of
from semtoken.cli.statuses import UsageError
from tests.cli.run import invoke


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, and no settings in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SEMTOKEN_")]:
        monkeypatch.delenv(name)
    return tmp_path


def test_without_a_word_all_are_defaults() -> None:
    assert read_settings().settings == Settings()


def test_the_command_line_goes_before_variables_and_these_before_the_file(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (in_folder / "semtoken.toml").write_text("[limits]\nconnections = 1\nrequest_mb = 1.5\nreply_mb = 3\n")
    monkeypatch.setenv("SEMTOKEN_LIMITS_CONNECTIONS", "2")
    monkeypatch.setenv("SEMTOKEN_LIMITS_REQUEST_MB", "2.5")
    found = read_settings(typed=["--limits.connections=3"])
    limits = found.settings.limits
    assert (limits.connections, limits.request_mb, limits.reply_mb, limits.read_seconds) == (3, 2.5, 3, 600)
    assert found.sources["limits.connections"] == "command line"
    assert found.sources["limits.request_mb"] == "SEMTOKEN_LIMITS_REQUEST_MB"
    assert found.sources["limits.reply_mb"] == str(in_folder / "semtoken.toml")
    assert "limits.read_seconds" not in found.sources


WORDS = {
    "model.backend": "vllm",
    "model.dtype": "float32",
    "scoring.equality": "exact",
    "executor.kind": "ray",
    "endpoint.distribution": "raw",
    "endpoint.token_ids": "yes",
    "decisions.route": "chat",
    "guarantee.kind": "miss_rate",
}
"""A value of each key that takes certain words alone."""
FILES = ("calibration.decisions", "journal.spool", "journal.url", "decisions.questions", "decisions.labeled")


def other_value(key: str) -> Any:
    """Another value than the default."""
    default = key_of(Settings(), key)
    if isinstance(default, bool):
        return not default
    numbers = {int: 7, float: 0.5, type(None): 0.5}
    return ("a b",) if isinstance(default, tuple) else numbers.get(type(default)) or WORDS.get(key, "x")


def test_each_key_can_be_set_in_each_of_the_three_places(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {key: other_value(key) for key in KEYS}

    def found(*args: Any, **kwargs: Any) -> dict[str, Any]:
        settings = read_settings(*args, **kwargs).settings
        return {key: key_of(settings, key) for key in KEYS}

    file = in_folder / "named.toml"
    sections: dict[str, str] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        sections[section] = sections.get(section, f"[{section}]\n") + f"{name} = {json.dumps(value)}\n"
    file.write_text("\n".join(sections.values()))
    assert found(file) == values | {key: str(in_folder / "x") for key in FILES}

    given = {key: "a b" if value == ("a b",) else json.dumps(value).strip('"') for key, value in values.items()}
    assert found(typed=[f"--{key}={word}" for key, word in given.items()]) == values
    single = [key for key in KEYS if values[key] != ("a b",)]  # the blanks of a variable part a list
    for key in single:
        monkeypatch.setenv(variable_of(key), given[key])
    of_variables = found()
    assert {key: of_variables[key] for key in single} == {key: values[key] for key in single}


MISTAKES = {
    "unknown key": ("[limits]\nconections = 5", "conections", "Did you mean --limits.connections?"),
    "unknown section": ("[limitz]\nconnections = 5", "limitz", "Did you mean --limits.connections?"),
    "no number": ('[limits]\nconnections = "many"', "many", "[limits][connections]"),
    "too small": ("[limits]\nconnections = 0", '"0"', "Must be"),
    "no number of bytes": ("[limits]\nrequest_mb = inf", '"inf"', "Must be"),
    "no number of seconds": ("[limits]\nshutdown_seconds = 1e400", '"inf"', "Must be"),
    "too large": ("[model]\nbatch_size = 99999999999999999999", "[model][batch_size]", "Must be"),
    "no truth value": ('[journal]\ntexts = "perhaps"', "perhaps", "[journal][texts]"),
    "no such name": ('[decisions]\nroute = "by air"', "by air", "[decisions][route]"),
    "not closed": ("[limits\nconnections = 5", "semtoken.toml", "line 1"),
    "a text for a list": ('[journal]\nwithhold = "one"', "withhold", '["one"]'),
    "no section": ("connections = 5", "connections", "[limits]"),
    "code in a found file": ('[journal]\nwithhold_with = "mine:f"', "withhold_with", "--config"),
    "trust in a found file": ("[model]\ntrust_remote_code = true", "trust_remote_code", "--config"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_file_is_refused_with_file_key_and_hint(in_folder: Path, mistake: str) -> None:
    text, *told = MISTAKES[mistake]
    (in_folder / "semtoken.toml").write_text(text)
    done = invoke(["config"])
    assert done.exit_code == 2 and not done.stdout
    [line] = done.stderr.splitlines()
    for words in ("Error: ", "semtoken.toml", *told):
        assert words in line


def test_a_file_may_begin_with_a_byte_order_mark(in_folder: Path) -> None:
    """Editors of Windows write one, and files of data may have one, too."""
    (in_folder / "semtoken.toml").write_bytes(b"\xef\xbb\xbf[limits]\nconnections = 5\n")
    assert read_settings().settings.limits.connections == 5


def test_a_semtoken_yaml_of_this_folder_is_refused_until_there_is_a_semtoken_toml(in_folder: Path) -> None:
    (in_folder / "semtoken.yaml").write_text("limits: {distance: 0.1}")
    (in_folder / "other.toml").touch()
    done = invoke(["check", "replies.jsonl"])
    assert done.exit_code == 2 and not done.stdout
    [line] = done.stderr.splitlines()
    assert "semtoken.yaml is no longer read" in line and "semtoken config > semtoken.toml" in line
    assert read_settings(in_folder / "other.toml").settings == Settings()
    (in_folder / "semtoken.toml").touch()  # as the shell does before `semtoken config` runs
    assert invoke(["config"]).exit_code == 0


def test_a_file_that_is_named_may_run_code(in_folder: Path) -> None:
    (in_folder / "semtoken.toml").write_text("[model]\ntrust_remote_code = true")
    assert read_settings(in_folder / "semtoken.toml").settings.model.trust_remote_code


def test_mistakes_in_variables_and_words_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Did you mean --limits" in invoke(["config", "--limits.conections", "5"]).stderr
    assert invoke(["config", "--limits.connections"]).exit_code == 2
    assert "no settings file nope.toml" in invoke(["config", "--config", "nope.toml"]).stderr
    monkeypatch.setenv("SEMTOKEN_LIMITS_CONNECTIONS", "seven")
    assert "SEMTOKEN_LIMITS_CONNECTIONS" in invoke(["config"]).stderr
    monkeypatch.delenv("SEMTOKEN_LIMITS_CONNECTIONS")
    monkeypatch.setenv("SEMTOKEN_LIMITS_CONECTIONS", "7")
    with pytest.raises(UsageError, match="did you mean 'SEMTOKEN_LIMITS_CONNECTIONS'"):
        read_settings()


def test_the_nearest_file_above_counts_and_paths_are_from_its_folder(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (in_folder / "semtoken.toml").write_text('[decisions]\nquestions = "questions.yaml"\n')
    (inner := in_folder / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(inner)
    found = read_settings()
    assert found.settings.decisions.questions == str(in_folder / "questions.yaml")
    assert found.is_found("decisions.questions") and not found.is_found("decisions.labeled")
    monkeypatch.setenv("SEMTOKEN_CONFIG", str(in_folder / "semtoken.toml"))
    assert not read_settings().is_found("decisions.questions")


def test_config_prints_a_settings_file_that_says_the_same(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (in_folder / "semtoken.toml").write_text('# mine\n[journal]\n\nwithhold = ["a\\\\d", "ü"]\n')
    monkeypatch.setenv("SEMTOKEN_LIMITS_CONNECTIONS", "5")
    done = invoke(["config", "--endpoint.base-url", "http://127.0.0.1:1/v1"])
    assert 'withhold = ["a\\\\d", "ü"]  # semtoken.toml:4' in done.stdout
    assert "connections = 5  # SEMTOKEN_LIMITS_CONNECTIONS" in done.stdout
    assert 'base_url = "http://127.0.0.1:1/v1"  # command line' in done.stdout
    assert "texts = false  # default" in done.stdout
    (in_folder / "again.toml").write_text(done.stdout)
    monkeypatch.delenv("SEMTOKEN_LIMITS_CONNECTIONS")
    again = read_settings(in_folder / "again.toml").settings
    assert again.limits.connections == 5 and again.journal.withhold == ("a\\d", "ü")
    written = tomllib.loads(done.stdout)
    expected = {
        section: {
            key: list(value) if isinstance(value, tuple) else value for key, value in keys.items() if value is not None
        }
        for section, keys in asdict(again).items()
    }
    assert written == expected


def test_config_hides_passwords() -> None:
    done = invoke(["config", "--journal.url", "postgresql://me:secret@db/semtoken"])
    assert "secret" not in done.stdout and "me:***@db" in done.stdout
