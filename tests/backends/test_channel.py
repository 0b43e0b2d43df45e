"""Answers scored in batches that change from step to step, and the folder that hands them over."""

from __future__ import annotations

import json
import os
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semtoken.almanac import almanac_clusters_path
from semtoken.backends.vllm import watch
from semtoken.backends.vllm.channel import (
    ChannelRecord,
    check_request_id,
    load_record,
    read_channel,
    read_channels,
    remove_stale,
    write_record,
)
from semtoken.backends.vllm.watch import PLACEHOLDER, Watch, WatchedRequest, WatchedRow
from semtoken.clusters import TokenClusters
from semtoken.core import GrowingAnswer, rows, score_logits, scorer_for
from semtoken.errors import BackendError, InvalidInput, SemtokenError, VocabularyMismatch
from semtoken.files.temporary import WORKING
from semtoken.tokens.rules import ScoringRules
from semtoken.tokens.vocabulary import Vocabulary
from tests.tiny import TOKENIZERS

RULES = ScoringRules()


@pytest.fixture(scope="module")
def clusters() -> TokenClusters:
    return TokenClusters.from_pretrained(almanac_clusters_path())


@pytest.fixture(autouse=True)
def quick_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "IDLE_SECONDS", 0.01)


@dataclass
class Request:
    """One request of the engine below: what it will say, and from which logits."""

    name: str
    logits: np.ndarray
    ids: list[int]
    known: list[int] = field(default_factory=list)
    watched: WatchedRequest | None = None


@dataclass
class Engine:
    """Runs requests in batches of random make-up, through preemption, pieces of prompts and late token ids."""

    watch: Watch
    random: np.random.Generator
    lists: bool
    """It shows its lists of output ids, as vLLM's first runner does."""
    late: bool
    """Lists end with a placeholder until the next step begins."""

    def run(self, requests: list[Request]) -> None:
        waiting = list(requests)
        while waiting:
            chosen = [r for r in waiting if self.random.random() < 0.6]
            for request in waiting:
                self._place(request, staying=request in chosen)
            self.random.shuffle(chosen)
            for request in chosen:
                if request.known and request.known[-1] == PLACEHOLDER:
                    request.known[-1] = request.ids[len(request.known) - 1]
            pieces = [not r.known and self.random.random() < 0.3 for r in chosen]
            self._step(chosen, pieces)
            if self.random.random() < 0.2:
                time.sleep(0.03)  # long enough for everything to be written down
            for request, piece in zip(chosen, pieces, strict=True):
                if not piece:
                    request.known.append(PLACEHOLDER if self.late else request.ids[len(request.known)])
            waiting = [r for r in waiting if len(r.known) < len(r.ids)]
        for request in requests if self.lists else []:  # the second runner tells nothing
            if request.watched is not None:
                self.watch.leave(request.watched)

    def _place(self, request: Request, *, staying: bool) -> None:
        if staying and request.watched is None:
            if request.known and request.known[-1] == PLACEHOLDER:
                request.known = [*request.known[:-1], request.ids[len(request.known) - 1]]  # a new list
            request.watched = self.watch.enter(request.name, "raw", request.known if self.lists else None)
        elif not staying and request.watched is not None and self.random.random() < 0.5:
            if self.lists:
                self.watch.leave(request.watched)
            request.watched = None

    def _step(self, chosen: list[Request], pieces: list[bool]) -> None:
        columns = chosen[0].logits.shape[1] if chosen else 0
        batch = np.full((len(chosen) + 1, columns), 7.0, dtype=np.float32)  # the last row is not watched
        rows = []
        for row, (request, piece) in enumerate(zip(chosen, pieces, strict=True)):
            batch[row] = -1.0 if piece else request.logits[len(request.known)]
            last = request.known[-1] if request.known else PLACEHOLDER
            assert request.watched is not None
            rows.append(WatchedRow(row, request.watched, len(request.known), last))
        self.watch.step(batch, rows)


