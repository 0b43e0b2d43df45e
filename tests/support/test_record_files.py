"""The next command reads whatever one command writes: the same records come back from every kind of file."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.errors import InvalidInputError
from semtoken.support.files.record_files import SUFFIXES, as_file, read_records, read_rows, write_records
from tests.examples import examples
from tests.rows import each

pytest.importorskip("pyarrow")

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
BLANKS = " \0\t\r\n;\u00a0\u3000\u200b\ufeff"
SIGNS = st.sampled_from("=+-@\t\r\n'\uff1d\uff0b\uff0d\uff20")
formulas = st.builds(lambda blanks, sign, rest: blanks + sign + rest, st.text(BLANKS + "'", max_size=3), SIGNS, texts)
records = st.fixed_dictionaries(
    {
        "id": texts | formulas,
        "question": texts | formulas,
        "answers": st.lists(texts | formulas, min_size=1, max_size=3),
        "response": texts | formulas,
        "correct": st.sampled_from([0, 1, None]),
        "sequence_uncertainty": st.floats(0, 1) | st.none(),
        "log_confidence": st.floats(-1e6, 0),
        "neutral_only": st.booleans(),
        "mine": texts | formulas | st.none(),
    }
)


@pytest.mark.parametrize("ending", SUFFIXES)
@examples(0.5)
@given(rows=st.lists(records, min_size=1, max_size=4))
def test_records_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, ending: str, rows: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.getbasetemp() / f"records{ending}"
    write_records(path, rows)
    assert [fields for _, _, fields in read_rows(path)] == rows


@given(text=texts | formulas)
def test_no_cell_is_a_formula(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """As a spreadsheet reads the file, by Python's own reader of CSV."""
    path = tmp_path_factory.getbasetemp() / "formulas.csv"
    write_records(path, [{"id": text, text: text}])
    with path.open(newline="", encoding="utf-8") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell[:1] in tuple("\t\r") or cell.lstrip(BLANKS)[:1] in tuple("=+-@")]
    # By semicolons or tabs a cell is cut whatever its quotes, and a line break ends a row; a sign alone is text.
    pieces = [piece.strip(BLANKS + '"') for cell in cells for piece in re.split("[;\t\r\n]", cell)[1:]]
    assert not [piece for piece in pieces if re.match("[=@]|[+-](?!\\s|\\Z)", piece)]


@pytest.mark.parametrize(
    ("record", "cells"),
    [
        ({"id": "Two things:\n- one; two\n+ three"}, b'id\r\n"Two things:\n- one; two\n+ three"\r\n'),
        ({"log_confidence": -0.5}, b"log_confidence\r\n-0.5\r\n"),
    ],
    ids=["a list in an answer", "a number below zero"],
)
def test_what_is_no_formula_stays_as_it_is(tmp_path: Path, record: dict[str, Any], cells: bytes) -> None:
    write_records(tmp_path / "a.csv", [record])
    assert (tmp_path / "a.csv").read_bytes() == cells


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("soffice") is None, reason="LibreOffice is not installed (apt-get install libreoffice-calc)"
)
@pytest.mark.parametrize("separators", ["44", "59", "9", "44/59/9"])
def test_libreoffice_computes_no_cell(tmp_path: Path, separators: str) -> None:
    """Codes of the characters that separate cells, as its filter for CSV takes them: of ours, and of others."""
    texts = [
        f"{word}{separator}{blank}{sign}1+1;"
        for word in ("", "a")
        for separator in ("", ";", "\t", "\n", "\r\n")
        for blank in ("", " ", "\0", "\u00a0", "'")
        for sign in "=+-@"
    ]
    write_records(tmp_path / "ours.csv", [{"id": text, "response": text} for text in texts])
    (tmp_path / "control.csv").write_text("id\n=1+1\n")
    options = f"--convert-to fods --infilter=CSV:{separators},34,76 ours.csv control.csv".split()
    profile = f"-env:UserInstallation={(tmp_path / 'profile').as_uri()}"
    subprocess.run(["soffice", profile, "--headless", *options], cwd=tmp_path, check=True, timeout=300)
    found = {name: (tmp_path / f"{name}.fods").read_text("utf-8") for name in ("ours", "control")}
    assert "table:formula=" in found["control"] and "table:formula=" not in found["ours"]


