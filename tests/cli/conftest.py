from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

from semtoken import ScoredModel, TokenClusters, Vocabulary
from tests import tiny
from tests.cli.run import Result, invoke
from tests.guarantees.worlds import WORLDS
from tests.json_lines import write_lines

RunCommand = Callable[..., Result]
ROOT = Path(__file__).parents[2]
TIMES = re.compile(
    rb"\d+\.\d+ s\b|\d[\d,.]* a second|, about [^\n]* left|\d+% of the time|\d{4}-\d\d-\d\d[T ][\d:.+]*Z?|"
    rb'"(seconds|checksum)": [^,\n]+'
)
"""What is different each time: seconds, dates, and the checksum of what has a date."""


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint of a random Llama with its tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    tokenizer = tiny.byte_level_bpe()
    tiny.llama(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def stc(model: str) -> ScoredModel:
    """The same model in the library, under the default rules."""
    return ScoredModel.from_pretrained(model)


@pytest.fixture(scope="session")
def clusters(model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Clusters of that model's tokens, by chance."""
    folder = tmp_path_factory.mktemp("clusters") / "tiny"
    vocabulary = Vocabulary.from_tokenizer(tiny.byte_level_bpe())
    labels = np.random.default_rng(0).integers(0, 100, vocabulary.size).astype(np.int32)
    TokenClusters(labels, vocabulary).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def semtoken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    """The command in this process, with an empty cache of its own and a wide screen."""
    monkeypatch.setenv("SEMTOKEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*args: object, stdin: str | None = None) -> Result:
        return invoke([str(a) for a in args], stdin=stdin)

    return run


@pytest.fixture(scope="session")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands read."""
    folder = tmp_path_factory.mktemp("walk")
    scores, correct = WORLDS["good model"].draw(np.random.default_rng(0), 84)
    records = [
        {
            "id": i,
            "question": f"What is number {i}?",
            "response": f"It is {i}.",
            "log_confidence": float(score),
            "mine": 2 * float(score),
            "signature": "k:4|preset:default|words:paper",
            "distribution": "raw",
            "group": "ab"[i % 2],
            "correct": bool(right),
            "other": not right,
        }
        for i, (score, right) in enumerate(zip(scores, correct, strict=True))
    ]
    unlabeled = [{key: value for key, value in one.items() if key != "correct"} for one in records[80:]]
    write_lines(folder / "labeled.jsonl", [*records[:60], *(one | {"correct": None} for one in unlabeled)])
    write_lines(folder / "newer.jsonl", records[60:80])
    write_lines(
        folder / "unlabeled.jsonl", [unlabeled[0] | {"id": 100 + i, "log_confidence": -i / 50} for i in range(50)]
    )
    write_lines(folder / "prompts.jsonl", [{"id": "1", "prompt": "Who wrote Emma?"}, "not JSON\n"])
    write_lines(folder / "items.jsonl", [{"state": "The user asks for Oslo, and the call is weather(Oslo)."}])
    answers = ("it is Ann", "Ann", "Bob", "ann or Bob")
    judged = [{"id": str(i), "question": "q", "answers": ["Ann"], "answer": one} for i, one in enumerate(answers, 1)]
    write_lines(folder / "judged.jsonl", judged)
    (folder / "schema.json").write_text('{"type": "object", "properties": {"a": {"type": "string"}}}')
    (folder / "labels.csv").write_text("id,correct\n1,1\n")
    (folder / "people.csv").write_text("id,correct\n1,1\n")
    (folder / "replies").mkdir()
    for name in ("norway.json", "peru.json"):
        shutil.copy(ROOT / "examples" / "replies" / name, folder / "replies")
    (folder / "replies" / "broken.json").write_text('{"choices": []}')
    shutil.copy(ROOT / "examples" / "gate" / "questions.yaml", folder)
    return folder


@pytest.fixture(scope="session")
def made(material: Path) -> Path:
    """The same with what commands make of it: a calibrator and a journal."""
    with chdir(material):
        for line in (
            "calibrate labeled.jsonl -o cal --alpha 0.3",
            "check replies --journal journal.db --journal.sample 0",
        ):
            assert invoke(shlex.split(line)).exit_code == 0, line
    return material


def assert_told(result: Result, *words: str, status: int = 1) -> None:
    """One message on stderr with these words, nothing like a traceback, and the exit status."""
    assert result.exit_code == status, (result.exit_code, result.output, result.exception)
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1, result.stderr
    for word in words:
        assert word in lines[0], lines[0]