def make_requests(vocabulary_size: int, count: int, seed: int) -> list[Request]:
    random = np.random.default_rng(seed)
    requests = []
    for i in range(count):
        length = int(random.integers(1, 12))
        logits = random.normal(0, 4, (length, vocabulary_size + 3)).astype(np.float32)
        ids = [int(random.choice(np.argsort(row[:vocabulary_size])[-3:])) for row in logits]
        requests.append(Request(f"request-{seed}-{i}", logits, ids))
    return requests


@pytest.fixture(params=[False, True], ids=["numpy", "compiled"])
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the kernel reads rows, as it does those of large vocabularies, into memory that is used again."""
    if request.param:
        monkeypatch.setattr(rows, "COMPILED_FROM", 0)
    return bool(request.param)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("lists", "late"), [(True, False), (True, True), (False, False)])
def test_any_schedule_gives_the_score_of_the_whole_matrix(
    clusters: TokenClusters, tmp_path: Path, lists: bool, late: bool, seed: int
) -> None:
    watch = Watch(scorer_for(clusters, RULES), tmp_path)
    requests = make_requests(clusters.vocabulary.size, 12, seed)
    Engine(watch, np.random.default_rng(seed), lists, late).run(requests)
    for request in requests:
        scored = read_channel(tmp_path, request.name, request.ids, clusters)
        expected = score_logits(request.logits, request.ids, clusters)
        assert scored.log_score == pytest.approx(expected.log_score, rel=1e-9)
        assert scored.to_dict().keys() == expected.to_dict().keys()
        for token, other in zip(scored.tokens, expected.tokens, strict=True):
            assert token.log_agreeing_probability == pytest.approx(other.log_agreeing_probability, abs=1e-9)
            assert [a.id for a in token.alternatives] == [a.id for a in other.alternatives]
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("compiled")
def test_one_request_after_the_other_keeps_its_last_row(clusters: TokenClusters, tmp_path: Path) -> None:
    """The row of the last token waits for its record while the next request is stepped."""
    watch = Watch(scorer_for(clusters, RULES), tmp_path)
    requests = make_requests(clusters.vocabulary.size, 4, 5)
    for request in requests:
        watched = watch.enter(request.name, "raw", request.known)
        for step, token in enumerate(request.ids):
            last = request.known[-1] if request.known else PLACEHOLDER
            watch.step(request.logits[step][None].copy(), [WatchedRow(0, watched, step, last)])
            if step < len(request.ids) - 1:
                request.known.append(token)
        watch.leave(watched)
    for request in requests:
        scored = read_channel(tmp_path, request.name, request.ids, clusters)
        expected = score_logits(request.logits, request.ids, clusters)
        assert scored.log_score == pytest.approx(expected.log_score, rel=1e-9)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_an_answer_put_down_at_any_step_goes_on_the_same(name: str, tmp_path: Path) -> None:
    """Open prefix sets, kept rows and leading blanks survive the file, also in pieces of characters."""
    tokenizer = TOKENIZERS[name]()
    ids = tokenizer(" \n東京 🙂 the naïve café is not the TV 17", add_special_tokens=False)["input_ids"]
    size = len(tokenizer)
    labels = np.random.default_rng(0).integers(0, size // 3, size).astype(np.int32)
    clusters = TokenClusters(labels, Vocabulary.from_tokenizer(tokenizer))
    scorer = scorer_for(clusters, RULES)
    logits = np.random.default_rng(1).normal(0, 3, (len(ids), size)).astype(np.float32)
    answer = GrowingAnswer(scorer)
    for step, token in enumerate(ids):
        write_record(tmp_path, record_of(clusters, answer=answer.state_dict()))
        loaded = load_record(tmp_path, "r")
        assert loaded is not None
        answer = GrowingAnswer.from_state_dict(scorer, loaded.answer)
        answer.add_row(logits, step, token)
    assert answer.finish().log_score == pytest.approx(score_logits(logits, ids, clusters).log_score, rel=1e-6)


@pytest.mark.parametrize("bad", ["", "../x", "a/b", ".hidden", "a b", "é", "x" * 101, "a\n", 5, None, "-a", "a.json"])
def test_ids_that_could_leave_the_folder_are_refused(bad: Any) -> None:
    with pytest.raises(InvalidInput, match="semtoken_id"):
        check_request_id(bad)


def test_two_requests_with_one_id_are_refused_not_mixed(clusters: TokenClusters, tmp_path: Path) -> None:
    watch = Watch(scorer_for(clusters, RULES), tmp_path)
    first, second = make_requests(clusters.vocabulary.size, 2, 0)
    a, b = watch.enter("same", "raw", None), watch.enter("same", "raw", None)
    watch.step(
        np.stack([first.logits[0], second.logits[0]]),
        [WatchedRow(0, a, 0, PLACEHOLDER), WatchedRow(1, b, 0, PLACEHOLDER)],
    )
    with pytest.raises(BackendError, match="two requests had this semtoken_id"):
        read_channel(tmp_path, "same", first.ids, clusters)
    assert not list(tmp_path.iterdir())


def test_an_id_may_be_used_again_once_it_is_read(clusters: TokenClusters, tmp_path: Path) -> None:
    """Also where the thread that writes went to sleep in between, as nothing was asked."""
    watch = Watch(scorer_for(clusters, RULES), tmp_path)
    for seed in range(2):
        (request,) = make_requests(clusters.vocabulary.size, 1, seed)
        request.name = "again"
        Engine(watch, np.random.default_rng(seed), True, False).run([request])
        expected = score_logits(request.logits, request.ids, clusters).log_score
        assert read_channel(tmp_path, "again", request.ids, clusters).log_score == pytest.approx(expected, rel=1e-9)
        end = time.monotonic() + 10
        while watch._entered.is_set():
            assert time.monotonic() < end
            time.sleep(0.01)


def test_one_bad_row_spoils_only_its_own_answer(clusters: TokenClusters, tmp_path: Path) -> None:
    watch = Watch(scorer_for(clusters, RULES), tmp_path)
    good, bad = make_requests(clusters.vocabulary.size, 2, 5)
    for request in (good, bad):
        request.logits, request.ids = request.logits[:1].repeat(4, 0), request.ids[:1] * 4
    bad.logits[1, 17] = np.nan
    watched = [watch.enter(r.name, "raw", None) for r in (good, bad)]
    for step in range(4):
        rows = [
            WatchedRow(row, w, step, r.ids[step - 1] if step else PLACEHOLDER)
            for row, (w, r) in enumerate(zip(watched, (good, bad), strict=True))
        ]
        watch.step(np.stack([good.logits[step], bad.logits[step]]), rows)
    assert read_channel(tmp_path, good.name, good.ids, clusters).log_score < 0
    with pytest.raises(BackendError, match="step 1 hold NaN"):
        read_channel(tmp_path, bad.name, bad.ids, clusters)


def test_tokens_that_were_not_seen_are_told(clusters: TokenClusters, tmp_path: Path) -> None:
    watch = Watch(scorer_for(clusters, RULES), tmp_path)
    (request,) = make_requests(clusters.vocabulary.size, 1, 0)
    watched = watch.enter(request.name, "raw", None)
    watch.step(request.logits[:1], [WatchedRow(0, watched, 0, PLACEHOLDER)])
    watch.step(request.logits[:1], [WatchedRow(0, watched, 3, request.ids[0])])
    with pytest.raises(BackendError, match="the engine is at token 3, the last one seen was 0"):
        read_channel(tmp_path, request.name, request.ids, clusters)


def test_what_the_writer_cannot_write_does_not_end_it(
    clusters: TokenClusters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "channel"
    folder.mkdir()
    watch = Watch(scorer_for(clusters, RULES), folder)
    lost, kept = make_requests(clusters.vocabulary.size, 2, 3)
    folder.rmdir()
    Engine(watch, np.random.default_rng(0), True, False).run([lost])
    time.sleep(0.1)
    folder.mkdir()
    Engine(watch, np.random.default_rng(0), True, False).run([kept])
    assert read_channel(folder, kept.name, kept.ids, clusters).log_score < 0
    with pytest.raises(BackendError, match="wrote nothing into"):
        read_channel(folder, lost.name, lost.ids, clusters, timeout=0.1)


# --- records ------------------------------------------------------------------------------------------------------


def record_of(clusters: TokenClusters, **changes: Any) -> ChannelRecord:
    scorer = scorer_for(clusters, RULES)
    answer = GrowingAnswer(scorer)
    fields = {
        "request_id": "r",
        "signature": scorer.identity,
        "rules": RULES,
        "distribution": "raw",
        "answer": answer.state_dict(),
        "held": np.zeros(clusters.vocabulary.size, dtype=np.float32),
    }
    return ChannelRecord(**(fields | changes))


def test_a_record_comes_back_as_it_was(clusters: TokenClusters, tmp_path: Path) -> None:
    record = record_of(clusters, rules=ScoringRules(preset="paper"), distribution="processed")
    write_record(tmp_path, record)
    loaded = load_record(tmp_path, "r")
    assert loaded is not None and loaded.held is not None and record.held is not None
    assert (loaded.rules, loaded.distribution) == (record.rules, record.distribution)
    np.testing.assert_equal(loaded.answer, record.answer)
    np.testing.assert_array_equal(loaded.held, record.held)
    assert os.listdir(tmp_path) == ["r.semtoken.json"]


@pytest.mark.parametrize("last", [False, True])
def test_answers_read_together_have_the_scores_of_their_logits(
    clusters: TokenClusters, tmp_path: Path, last: bool
) -> None:
    """Blank tokens among them, whose rows are kept; the last token comes with the engine's record or by its reader."""
    random, vocabulary = np.random.default_rng(5), clusters.vocabulary
    blanks, expected, answers = vocabulary.blank.nonzero()[0], [], []
    for number, (preset, distribution) in enumerate([("default", "raw"), ("paper", "raw"), ("paper", "processed")]):
        ids = [int(token) for token in (*random.integers(5, vocabulary.size, 3), *blanks[:9])]
        logits = random.normal(size=(len(ids), vocabulary.size), scale=3).astype(np.float32)
        answer = GrowingAnswer(scorer_for(clusters, ScoringRules(preset)))
        for row in range(len(ids) - last):
            answer.add_row(logits, row, ids[row])
        assert any(step["row"] for step in answer.state_dict()["open"])
        record = record_of(
            clusters,
            request_id=f"r{number}",
            signature=answer.scorer.identity,
            rules=answer.scorer.rules,
            distribution=distribution,
            answer=answer.state_dict(),
            held=logits[-1] if last else None,
        )
        write_record(tmp_path, record)
        answers.append((record.request_id, ids))
        expected.append(score_logits(logits, ids, clusters, preset, distribution=distribution))
    for found, wanted in zip(read_channels(tmp_path, answers, clusters), expected, strict=True):
        assert (found.text, found.preset, found.distribution) == (wanted.text, wanted.preset, wanted.distribution)
        assert found.log_score == pytest.approx(wanted.log_score, abs=1e-9)
    assert os.listdir(tmp_path) == []