def test_records_with_different_fields_make_one_table(tmp_path: Path) -> None:
    for ending in (".csv", ".parquet"):
        write_records(tmp_path / f"a{ending}", [{"id": "1"}, {"response": "x"}])
        found = [dict(record.fields) for record in read_records(tmp_path / f"a{ending}")]
        assert found == [{"id": "1", "response": None}, {"id": None, "response": "x"}]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("id,id\n1,2\n", "two columns have the name 'id'"),
        ("id, id\n1,2\n", "two columns have the name 'id'"),
        ("id,question\n1,2,3\n", "line 2: there are 3 cells for 2 columns"),
        ('id\n"a\n', "not CSV"),
        ("log_confidence\nhigh\n", "line 2: the field 'log_confidence' holds 'high', which is no number"),
        ("sequence_uncertainty\nNaN\n", "which is no number"),
        ("empty\nmaybe\n", "neither true nor false"),
        ("messages\n[{]\n", "line 2: the field 'messages' holds .* not JSON"),
        ("id\n\udcff\n", "is not UTF-8"),
    ],
)
def test_a_table_that_cannot_be_read_says_where(tmp_path: Path, content: str, fault: str) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidInputError, match=fault):
        list(read_rows(path))


def test_a_damaged_parquet_file_is_one_message(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "in.parquet"
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(InvalidInputError, match=r"in\.parquet is no Parquet file"):
        list(read_rows(path))
    pyarrow.parquet.write_table(pyarrow.table({"id": [datetime.date(2026, 1, 1)]}), path)
    with pytest.raises(InvalidInputError, match=r"holds 2026-01-01, which JSON cannot hold: .*astype"):
        list(read_rows(path))
    pyarrow.parquet.write_table(pyarrow.table([[1], [2]], names=["id", "id"]), path)
    with pytest.raises(InvalidInputError, match=r"in\.parquet: two columns have the name 'id'"):
        list(read_rows(path))


@each("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_table_is_the_same_however_it_is_saved_and_named(encoding: str, tmp_path: Path) -> None:
    for separator, ending, line_end in (",", "csv", "\n"), (";", "CSV", "\r\n"), ("\t", "csv.gz", "\r"):
        rows = [["id", "response"], ["1", '"größe, ; \t"'], ["2", ""]]
        content = line_end.join(separator.join(row) for row in rows).encode(encoding)
        path = tmp_path / f"table.{ending}"
        path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
        assert [fields for _, _, fields in read_rows(path)] == [
            {"id": "1", "response": "größe, ; \t"},
            {"id": "2", "response": None},
        ]


def test_empty_cells_beyond_the_last_column_are_no_cells(tmp_path: Path) -> None:
    (path := tmp_path / "in.csv").write_text("id,question,,\n1,Who?,, \n2,,,\n", encoding="utf-8")
    assert [fields for _, _, fields in read_rows(path)] == [
        {"id": "1", "question": "Who?"},
        {"id": "2", "question": None},
    ]


@pytest.mark.parametrize("header", ["id,question,,", ",id,question", "id,,question"])
def test_columns_without_a_name_are_left_out(tmp_path: Path, header: str) -> None:
    content = {"id": "1", "question": "Who?"}
    row = ",".join(content.get(name, "a note") for name in header.split(","))
    alone = ",".join("" if name else "a note" for name in header.split(","))
    (path := tmp_path / "in.csv").write_text(f"{header}\n{row}\n{alone}\n{row},more\n", encoding="utf-8")
    read, refused = read_records(path)
    assert read.fields == content
    assert refused.fault == f"there are {header.count(',') + 2} cells for {header.count(',') + 1} columns"


def test_endings_in_capitals_are_the_same_kinds(tmp_path: Path) -> None:
    for ending in SUFFIXES:
        write_records(tmp_path / f"A{ending.upper()}", [{"id": "1"}])
        assert [fields for _, _, fields in read_rows(tmp_path / f"A{ending.upper()}")] == [{"id": "1"}]
    for ending in (".CSV.GZ", ".JSONL.GZ"):
        (path := tmp_path / f"A{ending}").write_bytes(gzip.compress((tmp_path / f"A{ending[:-3]}").read_bytes()))
        assert [fields for _, _, fields in read_rows(path)] == [{"id": "1"}]


def test_a_failed_write_leaves_the_former_file(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    path.write_text("before")
    unfit: list[list[dict[str, Any]]] = [[{"a": 1}, {"a": "one"}], [{"a": {}}]]
    for rows in unfit:
        with pytest.raises(InvalidInputError, match=rf"^{re.escape(str(path))} cannot .*[^.]\. .*one kind"):
            write_records(path, rows)
    with pytest.raises(ValueError, match="half a character"):
        write_records(path, [{"a": "\ud800"}])
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]


def test_standard_input_can_be_read_again_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = b'{"a": 1}\n{"a": 2}\n'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
    with as_file(Path("-")) as file:
        for _ in range(2):
            assert file.read_bytes() == given
            assert [record.fields["a"] for record in read_records(file)] == [1, 2]
    assert not file.parent.exists()
    with as_file(tmp_path / "own") as file:
        assert file == tmp_path / "own"
