"""A folder through which a serving engine hands over what it kept of each answer: one file a request.

The engine reduces every row of logits as its token becomes known and writes the state of the answer when the request
leaves the batch. The last token is chosen after the engine looked for the last time, so the reader, who has the
complete answer, finishes it. Files are replaced whole: a reader never sees half of one.

A file is a checksum of the rest, a line of JSON, and behind it all arrays in binary form. Whole rows of logits may be
among them: that of the last token, and those of blank tokens as long as nothing tells what they begin. As text they
would take longer to write and to read than everything else together.
"""

from __future__ import annotations

import itertools
import json
import re
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.core import GrowingAnswer, Scorer, scorer_for
from semtoken.core.scorer import Tokens
from semtoken.errors import BackendError, InvalidInput, SemtokenError, VocabularyMismatch
from semtoken.files.safe_files import replacing_file
from semtoken.methods import METHODS
from semtoken.observers.method_scores import MethodScores
from semtoken.results import Distribution, ScoredResponse
from semtoken.support.arrays import FloatArray
from semtoken.tokens.rules import ScoringRules

FORMAT = 5
CHECKSUM = 9
"""Bytes of the checksum at the beginning of a file: eight hexadecimal digits, which show accidental damage, and a
blank."""
ALIGNED = 16  # bytes: what an array in memory begins at a multiple of
REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
ENDING = ".semtoken.json"
POLL_SECONDS = 0.02


def check_request_id(request_id: object) -> str:
    """Return the id if it can be the name of a file in any folder, or raise `InvalidInput`.
    It has 1 to 100 letters, digits, "-" and "_", the first of them a letter or digit.
    """
    if not isinstance(request_id, str) or not REQUEST_ID.fullmatch(request_id):
        raise InvalidInput(
            "semtoken_id must be 1 to 100 letters, digits, '-' or '_', the first of them a letter or digit. "
            f"Got {request_id!r:.120} instead."
        )
    return request_id


@dataclass(frozen=True, eq=False)
class ChannelRecord:
    """The state of one request's score that the engine's process writes to a file for this process."""

    request_id: str
    signature: str
    """`Scorer.identity` of the scorer in the engine's process."""
    rules: ScoringRules
    distribution: Distribution
    answer: dict[str, Any]
    """The answer as `GrowingAnswer.state_dict` gives it."""
    held: FloatArray | None = None
    """Logits [V] of the step whose token the engine does not know yet."""
    error: str | None = None
    """Why there will be no score."""


def record_path(folder: str | Path, request_id: str) -> Path:
    """The path of the file through which the score of a request is handed over."""
    return Path(folder) / f"{check_request_id(request_id)}{ENDING}"


def write_record(folder: str | Path, record: ChannelRecord) -> None:
    """Write a record to the folder, replacing an older one of the same request."""
    arrays: list[npt.NDArray[Any]] = []
    plain = {field.name: getattr(record, field.name) for field in fields(record)}
    plain |= {"format": FORMAT, "rules": asdict(record.rules)}
    line = json.dumps(_without_arrays(plain, arrays)).encode()
    pieces: list[Any] = [line + b" " * _gap(CHECKSUM + len(line) + 1) + b"\n"]
    for array in arrays:
        pieces += [array.reshape(-1).view(np.uint8).data, bytes(_gap(array.nbytes))]
    with replacing_file(record_path(folder, record.request_id), private=True, durable=False, parents=False) as file:
        file.write(_checksum(pieces))
        for piece in pieces:
            file.write(piece)


