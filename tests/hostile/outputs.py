"""Text of others through every output: nothing in it is obeyed by a terminal, a browser, TeX or a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from rich.console import Console

from semtoken.bench.report.latex import latex_escaped, latex_table
from semtoken.bench.report.markdown import markdown_table
from semtoken.bench.report.table import Table, frame
from semtoken.cli.console import json_line
from semtoken.core.results import ScoredAnswer
from semtoken.core.scored_token import describe_alternatives
from semtoken.display import shaded_html, shaded_text, token_table
from semtoken.support.files.record_files import convert_lines, read_records
from semtoken.support.files.strict_json import dump_json, parse_json
from semtoken.support.text import visible
from semtoken.web.page.static import static_page
from tests.cli.run import invoke
from tests.hostile.outcomes import Outcome, case_random
from tests.hostile.targets import scored

EVIL = (
    *("\x1b[2J", "\x1b]0;title\x07", "\x1b[31m", "\x9b1m", "\r", "\b\b", "\0", "\x7f", "\u202e", "\u2066", "\u200b"),
    *("\u2028", "\u2029", "\ufeff", "</script><script>x()</script>", "<img src=x onerror=x()>", "<!--", "-->", "]]>"),
    *("&amp;", "&#60;", '"', "'", "`", "\\", "\\input{/etc/passwd}", "\\write18{x}", "$x^2$", "%", "#", "_", "{", "}"),
    *("^", "~", "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", '=HYPERLINK("http://x")', ",", ";", "|", "\n", "\r\n", "\n\n"),
    *("[a](javascript:x)", "![x](x)", "**b**", "[red]", "[/red]", "[link=http://x]", "javascript:x()", "\U0001f600"),
    *("é", "中", "word ", "a", "7", " ", "A" * 200, "${x}", "{{x}}", "{%x%}"),
)
STYLES = re.compile(r"\x1b\[[\d;]*m")  # what we write ourselves where a terminal takes colors
TEX_WORD = re.compile(r"text[a-z]+")  # the names of characters


def evil_text(rng: random.Random) -> str:
    """Pieces that somebody would obey, in any order."""
    return "".join(rng.choice(EVIL) for _ in range(rng.randrange(1, 6)))


def terminal(text: str) -> str | None:
    """Answers that are shown, and messages."""
    answer = evil_answer(text)
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, color_system="truecolor")
    console.print(shaded_text(answer))
    console.print(token_table(answer))
    console.print(visible(text), markup=False)
    console.print(visible(describe_alternatives(answer.tokens[0])), markup=False)
    return unprintable(file.getvalue()) or unprintable(json_line({text: text}))


def evil_answer(text: str) -> ScoredAnswer:
    """A scored answer whose tokens spell a text."""
    answer = scored()
    tokens = [
        replace(token, text=text, alternatives=tuple(replace(other, text=text) for other in token.alternatives))
        for token in answer.tokens
    ]
    return replace(answer, text=text * len(tokens), tokens=tuple(tokens))


def unprintable(shown: str) -> str | None:
    """The first character that a terminal would obey."""
    left = STYLES.sub("", shown).replace("\n", "")
    return next((f"{c!r} reaches the terminal" for c in left if not c.isprintable()), None)


def command(text: str, folder: Path) -> str | None:
    """An error of a server, through a command."""
    source = folder / "reply.json"
    source.write_text(json.dumps({"error": {"message": text, "code": text}}))
    done = invoke(["check", str(source)])
    if done.exit_code != 1 or "Traceback" in done.output:
        return f"exit status {done.exit_code}: {done.output[:200]!r}"
    return unprintable(done.output)


class Elements(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take in an element."""
        self.found |= {tag, *(f"{tag} {name}" for name, _ in attrs)}
        self.scripts += tag == "script"


def elements(page: str) -> Elements:
    """The elements of a page."""
    parser = Elements()
    parser.feed(page)
    parser.close()
    return parser


def page(text: str) -> str | None:
    """The page of scored answers, and the answer as HTML."""

    def rows(said: str) -> list[dict[str, object]]:
        return [{**scored().to_dict(), "question": said, "response": said, said: said}]

    plain = elements(static_page({"fine": rows("fine")}))
    whole = text.encode("utf-8", "replace").decode()
    evil = elements(static_page({whole: rows(whole)}))
    if evil.found - plain.found or evil.scripts != plain.scripts:
        return f"the page gains {evil.found - plain.found}, {evil.scripts} scripts"
    gained = elements(shaded_html(evil_answer(text))).found - elements(shaded_html(evil_answer("fine"))).found
    return f"the answer gains {gained}" if gained else None


def tables(text: str) -> str | None:
    """Tables of a report in TeX and Markdown."""
    made, marks = (frame([row], ("Method", text), text) for row in ([text, "0.9≈ [0.8, 1.0]"], ["", "best"]))
    table = Table("t", text, made, text, marks=marks)
    tex = latex_escaped(text)
    unknown = {word for word in re.findall(r"\\([A-Za-z]+)", tex) if not TEX_WORD.fullmatch(word)}
    bare = re.sub(r"\\[#$%&_{}]|\\[A-Za-z]+\{[^{}]*\}|\{\}|-\{\}", "", tex)
    if unknown or re.search(r"[\\#$%&_{}~^]", bare):
        return f"TeX reads {sorted(unknown)} in {tex!r}"
    if any(not c.isprintable() for c in tex.replace("\n", "")):
        return f"TeX has {tex!r}"
    latex_table(table)
    lines = [line for line in markdown_table(table).splitlines() if line.startswith("|")]
    if [len(re.findall(r"(?<!\\)\|", line)) for line in lines] != [3] * 3:
        return f"Markdown has other cells: {lines}"
    return "Markdown has a tag" if re.search(r"<[a-z!/]", "".join(lines)) else None


def files(text: str, folder: Path) -> str | None:
    """CSV and JSON lines, written and read back."""
    whole = text.encode("utf-8", "replace").decode()
    record = {"question": whole, "number": -1.5, "name " + whole: "x"}
    if parse_json(dump_json(record)) != record:
        return "JSON gives back something else"
    source, target = folder / "lines.jsonl", folder / "table.csv"
    source.write_bytes(dump_json(record) + b"\n")
    convert_lines(source, target)
    with target.open(newline="", encoding="utf-8") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    formulas = [cell for cell in cells if cell[:1] in tuple("=+-@\t\r\n") and cell and cell != "-1.5"]
    if formulas:
        return f"a spreadsheet computes {formulas}"
    [found] = read_records(target)
    return None if found.fields.get("question") == whole else f"CSV gives back {found.fields}"


def attack(seed: int, texts: int, folder: Path) -> Outcome:
    """Put so many texts through every output."""
    outcome = Outcome("outputs", "hostile texts to terminal, command, page, TeX and Markdown, CSV and JSON")
    ways: dict[str, Callable[[str], str | None]] = {
        "terminal": terminal,
        "command": lambda text: command(text, folder),
        "page": page,
        "tables": tables,
        "files": lambda text: files(text, folder),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(texts):
        text = evil_text(case_random(seed, "outputs", number))
        for name, way in ways.items():
            try:
                fault = way(text)
            except Exception as error:
                fault = f"{type(error).__name__}: {error!s:.200}"
            outcome.count(fault, f"{name}, text {number} {text!a:.100}")
    return outcome
