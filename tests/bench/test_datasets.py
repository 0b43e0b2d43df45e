"""Question sets: hub layout, local files, the almanac's, users' own, and what is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from semtoken.bench.datasets import Dataset, read_dataset
from semtoken.errors import InvalidInputError
from semtoken.models.prompts import PROMPTS, PromptFormat
from semtoken.support.almanac import load_questions
from tests.rows import each

SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The `datasets` library keeps its files in the test's folder."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def write_parquet(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)


def card(folder: Path, config: str, split: str, files: str) -> None:
    """The head of the card on the hub, which says where the files of a configuration are."""
    text = f"---\nconfigs:\n- config_name: {config}\n  data_files:\n  - split: {split}\n    path: {files}\n---\n"
    (folder / "README.md").write_text(text)


def test_natural_questions_in_the_layout_of_the_hub(tmp_path: Path) -> None:
    rows = [{"question": "who is it", "answer": ["Ann", "Anna"]}, {"question": "where", "answer": ["Où"]}]
    write_parquet(tmp_path / "nq_open" / "validation-00000-of-00001.parquet", rows)
    write_parquet(tmp_path / "nq_open" / "train-00000-of-00001.parquet", [{"question": "no", "answer": ["x"]}])
    card(tmp_path, "nq_open", "validation", "nq_open/validation-*")
    dataset = read_dataset("nq", path=tmp_path)
    assert [(q.id, q.question, q.answers) for q in dataset.questions] == [
        ("nq_open_validation_0000", "who is it", ("Ann", "Anna")),
        ("nq_open_validation_0001", "where", ("Où",)),
    ]
    assert dataset.label == "NQ" and dataset.format == PROMPTS["nq"]
    assert dataset.notes == (f"NQ: 2 questions in {tmp_path}, not the 3,610 of the full set.",)


PLACES = {
    "entity_pages": ("doc_source", "filename", "title", "wiki_context"),
    "search_results": ("description", "filename", "rank", "title", "url", "search_context"),
}


def tqa_row(id: str, question: str, value: str, aliases: list[str]) -> dict[str, Any]:
    """A row with all columns of `rc.nocontext`, whose lists of places are empty: values give their types."""
    others = ("matched_wiki_entity_name", "normalized_matched_wiki_entity_name")
    names = {"aliases": aliases, "normalized_aliases": [alias.lower() for alias in aliases]}
    values = {"value": value, "normalized_value": value.lower(), "type": "WikipediaEntity"}
    return {
        "question": question,
        "question_id": id,
        "question_source": "http://www.triviacountry.com/",
        **{name: {field: [7 if field == "rank" else "x"] for field in fields} for name, fields in PLACES.items()},
        "answer": {**names, **values, **dict.fromkeys(others, "")},
    }


TQA_ROWS = (
    tqa_row("tc_2", "Who was behind The Chipmunks?", "David Seville", ["David Seville", "Seville"]),
    tqa_row("tc_33", "Which musical?", "Sunset Blvd", ["Sunset Boulevard", "Sunset Blvd", "Sunset Boulevard"]),
    tqa_row("tc_2", "Who was behind The Chipmunks?", "David Seville", ["David Seville", "Seville"]),
    tqa_row("tc_40", "Which one?", "The one", ["Other"]),
)


def test_trivia_qa_in_the_layout_of_the_hub(tmp_path: Path) -> None:
    """Without a card; that of another set is read above."""
    write_parquet(tmp_path / "rc.nocontext" / "validation-00000-of-00001.parquet", TQA_ROWS)
    dataset = read_dataset("triviaqa", path=tmp_path)
    assert [(q.id, q.answers) for q in dataset.questions] == [
        ("tc_2", ("David Seville", "Seville")),
        ("tc_33", ("Sunset Boulevard", "Sunset Blvd")),
        ("tc_40", ("The one", "Other")),
    ]
    assert dataset.label == "TQA" and dataset.format == PROMPTS["tqa"]
    repeated, count = dataset.notes
    assert repeated == "TQA: rows with a repeated question id, left out: 1."
    assert "3 questions" in count and "9,960" in count


def test_web_questions_in_the_layout_of_the_hub(tmp_path: Path) -> None:
    rows = [{"url": "http://www.freebase.com/view/en/x", "question": "who?", "answers": ["A", "B"]}]
    write_parquet(tmp_path / "data" / "test-00000-of-00001.parquet", rows)
    write_parquet(tmp_path / "data" / "train-00000-of-00001.parquet", rows * 3)
    dataset = read_dataset("wq", path=tmp_path)
    assert [(q.id, q.question, q.answers) for q in dataset.questions] == [("wqs000000", "who?", ("A", "B"))]
    assert dataset.label == "WQ" and dataset.format == PROMPTS["wq"]


def test_a_folder_of_another_set_is_told(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "test-00000-of-00001.parquet", [{"title": "x"}])
    with pytest.raises(
        InvalidInputError, match="row 0 is not of the form that stanfordnlp/web_questions has: it has title"
    ):
        read_dataset("wq", path=tmp_path)
    with pytest.raises(InvalidInputError, match=r"NQ cannot be loaded from .*validation.*\. A local copy can"):
        read_dataset("nq", path=tmp_path)


def test_the_hub_id_is_asked_for_and_a_failure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked: list[Any] = []

    def refuse(*arguments: Any, **options: Any) -> None:
        asked.append((*arguments, options))
        raise ConnectionError("no network here")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    for name in ("nq", "tqa", "wq"):
        with pytest.raises(InvalidInputError, match=r"cannot be loaded from .*: no network here\. A local"):
            read_dataset(name)
    assert asked == [
        ("google-research-datasets/nq_open", None, {"split": "validation"}),
        ("mandarjoshi/trivia_qa", "rc.nocontext", {"split": "validation"}),
        ("stanfordnlp/web_questions", None, {"split": "test"}),
    ]


@pytest.mark.skipif(not SHARED.is_dir(), reason="no local copies of the three question sets")
@pytest.mark.parametrize(
    ("name", "file", "count", "noted"),
    [
        ("nq", "nq_open_dev", 3_610, False),
        ("tqa", "triviaqa_validation", 9_951, True),
        ("wq", "webquestions_test", 2_032, False),
    ],
)
def test_local_copies_are_read_whole(name: str, file: str, count: int, noted: bool) -> None:
    path = SHARED / f"{file}.jsonl.gz"
    dataset = read_dataset(name, path=path)
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().split("\n") if line]
    assert len(dataset.questions) == len(rows) == count and bool(dataset.notes) is noted
    assert [(q.id, q.question, list(q.answers)) for q in dataset.questions] == [
        (row["id"], row["question"], row["answers"]) for row in rows
    ]
    assert len(dataset.prompts()) == count


def write(path: Path, *rows: Any) -> Path:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["own.set.jsonl", "own.set.jsonl.gz"])
def test_a_users_own_file(tmp_path: Path, name: str) -> None:
    separator = "\N{LINE SEPARATOR}"  # no end of a line in JSON lines
    path = write(
        tmp_path / name,
        {"question": f"Who{separator}?", "answers": ["Ann", "Anna"]},
        {"id": 7, "question": "Où?", "answers": "Paris", "more": 1},
    )
    own = PromptFormat("Q: {question}\nA:")
    dataset = read_dataset(path, format=own)
    assert [(q.id, q.question, q.answers) for q in dataset.questions] == [
        ("own.set:1", f"Who{separator}?", ("Ann", "Anna")),
        ("7", "Où?", ("Paris",)),
    ]
    assert dataset.label == "own.set" and dataset.notes == ()
    assert dataset.prompts()[1] == "Q: Ou\N{COMBINING GRAVE ACCENT}?\nA:"
    assert read_dataset(path, label="mine").label == "mine"


def test_a_mark_at_the_start_and_blank_lines_are_no_matter(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"question": "Who?", "answers": ["a"]}\r\n\r\n  \n{"question": "?", "answers": ["b"]}'
    )
    assert [q.id for q in read_dataset(path).questions] == ["own:1", "own:4"]


@each(
    ("line", "message"),
    [
        ("not json", "line 2: not JSON: .* at column 1"),
        ("\udcff", "line 2: not UTF-8 at byte 0"),
        ('{"question": "Who?"}', "line 2: expected"),
        ('["Who?"]', "line 2: a JSON object is needed, not a list"),
        ('{"question": " ", "answers": ["a"]}', "line 2: the question must be"),
        ('{"question": 1, "answers": ["a"]}', "line 2: the question must be"),
        ('{"question": "Who?", "answers": []}', "line 2: answers must be"),
        ('{"question": "Who?", "answers": [1]}', "line 2: answers must be"),
        ('{"question": "Who?", "answers": null}', "line 2: answers must be"),
        ('{"id": 1.5, "question": "Who?", "answers": ["a"]}', "line 2: the id must be"),
        ('{"id": "one", "question": "Who?", "answers": ["a"]}', "the id 'one' stands more than once"),
        ('{"id": "two", "question": "Who?", "answers": ["", " "]}', "the accepted answers are blank"),
        ("[" * 100_000, "line 2: not usable JSON: nested too deeply"),
    ],
)
def test_bad_lines_are_refused_with_their_number(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "questions.jsonl"
    good = '{"id": "one", "question": "Who?", "answers": ["a"]}\n'
    path.write_text(good + line, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(InvalidInputError, match=message):
        read_dataset(path)


def test_missing_empty_and_damaged_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"no question set '.*none\.jsonl': neither one of nq, tqa"):
        read_dataset(tmp_path / "none.jsonl")
    with pytest.raises(InvalidInputError, match=r"cannot be read: No such file"):
        read_dataset("nq", path=tmp_path / "none.jsonl")
    with pytest.raises(InvalidInputError, match="cannot be read: Is a directory"):
        read_dataset(tmp_path)
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(InvalidInputError, match="holds no question"):
        read_dataset(tmp_path / "empty.jsonl")
    whole = write(tmp_path / "cut.jsonl.gz", {"question": "Who?", "answers": ["a"]}).read_bytes()
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[:-12])
    with pytest.raises(InvalidInputError, match=r"cut\.jsonl\.gz cannot be read"):
        read_dataset(tmp_path / "cut.jsonl.gz")
    with pytest.raises(InvalidInputError, match="A path can be given for nq"):
        read_dataset("almanac", path=tmp_path)


def test_the_almanac() -> None:
    for name, split in (("almanac", "test"), ("almanac-dev", "dev")):
        dataset = read_dataset(name)
        assert list(dataset.questions) == load_questions(split)  # type: ignore[arg-type]
        assert dataset.label == name and dataset.prompts()[0] == dataset.questions[0].prompt()


def test_a_limit_takes_a_random_part_in_order() -> None:
    ids = [question.id for question in read_dataset("almanac").questions]

    def part(limit: int, **options: Any) -> list[str]:
        return [question.id for question in read_dataset("almanac", limit=limit, **options).questions]

    chosen = part(40, seed=1)
    assert len(set(chosen)) == 40 and sorted(chosen, key=ids.index) == chosen
    assert chosen == part(40, seed=1) != part(40, seed=2) != ids[:40]
    assert len({question.relation for question in read_dataset("almanac", limit=40).questions}) > 3
    assert part(10**6) == ids
    with pytest.raises(InvalidInputError, match="limit must be positive"):
        part(0)


def test_hashes_tell_what_generations_and_what_judgments_depend_on(tmp_path: Path) -> None:
    def dataset(question: str = "Who?", answer: str = "Ann", id: str = "1", **options: Any) -> Dataset:
        return read_dataset(
            write(tmp_path / "a.jsonl", {"id": id, "question": question, "answers": [answer]}), **options
        )

    base = dataset()
    assert base.asked_hash == dataset(label="other").asked_hash
    assert dataset(answer="Bob").asked_hash == base.asked_hash
    assert dataset(answer="Bob").content_hash != base.content_hash == dataset().content_hash
    formats = (PROMPTS["wq"], PromptFormat(PROMPTS["tqa"].template, stop_at_newline=False))
    others = [dataset(question="Where?"), dataset(id="2"), *(dataset(format=format) for format in formats)]
    assert len({other.asked_hash for other in [base, *others]}) == 5
    assert len({other.content_hash for other in [base, *others]}) == 5