def test_the_reader_checks_clusters_and_tokens(clusters: TokenClusters, tmp_path: Path) -> None:
    write_record(tmp_path, record_of(clusters, signature="other"))
    with pytest.raises(VocabularyMismatch, match="with other clusters"):
        read_channel(tmp_path, "r", [5], clusters)
    scorer = scorer_for(clusters, RULES)
    answer = GrowingAnswer(scorer)
    answer.add_row(np.zeros((1, clusters.vocabulary.size), dtype=np.float32), 0, 5)
    write_record(tmp_path, record_of(clusters, answer=answer.state_dict()))
    with pytest.raises(BackendError, match="recorded other tokens"):
        read_channel(tmp_path, "r", [6, 7], clusters)
    with pytest.raises(BackendError, match="1 of its 3 tokens"):
        read_channel(tmp_path, "r", [5, 6, 7], clusters, timeout=0)


@pytest.mark.parametrize(
    "damage",
    [
        lambda saved, row: (b"{", row),
        lambda saved, row: (b"\xff" + json.dumps(saved).encode(), row),
        lambda saved, row: ({}, row),
        lambda saved, row: (saved | {"format": 99}, row),
        lambda saved, row: (saved | {"extra": 1}, row),
        lambda saved, row: (saved | {"held": "O"}, row),
        lambda saved, row: (saved | {"held": "no type"}, row),
        lambda saved, row: (saved | {"held": {"dtype": "<f4"}}, row),
        lambda saved, row: (saved, row[:-1]),
        lambda saved, row: (saved, row[:-4]),
        lambda saved, row: (saved, row + bytes(4)),
        lambda saved, row: (saved, b""),
        lambda saved, row: (saved | {"answer": {"ids": [10**9]}}, row),
        lambda saved, row: (saved | {"answer": []}, row),
        lambda saved, row: (saved | {"rules": {"preset": "other"}}, row),
    ],
)
def test_a_damaged_record_is_refused(clusters: TokenClusters, tmp_path: Path, damage: Any) -> None:
    write_record(tmp_path, record_of(clusters))
    path = tmp_path / "r.semtoken.json"
    line, end, row = path.read_bytes()[9:].partition(b"\n")
    saved, row = damage(json.loads(line), row)
    content = (saved if isinstance(saved, bytes) else json.dumps(saved).encode()) + end + row
    path.write_bytes(b"%08x " % zlib.crc32(content) + content)
    with pytest.raises(SemtokenError):
        read_channel(tmp_path, "r", [5], clusters, timeout=0)


