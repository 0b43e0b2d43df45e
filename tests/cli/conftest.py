from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from semtoken import ScoredModel, TokenClusters, Vocabulary
from tests import tiny
from tests.cli.run import Result, invoke

RunCommand = Callable[..., Result]


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


def assert_told(result: Result, *words: str, status: int = 1) -> None:
    """One message on stderr with these words, nothing like a traceback, and the exit status."""
    assert result.exit_code == status, (result.exit_code, result.output, result.exception)
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1, result.stderr
    for word in words:
        assert word in lines[0], lines[0]