def load_record(folder: str | Path, request_id: str) -> ChannelRecord | None:
    """The record of a request, None if there is none yet; `BackendError` if it is damaged or of another format."""
    path = record_path(folder, request_id)
    try:
        data = path.read_bytes()
        if data[:CHECKSUM] != _checksum([memoryview(data)[CHECKSUM:]]):
            raise ValueError("its checksum does not match")
        end = data.find(b"\n") + 1
        saved = json.loads(data[CHECKSUM:end])
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise BackendError(f"{path} is damaged: {error}. Was it written by semtoken's logits processor?") from error
    try:
        if saved.pop("format") != FORMAT:
            raise BackendError(f"{path} has another format: engine and reader must run the same semtoken release.")
        saved = _with_arrays(saved, data, end)
        return ChannelRecord(**saved | {"rules": ScoringRules(**saved["rules"])})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BackendError(f"{path} is not a record of semtoken's logits processor: {error!r}") from error


def read_channel(
    folder: str | Path,
    request_id: str,
    token_ids: Sequence[int],
    vocabulary: Tokens,
    *,
    timeout: float = 10.0,
    methods: Sequence[str] = (),
    question: str | None = None,
) -> ScoredResponse:
    """The score of an answer that an engine with `ClusterProcessor` generated; its file is then deleted.

    Parameters
    ----------
    folder
        The engine's channel.
    request_id
        The id that was given with the request as `semtoken_id`.
    token_ids
        The ids that the engine returned for this request, its terminator included where the engine returns it.
    vocabulary
        That of the engine, or the clusters that it uses.
    timeout
        Seconds to wait: the engine writes when it sees that the request has left its batch, some hundredths of a
        second after the answer was delivered.
    methods
        Further methods of one pass that read the words and tokens of the answer (`headline`, `weakest_phrase`,
        `mean_new_word`, `perplexity`, ...), whose scores it gets. The engine hands no entropies over.
    question
        What was asked: its words are not new in the answer. Without it the headline says that it is not known.

    Raises
    ------
    InvalidInput
        A method that reads more; nothing was waited for.
    BackendError
        Nothing came in time, the engine recorded another answer, or it says why it could not score this one.
    VocabularyMismatch
        The engine uses another vocabulary, or other clusters.
    """
    scores = MethodScores(methods)
    if scores.watches:
        needing = [name for name in scores.names if set(METHODS[name].needs) & scores.watches.keys()]
        raise InvalidInput(
            f"{', '.join(needing)} read numbers of every step that the engine does not hand over. "
            "`STC.from_pretrained(..., backend='vllm', methods=...)` gives those that vLLM can; leave them out here."
        )
    [answer] = read_channels(folder, [(request_id, token_ids)], vocabulary, timeout=timeout)
    return scores.scored(0, answer.with_fields(question=question))


def read_channels(
    folder: str | Path,
    answers: Sequence[tuple[str, Sequence[int]]],
    vocabulary: Tokens,
    *,
    timeout: float = 10.0,
) -> list[ScoredResponse]:
    """Read the scores of several answers, given the id and tokens of each; faster than `read_channel` for each.

    The files of the answers are deleted as they are read. An answer that ends with an error leaves the files of those
    after it. The errors are those of `read_channel`.
    """
    answers_read = [_read(folder, name, [int(token) for token in ids], vocabulary, timeout) for name, ids in answers]
    results: list[ScoredResponse] = []
    for (_, distribution), together in itertools.groupby(answers_read, key=lambda pair: (id(pair[0].scorer), pair[1])):
        results += [answer.finish(distribution) for answer, _ in together]
    return results


def _read(
    folder: str | Path, request_id: str, ids: list[int], vocabulary: Tokens, timeout: float
) -> tuple[GrowingAnswer, Distribution]:
    """An answer all of whose tokens are taken in; its file is deleted."""
    deadline = time.monotonic() + timeout
    while True:
        record = load_record(folder, request_id)
        if record is not None and record.error is not None:
            record_path(folder, request_id).unlink(missing_ok=True)
            raise BackendError(f"Request {request_id!r} was not scored: {record.error}.")
        answer = None if record is None else completed(record, ids, vocabulary)
        if record is not None and answer is not None:
            record_path(folder, request_id).unlink(missing_ok=True)
            return answer, record.distribution
        if time.monotonic() > deadline:
            known = "nothing" if record is None else f"{len(record.answer['ids'])} of its {len(ids)} tokens"
            raise BackendError(
                f"Request {request_id!r}: the engine wrote {known} into {folder} within {timeout:g} s. Was the engine "
                "started with semtoken's logits processor and this folder, and the request sent with this semtoken_id?"
            )
        time.sleep(POLL_SECONDS)


