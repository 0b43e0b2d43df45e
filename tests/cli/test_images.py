"""Images from the command line: `score`, `ask`, a folder of scans to a table and a page, images that are refused."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from semtoken import ScoredModel
from tests.cli.conftest import RunCommand, assert_told
from tests.json_lines import read_lines, write_lines
from tests.models.image_models import that_writes

WRITTEN = '{"total": 12.5, "seller": "Paris"}'
PIECES = ('{"total": ', "12.5", ', "seller": ', '"Paris"', "}")
SCHEMA = {
    "properties": {"total": {"type": "number"}, "seller": {"type": "string"}, "paid": {"type": "boolean"}},
    "required": ["total", "seller", "paid"],
}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image-text model in a folder, which always writes the same JSON and is not sure of it."""
    folder = tmp_path_factory.mktemp("models") / "reader"
    for part in that_writes(*PIECES, sure=7.0):
        part.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with scans of 340 x 440 pixels, which differ, and notes beside them."""
    folder = tmp_path_factory.mktemp("drawn")
    draw = np.random.default_rng(0)
    for name in ("a.png", "b.JPG"):
        noise = draw.integers(0, 255, (44, 34, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((340, 440)).save(folder / name)
    (folder / "notes.txt").write_text("no image")
    return folder


@pytest.fixture
def scans(drawn: Path, tmp_path: Path) -> Path:
    """The folder of scans, for a test to change, beside the schema of their fields."""
    folder = shutil.copytree(drawn, tmp_path / "scans")
    (tmp_path / "invoice.schema.json").write_text(json.dumps(SCHEMA))
    return folder


def asked(path: object, text: str = "What is the total?") -> list[dict[str, Any]]:
    image = {"type": "image", "path": str(path)}
    return [{"role": "user", "content": [image, {"type": "text", "text": text}]}]


def test_score_reads_images_beside_its_file(semtoken: RunCommand, reader: str, scans: Path, tmp_path: Path) -> None:
    rows = [{"messages": asked("scans/a.png")}, {"messages": asked(scans / "b.JPG"), "response": WRITTEN}]
    source = write_lines(tmp_path / "in.jsonl", rows)
    (tmp_path / "out").mkdir()
    command = ("score", source, "-o", tmp_path / "out" / "scored.jsonl", "--model", reader)
    assert semtoken(*command).exit_code == 0
    written = read_lines(tmp_path / "out" / "scored.jsonl")
    stc = ScoredModel.from_pretrained(reader)
    [first] = stc.generate([asked(scans / "a.png")], 256)
    [second] = stc.score([asked(scans / "b.JPG")], [WRITTEN])
    assert [line["log_confidence"] for line in written] == pytest.approx(
        [first.log_confidence, second.log_confidence], abs=1e-5
    )
    assert first.text == WRITTEN
    images = [line["messages"][0]["content"][0] for line in written]
    assert [one["path"] for one in images] == ["../scans/a.png", str(scans / "b.JPG")]  # relative to the output
    assert images[0]["sha256"] == hashlib.sha256((scans / "a.png").read_bytes()).hexdigest()
    assert "nothing to do" in semtoken(*command).stderr
    before = (scans / "a.png").read_bytes()
    (scans / "a.png").write_bytes((scans / "b.JPG").read_bytes())
    changed = semtoken(*command)
    assert changed.exit_code != 0 and "the field 'messages' differs" in changed.stderr
    (scans / "a.png").write_bytes(before)
    page = tmp_path / "page.html"
    assert "2 answers" in semtoken("check", tmp_path / "out" / "scored.jsonl", "-o", page).stderr
    assert page.read_text().count("data:image/jpeg;base64,") == 2
    (scans / "a.png").unlink()
    assert "lacks 1 image" in semtoken("check", tmp_path / "out" / "scored.jsonl", "-o", page).stderr


def test_images_that_are_refused(semtoken: RunCommand, reader: str, scans: Path, tmp_path: Path) -> None:
    (tmp_path / "none.png").write_bytes(b"no image")
    Image.new("1", (9_000, 9_000)).save(tmp_path / "large.png")
    said = {"none.png": "cannot be read as one of PNG", "large.png": "9,000 x 9,000 pixels"}
    rows = [{"messages": asked(name)} for name in ("scans/a.png", *said)]
    source = write_lines(tmp_path / "in.jsonl", rows)
    result = semtoken("score", source, "--model", reader, "-o", tmp_path / "skipped.jsonl")
    assert result.exit_code == 0
    good, *bad = read_lines(tmp_path / "skipped.jsonl")
    assert "error" not in good
    for told, line in zip(said.values(), bad, strict=True):
        assert told in line["error"]
    assert_told(semtoken("ask", "--image", tmp_path / "none.png", "--model", reader, "Who?"), said["none.png"])


def test_images_that_are_not_there(semtoken: RunCommand, scans: Path, reader: str, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [{"messages": asked("scans/c.png")}])
    assert_told(
        semtoken("score", source, "--model", "no-such-model", "--strict"),
        "Line 1 of",
        "there is no image file",
        "c.png",
    )
    write_lines(source, [{"messages": asked("http://127.0.0.1:1/a.png")}])
    assert_told(semtoken("score", source, "--model", reader, "--strict"), "Line 1 of", "is not fetched")


def test_ask_about_an_image(semtoken: RunCommand, reader: str, scans: Path) -> None:
    result = semtoken("ask", "What is the total?", "--image", scans / "a.png", "--model", reader, "--json")
    [line] = read_lines(result.stdout)
    stc = ScoredModel.from_pretrained(reader)
    [expected] = stc.generate([asked(scans / "a.png")], 64)
    assert line["log_confidence"] == pytest.approx(expected.log_confidence, abs=1e-5)
    [again] = read_lines(semtoken("score", "-", "--model", reader, stdin=result.stdout).stdout)
    [expected] = stc.score([asked(scans / "a.png")], [WRITTEN])
    assert again["log_probability"] == pytest.approx(expected.log_probability, abs=1e-5)
    assert_told(semtoken("ask", "--image", scans / "a.png", "What is the total?"), "has an image", "only text")


def test_a_folder_of_scans_to_a_table_and_a_page(
    semtoken: RunCommand, reader: str, scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every page of it is read, what is left out is named, and images are made as small as a screen."""
    monkeypatch.chdir(tmp_path)
    Image.open(scans / "b.JPG").resize((1700, 2200)).save(scans / "b.JPG")
    (scans / "sub").mkdir()
    first, second = Image.new("L", (60, 80), 200), Image.new("L", (60, 80), 90)
    first.save(scans / "two.tif", save_all=True, append_images=[second])
    first.save(scans / "sub" / "one.pdf", format="PDF")
    result = semtoken("score", "scans", "--schema", "invoice.schema.json", "-o", "fields.csv", "--model", reader)
    assert result.exit_code == 0, result.output
    assert "1 of the files in scans are no images and are left out: notes.txt" in result.stderr
    said = "15 fields in fields.csv, 15 to be checked. A page: semtoken check fields.jsonl -o page.html"
    assert said in result.stderr
    pages = {"a.png": None, "b.JPG": None, "sub/one.pdf": None, "two.tif#1": 1, "two.tif#2": 2}
    rows = (tmp_path / "fields.csv").read_text()
    assert all(f"{name},{path}" in rows for name in pages for path in ("/total", "/seller", "/paid"))
    lines = read_lines(tmp_path / "fields.jsonl")
    assert [line["id"] for line in lines] == list(pages)
    images = [line["messages"][0]["content"][0] for line in lines]
    assert [(one["path"], one.get("page")) for one in images] == [
        (f"scans/{name.partition('#')[0]}", page) for name, page in pages.items()
    ]
    assert semtoken("check", "fields.jsonl", "-o", "page.html").exit_code == 0
    page = (tmp_path / "page.html").read_text()
    urls = re.findall('data:image/jpeg;base64,([^"]+)', page)
    _, large, *flat = [Image.open(io.BytesIO(base64.b64decode(url))) for url in urls]
    assert max(large.size) <= 1600 and large.size[0] / large.size[1] == pytest.approx(1700 / 2200, abs=0.01)
    assert [one.convert("L").getpixel((20, 20)) for one in flat] == pytest.approx([200, 200, 90], abs=4)
    assert len(page) < 1_000_000