@pytest.mark.parametrize("place", [0, 8, 9, 40, -1, -100, -1000])
def test_a_changed_byte_of_a_record_is_found(clusters: TokenClusters, tmp_path: Path, place: int) -> None:
    """Bytes of an array are numbers whatever they are: without a checksum they would make another score."""
    write_record(tmp_path, record_of(clusters, held=np.ones(clusters.vocabulary.size, dtype=np.float32)))
    path = tmp_path / "r.semtoken.json"
    content = bytearray(path.read_bytes())
    content[place] ^= 0x20
    path.write_bytes(content)
    with pytest.raises(BackendError, match="damaged"):
        read_channel(tmp_path, "r", [5], clusters, timeout=0)


def test_only_old_files_of_the_channel_are_removed(clusters: TokenClusters, tmp_path: Path) -> None:
    write_record(tmp_path, record_of(clusters))
    write_record(tmp_path, record_of(clusters, request_id="young"))
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / f"{WORKING}1-r.semtoken.json").write_text("")
    for name in ("r.semtoken.json", "notes.json", f"{WORKING}1-r.semtoken.json"):
        os.utime(tmp_path / name, (0, 0))
    assert remove_stale(tmp_path, older_than=3600) == 2
    assert sorted(os.listdir(tmp_path)) == ["notes.json", "young.semtoken.json"]


def test_methods_that_read_more_than_the_engine_hands_over_are_refused_before_waiting(
    clusters: TokenClusters, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match="epr read numbers of every step that the engine does not hand over"):
        read_channel(tmp_path, "a", [1], clusters, timeout=60.0, methods=["headline", "epr"])
