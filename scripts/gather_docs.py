"""Lay out the pages of the documentation site: docs/, the notebooks, and the pages of the project around them.

    python scripts/gather_docs.py        # writes build/docs; `make docs` then builds the site from it

Files of docs/ go to the root of the site, others keep their place, notebooks become Markdown with their outputs. Links
are rewritten to the new places, and a link to a file that does not exist stops the build. `llms.txt` lists the pages
with a sentence each, in the order of the navigation, for programs that read documentation (llmstxt.org). The page of
the commands gets the reference of all of them, from their own help.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "docs"
PAGES = (
    *(
        "docs/**/*.md",
        "examples/notebooks/*.ipynb",
        "CONTRIBUTING.md",
        "CODE_OF_CONDUCT.md",
        "SECURITY.md",
        "CHANGELOG.md",
    ),
    *(
        "benchmarks/*.md",
        "examples/README.md",
        "examples/*/README.md",
        "research/experiments/README.md",
        "research/experiments/*/README.md",
        "research/training/*/README.md",
        "packaging/contrib/README.md",
        "packaging/contrib/*/README.md",
        "packaging/*/README.md",
    ),
)
FILES = (
    "docs/**/*.svg",
    "docs/**/*.png",
    "benchmarks/results/*.png",
    "examples/**/*.py",
    "packaging/contrib/**/*.py",
    "packaging/contrib/**/*.patch",
    "examples/bench/*.yaml",
)
COMMANDS = "docs/cli.md"
LINK = re.compile(r"(?P<text>\]\()(?P<path>(?![a-z]+:|#)[^)\s]+\.[a-zA-Z]+)(?P<anchor>#[^)\s]*)?\)")
FENCE = re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.DOTALL | re.MULTILINE)


def main() -> None:
    """Write every page and file."""
    from scripts.command_reference import reference

    shutil.rmtree(OUT, ignore_errors=True)
    pages = {path.relative_to(ROOT).as_posix(): path for pattern in PAGES for path in sorted(ROOT.glob(pattern))}
    files = {path.relative_to(ROOT).as_posix(): path for pattern in FILES for path in sorted(ROOT.glob(pattern))}
    for name, path in pages.items():
        text = notebook_text(path) if path.suffix == ".ipynb" else path.read_text("utf-8")
        if name == COMMANDS:
            text += f"\n{reference()}"
        write(OUT / place(name), relinked(text, name, pages.keys() | files.keys()))
    for name, path in files.items():
        target = OUT / place(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    project = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]
    write(OUT / "llms.txt", llms_txt(project, {place(name): path for name, path in pages.items()}))


def llms_txt(project: dict[str, Any], pages: dict[str, Path]) -> str:
    """The list of pages that llmstxt.org describes: a title, a quotation, and a section of links for each group."""
    lines = [f"# {project['site_name']}", "", f"> {project['site_description']}"]
    for item in project["nav"]:
        for section, inside in item.items():
            entries = inside if isinstance(inside, list) else [{section: inside}]
            lines += ["", f"## {section}", ""]
            for entry in entries:
                lines += [f"- [{title}]({page}): {first_sentence(pages[page])}" for title, page in entry.items()]
    return "\n".join(lines) + "\n"


def first_sentence(path: Path) -> str:
    """What a page says first, without its headings, links and emphasis; its title where it says nothing."""
    text = notebook_text(path) if path.suffix == ".ipynb" else path.read_text("utf-8")
    paragraphs = [part.strip() for part in FENCE.sub("", text).split("\n\n")]
    title = next((part.lstrip("# ") for part in paragraphs if part.startswith("#")), path.stem)
    prose = next((part for part in paragraphs if part and part[0] not in "#!|:-<"), title)
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(prose.split())).replace("**", "")
    said = ""
    for sentence in re.split(r"(?<=[.:?!])\s", plain):
        said = f"{said} {sentence}".strip()
        if len(said) >= 40:
            break
    return said


def place(name: str) -> str:
    """Where a file of the repository stands in the site."""
    found = name.removeprefix("docs/")
    return found.removesuffix(".ipynb") + ".md" if found.endswith(".ipynb") else found


def relinked(text: str, name: str, known: set[str]) -> str:
    """The text of a page with its links to other files as they stand in the site; code is left alone."""
    pieces, position = [], 0
    for fence in FENCE.finditer(text):
        pieces += [_relinked(text[position : fence.start()], name, known), fence[0]]
        position = fence.end()
    return "".join([*pieces, _relinked(text[position:], name, known)])


def _relinked(text: str, name: str, known: set[str]) -> str:
    here = PurePosixPath(name).parent

    def moved(found: re.Match[str]) -> str:
        target = os.path.normpath(here / found["path"])
        if target == "README.md":
            return f"]({os.path.relpath('index.md', PurePosixPath(place(name)).parent)})"
        if target not in known:
            sys.exit(
                f"{name} links to {found['path']}, which is not in the site. Correct the link, or add it to PAGES."
            )
        new = os.path.relpath(place(target), PurePosixPath(place(name)).parent)
        return f"]({new}{found['anchor'] or ''})"

    return LINK.sub(moved, text)


def notebook_text(path: Path) -> str:
    """A notebook as Markdown, with the outputs that are kept in it."""
    from nbconvert import MarkdownExporter

    text, resources = MarkdownExporter().from_filename(str(path))
    if resources["outputs"]:
        sys.exit(f"{path.name} holds pictures, which this script does not write: {sorted(resources['outputs'])}")
    return str(text)


def write(path: Path, text: str) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # for the other scripts
    main()