@pytest.mark.parametrize(("options", "said"), [((), "--schema"), (("--schema", "invoice.schema.json"), "--output")])
def test_a_folder_needs_a_schema_and_a_table(
    semtoken: RunCommand, scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Any, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = semtoken("score", "scans", *options)
    assert result.exit_code == 2 and said in result.stderr
    (tmp_path / "empty").mkdir()
    told = semtoken("score", "empty", "--schema", "invoice.schema.json", "-o", "fields.csv")
    assert_told(told, "empty holds no image")


def test_pages_of_saved_replies_show_the_images_of_their_questions(
    semtoken: RunCommand, scans: Path, tmp_path: Path
) -> None:
    examples = Path(__file__).parents[2] / "examples" / "extraction"
    replies = read_lines(examples / "replies.jsonl")[:2]
    names = [str(reply["id"]) for reply in replies]
    saved = write_lines(tmp_path / "replies.jsonl", replies)
    rows = [{"id": names[0], "messages": asked("scans/a.png")}, {"id": names[1], "question": "And here?"}]
    questions = write_lines(tmp_path / "questions.jsonl", rows)
    for schema in ((), ("--schema", examples / "invoice.schema.json")):
        page = tmp_path / f"page{len(schema)}.html"
        result = semtoken("check", saved, "--questions", questions, "-o", page, *schema)
        assert result.exit_code == 0, result.output
        assert page.read_text().count("data:image/jpeg;base64,") == 1
