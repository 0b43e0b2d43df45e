"""The errors that semtoken raises on purpose.

    SemtokenError
    ├── VocabularyError (ValueError)     a tokenizer or token id that cannot be used
    │   └── VocabularyMismatch           clusters or a tokenizer that do not belong to the model
    ├── InvalidInputError (ValueError)        an argument, a prompt or a line of a file that cannot be used
    │   └── InvalidLogits                NaN, +inf, empty distributions, numbers that are no log-probabilities
    ├── MissingStatistic (ValueError)    a method needs something that was not recorded of the answer
    ├── ArtifactError (ValueError)       saved clusters or a calibrator: missing, damaged or of another version
    ├── CalibratorMismatchError (ValueError)  a calibrator that was fitted on scores of another kind
    ├── ModelError (ValueError)          a model that is not there, is damaged, or lacks the tables we need
    ├── InsufficientMemory (MemoryError) refused before the work starts, with the figures
    ├── MissingExtra (ImportError)       an optional dependency, with the line that installs it
    ├── BudgetExceededError (RuntimeError)        work on an answer that was ended since it took too long
    └── BackendError (RuntimeError)      an engine did something we cannot score

Errors about arguments are also `ValueError`, so an ordinary `except` works. The command line prints any
`SemtokenError` as one message, without a traceback, and exits non-zero.
"""

from __future__ import annotations

LABEL_ON_PAGE = "Label its answers in the view Review of the page, which `serve` and `proxy` show with --journal."
"""Advice for a journal whose answers need labels."""
HOW_TO_SCORE = (
    "Score prompts or questions with `semtoken score FILE -o scored.jsonl`, "
    "replies of a server with `semtoken check FILE -o scored.jsonl`."
)
"""Advice on a file of answers without scores, for messages."""


class SemtokenError(Exception):
    """Base class: what was wrong, where, and what to do."""


class VocabularyError(SemtokenError, ValueError):
    """A tokenizer or a token id that cannot be used."""


class VocabularyMismatch(VocabularyError):
    """Clusters or a tokenizer belong to another model than the one in use."""


class InvalidInputError(SemtokenError, ValueError):
    """An argument, a prompt or a line of a file that cannot be used."""


class InvalidLogits(InvalidInputError):
    """A distribution with NaN, +inf, no finite value, or of the wrong shape; numbers that are no log-probabilities."""


class MissingStatistic(SemtokenError, ValueError):
    """A method needs a statistic that was not recorded of this answer."""


class ArtifactError(SemtokenError, ValueError):
    """Saved clusters, or a calibrator, that are missing, damaged, changed or of another format version."""


class CalibratorMismatchError(SemtokenError, ValueError):
    """A calibrator was fitted on scores of another method, other clusters, rules, distribution or exactness."""


class ModelError(SemtokenError, ValueError):
    """A model that is not there, cannot be fetched or loaded, is damaged, or lacks the tables that semtoken needs."""


class InsufficientMemory(SemtokenError, MemoryError):
    """Work that would not fit into the machine's memory, refused before it starts."""


class MissingExtra(SemtokenError, ImportError):
    """An optional dependency is not installed; the message holds the line that installs it."""


class BudgetExceededError(SemtokenError, RuntimeError):
    """The parts of an answer would take more time or memory than they may; the answer has its score without them."""


class BackendError(SemtokenError, RuntimeError):
    """An engine did something that cannot be scored, beam search for example."""


def one_line_of(error: BaseException) -> str:
    """The message of another library's error, on one line; the name of its type where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def first_line_of(error: BaseException) -> str:
    """The first line that an error of another library says, where more would be too much; see `one_line_of`."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