def completed(record: ChannelRecord, token_ids: Sequence[int], vocabulary: Tokens) -> GrowingAnswer | None:
    """The answer if the record covers all its tokens; None if the engine still has to write some.
    `VocabularyMismatch` if the engine uses another vocabulary or other clusters.
    `BackendError` if the engine recorded other tokens, or the record is damaged.
    """
    scorer = scorer_for(vocabulary, record.rules)
    if scorer.identity != record.signature:
        raise VocabularyMismatch(
            f"The engine scored request {record.request_id!r} with other clusters: {record.signature}; here it "
            f"would be {scorer.identity}. Give the vocabulary or the clusters that the engine was started with."
        )
    answer = _restored(record, scorer)
    known = len(answer.ids)
    if answer.ids != list(token_ids[:known]):
        raise BackendError(
            f"Request {record.request_id!r}: the engine recorded other tokens than the {len(token_ids)} given, "
            "or went on after them. Was the id used for two requests?"
        )
    if known == len(token_ids) - 1 and record.held is not None:
        answer.add_row(record.held[None], 0, token_ids[-1])
    return answer if len(answer.ids) == len(token_ids) else None


def _restored(record: ChannelRecord, scorer: Scorer) -> GrowingAnswer:
    try:
        if record.held is not None and record.held.shape != (scorer.vocabulary.size,):
            raise ValueError(f"{record.held.shape} logits were kept")
        return GrowingAnswer.from_state_dict(scorer, record.answer)
    except SemtokenError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BackendError(f"The record of request {record.request_id!r} is damaged: {error!r}") from error


def remove_stale(folder: str | Path, older_than: float) -> int:
    """Delete files that were not read and were last written more than `older_than` seconds ago; returns how many."""
    removed = 0
    for path in Path(folder).glob(f"*{ENDING}"):  # those that a killed engine left half-written among them
        try:
            if time.time() - path.stat().st_mtime > older_than:
                path.unlink()
                removed += 1
        except FileNotFoundError:  # its reader was faster
            continue
    return removed


def _checksum(pieces: Iterable[Any]) -> bytes:
    """What a file with these bytes begins with."""
    checksum = 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    return b"%08x " % checksum


def _gap(size: int) -> int:
    """Bytes up to the place where the next array begins."""
    return -size % ALIGNED


def _without_arrays(value: Any, arrays: list[npt.NDArray[Any]]) -> Any:
    """Nested values with types and lengths in place of their arrays, which are added to a list."""
    if isinstance(value, np.ndarray):
        arrays.append(np.ascontiguousarray(value))
        return {"dtype": value.dtype.str, "length": value.size}
    if isinstance(value, dict):
        return {name: _without_arrays(item, arrays) for name, item in value.items()}
    return [_without_arrays(item, arrays) for item in value] if isinstance(value, list | tuple) else value


def _with_arrays(saved: Any, data: bytes, place: int) -> Any:
    """The values again, with the arrays whose bytes begin at a place."""

    def restored(value: Any) -> Any:
        nonlocal place
        if isinstance(value, list):
            return [restored(item) for item in value]
        if not isinstance(value, dict):
            return value
        if value.keys() != {"dtype", "length"}:
            return {name: restored(item) for name, item in value.items()}
        dtype, length = np.dtype(value["dtype"]), value["length"]
        if dtype.kind not in "fi" or not isinstance(length, int) or length < 0:
            raise ValueError(f"an array of {length} {dtype}")
        array = np.frombuffer(data, dtype, length, place)
        place += array.nbytes + _gap(array.nbytes)
        return array

    values = restored(saved)
    if place != len(data):
        raise ValueError(f"{len(data)} bytes of arrays, {place} were written")
    return values
