"""Needs of a release: one version, addresses from one place, a report of the installation without private facts."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from scripts import project_urls

from semtoken import __version__
from semtoken.support.installation import installation_report

ROOT = Path(__file__).parents[2]
ADDRESS = "https://example.org/them/semtoken"


def test_the_version_stands_once_in_the_package_and_in_the_citation() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    assert __version__ not in (ROOT / "pyproject.toml").read_text("utf-8")


def test_workflows_name_actions_by_hash_and_hold_no_secret() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = path.read_text("utf-8")
        used = re.findall(r"uses: \S+@(\S+)", text)
        assert used and all(re.fullmatch(r"[0-9a-f]{40}", commit) for commit in used), path.name
        assert "secrets." not in text and "\npermissions:\n  contents: read\n" in text, path.name


def test_one_variable_fills_every_address() -> None:
    text = project_urls.project_urls((ROOT / "pyproject.toml").read_text("utf-8"), ADDRESS)
    assert f'Repository = "{ADDRESS}"\n' in text and text.count("[project.urls]") == 1
    assert project_urls.project_urls(text, ADDRESS) == text
    cited = project_urls.citation((ROOT / "CITATION.cff").read_text("utf-8"), ADDRESS)
    assert cited.count(f"repository-code: {ADDRESS}\n") == 1 and project_urls.citation(cited, ADDRESS) == cited


def test_the_readme_of_the_index_has_no_relative_links() -> None:
    text = project_urls.full_links((ROOT / "README.md").read_text("utf-8"), ADDRESS)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links and all(link.startswith(("https://", "#", "mailto:")) for link in links)
    assert project_urls.full_links(text, ADDRESS) == text
    moved = project_urls.full_links(text, "https://example.org/others/semtoken")
    assert ADDRESS not in moved and moved.replace("/others/", "/them/") == text
    assert f"![p]({ADDRESS}/raw/main/docs/a.svg)" in project_urls.full_links("![p](docs/a.svg)", ADDRESS)


def test_the_report_of_an_installation_says_nothing_private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-private")
    monkeypatch.chdir(tmp_path)
    lines = dict(line.split(": ", 1) for line in installation_report().splitlines())
    assert lines["semtoken"] == __version__ and "numpy" in lines
    private = ("sk-private", str(tmp_path), str(Path.home()), os.uname().nodename)
    assert not any(word in text for word in private for text in lines.values())
