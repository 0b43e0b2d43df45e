"""Settings of all tests."""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test reaches out
os.environ.setdefault("TRITON_INTERPRET", "1")  # read when triton is imported, which transformers does, too
# Else each process that a test starts would compile the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A client would read all certificates, for 40 ms, before each request over plain HTTP: here it finds none.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)
# One that does not look at the environment, as for servers on this machine, finds a single one, whose key nobody has.
with suppress(ModuleNotFoundError):
    patch("certifi.where", lambda: str(Path(__file__).with_name("certificate.pem"))).start()
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two threads of torch spend their time waiting for each other

# A few examples, the same in every run and on machines of any speed: a check of a change must not fail by chance.
# Every night `make test-nightly` looks for others, a thousand of each.
QUIET: dict[str, Any] = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("semtoken", derandomize=True, max_examples=15, **QUIET)
settings.register_profile("nightly", max_examples=1000, **QUIET)
settings.load_profile("semtoken")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave what pages and kept figures say to `make test-docs`, unless a folder or a file is named."""
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    return True if collection_path == Path(__file__).with_name("project") and not named else None


# The garbage collector would go through all objects of the loaded libraries again and again: a fifth of the time of
# some files. It rests while they are loaded, and leaves alone what is alive then, and after each file of tests.
gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """When all test files are imported. What is waste by now is left alone, too: to find it takes a second."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def almanac() -> Any:
    """The embedded model, ready to score, for tests that only ask it."""
    from semtoken import ScoredModel

    return ScoredModel.from_pretrained()


@pytest.fixture(scope="session")
def almanac_clusters() -> Any:
    """The clusters of the embedded model."""
    from semtoken import TokenClusters

    return TokenClusters.from_pretrained("almanac")


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which semtoken keeps whatever it makes during a test; it is not there yet."""
    monkeypatch.setenv("SEMTOKEN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Gives the folder in which the hub's client keeps a repository, at `tests.artifacts.COMMIT`; no hub is asked."""
    from huggingface_hub import constants

    from tests.artifacts import COMMIT

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    def snapshot(name: str) -> Path:
        repository = tmp_path / f"models--{name.replace('/', '--')}"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text(COMMIT)
        return repository / "snapshots" / COMMIT

    return snapshot


@pytest.fixture(scope="module")
def _chromium() -> Iterator[Any]:
    """Playwright runs an event loop in this thread until it is closed, so no test beside could call `asyncio.run`."""
    from tests.browsers import chromium

    with chromium() as found:
        yield found


@pytest.fixture
def browser(_chromium: Any) -> Iterator[Any]:
    """The one Chromium of a file. What a test opened is closed after it, since open pages go on drawing."""
    yield _chromium
    for context in _chromium.contexts:
        context.close()


class _Warned(logging.Handler):
    """Keeps what a library logs as a warning."""

    expected = re.compile(
        "is falling back to its reference PyTorch|If you want to use `Roberta|Model config: .* within the vocabulary"
        # settings that tests name on purpose, or that a tiny model's sizes do not fit
        "|RoPE scaling factor|`use_mamba_kernels=False`|cache_implementation='sliding_window' is deprecated"
        "|right-padding was detected"  # by a test of what the recorder says of it
    )

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not self.expected.search(message := record.getMessage()):
            self.messages.append(message)


WARNED = _Warned()
logging.getLogger("transformers").addHandler(WARNED)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """When a test is over, and the last one of a file."""
    yield
    warned, WARNED.messages = WARNED.messages, []
    assert not warned, f"transformers warned: {warned}"
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()
