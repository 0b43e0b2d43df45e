"""The documentation site: every page can be reached, every public name is described, nothing comes from elsewhere."""

from __future__ import annotations

import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from scripts import gather_docs

import semtoken

ROOT = Path(__file__).parents[2]


NAV = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]


def pages_of(nav: Any) -> list[str]:
    """Files named in a navigation, in order."""
    if isinstance(nav, str):
        return [nav]
    items = nav.values() if isinstance(nav, dict) else nav
    return [page for item in items for page in pages_of(item)]


def test_every_page_is_in_the_navigation_once() -> None:
    nav = pages_of(NAV)
    assert len(nav) == len(set(nav))
    there = {path.relative_to(ROOT).as_posix() for pattern in gather_docs.PAGES for path in ROOT.glob(pattern)}
    pages = {gather_docs.place(name) for name in there if name.startswith(("docs/", "examples/notebooks/"))}
    assert pages <= set(nav), "add the page to the nav of zensical.toml"
    assert set(nav) <= {gather_docs.place(name) for name in there}


def test_every_public_name_is_in_the_reference() -> None:
    text = "\n".join(path.read_text("utf-8") for path in (ROOT / "docs" / "api").glob("*.md"))
    described = set(re.findall(r"^::: semtoken\.(\S+)", text, re.MULTILINE))
    for name in semtoken.__all__:
        value = getattr(semtoken, name)
        home = getattr(value, "__module__", getattr(value, "__name__", "")).removeprefix("semtoken.")
        places = {f"{home}.{name}", home, name}
        assert name == "__version__" or places & described, f"describe semtoken.{name} on a page of docs/api"


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of all pages, as the site is built from them; to make it ends with an error at a link to nowhere."""
    monkeypatch.setattr(gather_docs, "OUT", tmp_path)
    monkeypatch.setattr(gather_docs, "notebook_text", lambda path: path.read_text("utf-8").replace("\\n", "\n"))
    gather_docs.main()
    return tmp_path


def test_the_map_of_the_tests_names_each_module_that_folders_share() -> None:
    page = (ROOT / "docs" / "development.md").read_text("utf-8")
    section = page.partition("## The tests")[2].partition("\n## ")[0]
    cells = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    named = {name for cell in cells for name in re.findall("`([^`]+)`", cell)}
    modules = {path.stem for path in (ROOT / "tests").glob("*.py") if not path.stem.startswith(("test_", "_"))}
    assert modules - {"conftest"} <= named
    assert {name for name in named if not (ROOT / "tests" / f"{name}.py").is_file()} == set()


def test_every_file_that_a_page_links_to_is_there(gathered: Path) -> None:
    assert (gathered / "index.md").is_file() and (gathered / "examples" / "notebooks" / "1-first-steps.md").is_file()


def test_the_list_for_programs_names_every_page_with_a_sentence(gathered: Path) -> None:
    lines = (gathered / "llms.txt").read_text("utf-8").splitlines()
    listed = [re.fullmatch(r"- \[.+?\]\((.+?)\): (.*)", line) for line in lines if line.startswith("- ")]
    assert [found[1] for found in listed if found] == pages_of(NAV)
    assert all(found and found[2] for found in listed)
    assert lines[0] == "# semtoken" and lines[2].startswith("> ")


def test_links_are_moved_and_code_is_not() -> None:
    text = "[a](method.md#limits) [b](../CONTRIBUTING.md) [c](https://x.org/y.md)\n```\n[d](nowhere.md)\n```\n"
    known = {"docs/method.md", "CONTRIBUTING.md"}
    assert gather_docs.relinked(text, "docs/cli.md", known) == text.replace("../CONTRIBUTING", "CONTRIBUTING")
    assert gather_docs.relinked("[a](docs/method.md)", "CONTRIBUTING.md", known) == "[a](method.md)"
    with pytest.raises(SystemExit, match=r"docs/cli\.md links to nowhere\.md"):
        gather_docs.relinked("[d](nowhere.md)", "docs/cli.md", known)


class Loads(HTMLParser):
    """Addresses that a page makes a browser load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.found += [given.get("src") or ""]
        if tag == "link" and given.get("rel") not in ("next", "prev", "canonical"):
            self.found += [given.get("href") or ""]


@pytest.mark.slow
def test_the_site_builds_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        outside = [url for url in Loads(page.read_text("utf-8")).found if re.match(r"(https?:)?//", url)]
        assert not outside, f"{page.relative_to(site)} loads {outside}"
    assert "fonts.googleapis" not in "".join(path.read_text("utf-8") for path in site.rglob("*.css"))
    assert "ScoredAnswer" in (site / "api" / "scores.html").read_text("utf-8")
