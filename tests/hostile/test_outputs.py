"""Text of others through every output: nothing in it is obeyed by a terminal, a browser, TeX or a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
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
from tests.examples import examples
from tests.hostile.targets import scored

EVIL = (
    *("\x1b[2J", "\x1b]0;title\x07", "\x1b[31m", "\x9b1m", "\r", "\b\b", "\0", "\x7f", "\u202e", "\u2066", "\u200b"),
    *("\u2028", "\u2029", "\ufeff", "</script><script>x()</script>", "<img src=x onerror=x()>", "<!--", "-->", "]]>"),
    *("&amp;", "&#60;", '"', "'", "`", "\\", "\\input{/etc/passwd}", "\\write18{x}", "$x^2$", "%", "#", "_", "{", "}"),
    *("^", "~", "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", '=HYPERLINK("http://x")', ",", ";", "|", "\n", "\r\n", "\n\n"),
    *("[a](javascript:x)", "![x](x)", "**b**", "[red]", "[/red]", "[link=http://x]", "javascript:x()", "\U0001f600"),
    *("é", "中", "word ", "a", "7", " ", "A" * 200, "${x}", "{{x}}", "{%x%}"),
)
TEXTS = st.lists(st.sampled_from(EVIL), min_size=1, max_size=5).map("".join)
"""Pieces that somebody would obey, in any order."""
STYLES = re.compile(r"\x1b\[[\d;]*m")  # what we write ourselves where a terminal takes colors
TEX_WORD = re.compile(r"text[a-z]+")  # the names of characters


def obeyed(shown: str) -> list[str]:
    """The characters that a terminal would obey."""
    return [one for one in STYLES.sub("", shown).replace("\n", "") if not one.isprintable()]


def spelled(text: str) -> ScoredAnswer:
    """A scored answer whose tokens spell a text."""
    answer = scored()
    tokens = [
        replace(token, text=text, alternatives=tuple(replace(other, text=text) for other in token.alternatives))
        for token in answer.tokens
    ]
    return replace(answer, text=text * len(tokens), tokens=tuple(tokens))


@given(TEXTS)
def test_a_terminal_obeys_nothing(text: str) -> None:
    answer, file = spelled(text), io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, color_system="truecolor")
    console.print(shaded_text(answer))
    console.print(token_table(answer))
    console.print(visible(text), markup=False)
    console.print(visible(describe_alternatives(answer.tokens[0])), markup=False)
    assert not obeyed(file.getvalue()) and not obeyed(json_line({text: text}))


@examples(0.2)
@given(TEXTS)
def test_a_servers_error_is_said_in_a_line(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    source = tmp_path_factory.mktemp("reply") / "reply.json"
    source.write_text(json.dumps({"error": {"message": text, "code": text}}))
    done = invoke(["check", source])
    assert done.exit_code == 1 and "Traceback" not in done.output and not obeyed(done.output)


class Elements(HTMLParser):
    """The elements of a page, with the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found = list[str]()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {[name for name, _ in attrs]}"]


def page_of(said: str) -> list[str]:
    rows = [{**scored().to_dict(), "question": said, "response": said, said: said}]
    return Elements(static_page({said: rows})).found


@given(TEXTS)
def test_a_page_gains_no_element(text: str) -> None:
    assert page_of(text) == page_of("fine")
    assert set(Elements(shaded_html(spelled(text))).found) <= set(Elements(shaded_html(spelled("fine\n"))).found)


@given(TEXTS)
def test_tables_of_tex_and_markdown_keep_their_cells(text: str) -> None:
    made, marks = (frame([row], ("Method", text), text) for row in ([text, "0.9≈ [0.8, 1.0]"], ["", "best"]))
    table = Table("t", text, made, text, marks=marks)
    tex = latex_escaped(text)
    assert all(TEX_WORD.fullmatch(word) for word in re.findall(r"\\([A-Za-z]+)", tex))
    bare = re.sub(r"\\[#$%&_{}]|\\[A-Za-z]+\{[^{}]*\}|\{\}|-\{\}", "", tex)
    assert not re.search(r"[\\#$%&_{}~^]", bare) and all(one.isprintable() or one == "\n" for one in tex)
    latex_table(table)
    lines = [line for line in markdown_table(table).splitlines() if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in lines] == [3] * 3
    assert not re.search(r"<[a-z!/]", "".join(lines))


@given(TEXTS)
def test_files_give_back_what_was_written_and_hold_no_formula(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    record = {"question": text, "number": -1.5, "name " + text: "x"}
    assert parse_json(dump_json(record)) == record
    folder = tmp_path_factory.mktemp("files")
    source, target = folder / "lines.jsonl", folder / "table.csv"
    source.write_bytes(dump_json(record) + b"\n")
    convert_lines(source, target)
    with target.open(newline="", encoding="utf-8") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell.startswith(tuple("=+-@\t\r\n")) and cell != "-1.5"]
    [found] = read_records(target)
    assert found.fields.get("question") == text
