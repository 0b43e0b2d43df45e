"""Answers that are scored inside an engine, in batches that change from step to step."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from semtoken.clustering.token_clusters import TokenClusters
from semtoken.core import rows, score_logits, scorer_for
from semtoken.core.rules import ScoringRules
from semtoken.errors import BackendError, InvalidInputError
from semtoken.models.vllm.watched import PLACEHOLDER, WatchedRequest, WatchedRequests, WatchedRow
from semtoken.support.almanac import almanac_clusters_path


@pytest.fixture(scope="module")
def clusters() -> TokenClusters:
    return TokenClusters.from_pretrained(almanac_clusters_path())


@pytest.fixture
def watch(clusters: TokenClusters) -> WatchedRequests:
    return WatchedRequests(scorer_for(clusters, ScoringRules()))


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

    watch: WatchedRequests
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
            for request, piece in zip(chosen, pieces, strict=True):
                if not piece:
                    request.known.append(PLACEHOLDER if self.late else request.ids[len(request.known)])
            waiting = [r for r in waiting if len(r.known) < len(r.ids)]

    def _place(self, request: Request, *, staying: bool) -> None:
        if staying and request.watched is None:
            if request.known and request.known[-1] == PLACEHOLDER:
                request.known = [*request.known[:-1], request.ids[len(request.known) - 1]]  # a new list
            request.watched = self.watch.enter(request.name, "raw", request.known if self.lists else None)
        elif not staying and request.watched is not None and self.random.random() < 0.5:
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
@pytest.mark.parametrize(("lists", "late", "seed"), [(True, False, 0), (True, True, 1), (False, False, 2)])
def test_any_schedule_gives_the_score_of_the_whole_matrix(
    clusters: TokenClusters, watch: WatchedRequests, lists: bool, late: bool, seed: int
) -> None:
    requests = make_requests(clusters.vocabulary.size, 6, seed)
    Engine(watch, np.random.default_rng(seed), lists, late).run(requests)
    for request in requests:
        scored = watch.take(request.name, request.ids)
        expected = score_logits(request.logits, request.ids, clusters)
        assert scored.log_confidence == pytest.approx(expected.log_confidence, rel=1e-9)
        assert scored.to_dict().keys() == expected.to_dict().keys()
        for token, other in zip(scored.tokens, expected.tokens, strict=True):
            assert token.log_agreeing_probability == pytest.approx(other.log_agreeing_probability, abs=1e-9)
            assert [a.id for a in token.alternatives] == [a.id for a in other.alternatives]
    assert not watch._watched


@pytest.mark.usefixtures("compiled")
def test_one_request_after_the_other_keeps_its_last_row(clusters: TokenClusters, watch: WatchedRequests) -> None:
    """The row of the last token waits until the answer is taken, while the next request is stepped."""
    requests = make_requests(clusters.vocabulary.size, 4, 5)
    for request in requests:
        watched = watch.enter(request.name, "raw", request.known)
        for step, token in enumerate(request.ids):
            last = request.known[-1] if request.known else PLACEHOLDER
            watch.step(request.logits[step][None].copy(), [WatchedRow(0, watched, step, last)])
            if step < len(request.ids) - 1:
                request.known.append(token)
    for request in requests:
        scored = watch.take(request.name, request.ids)
        expected = score_logits(request.logits, request.ids, clusters)
        assert scored.log_confidence == pytest.approx(expected.log_confidence, rel=1e-9)


def test_two_requests_with_one_id_are_refused_not_mixed(clusters: TokenClusters, watch: WatchedRequests) -> None:
    first, second = make_requests(clusters.vocabulary.size, 2, 0)
    a, b = watch.enter("same", "raw", None), watch.enter("same", "raw", None)
    watch.step(
        np.stack([first.logits[0], second.logits[0]]),
        [WatchedRow(0, a, 0, PLACEHOLDER), WatchedRow(1, b, 0, PLACEHOLDER)],
    )
    with pytest.raises(BackendError, match="two requests had this semtoken_id"):
        watch.take("same", first.ids)
    with pytest.raises(InvalidInputError, match="No request had the semtoken_id 'same'"):
        watch.take("same", first.ids)


@pytest.mark.parametrize("taken", [True, False])
def test_an_id_may_be_used_again(clusters: TokenClusters, watch: WatchedRequests, taken: bool) -> None:
    """Also where nobody took the earlier answer, which is then lost."""
    for seed in range(2):
        (request,) = make_requests(clusters.vocabulary.size, 1, seed)
        request.name = "again"
        Engine(watch, np.random.default_rng(seed), True, False).run([request])
        if taken or seed:
            expected = score_logits(request.logits, request.ids, clusters).log_confidence
            assert watch.take("again", request.ids).log_confidence == pytest.approx(expected, rel=1e-9)


def test_one_bad_row_spoils_only_its_own_answer(clusters: TokenClusters, watch: WatchedRequests) -> None:
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
    assert watch.take(good.name, good.ids).log_confidence < 0
    with pytest.raises(BackendError, match="step 1 hold NaN"):
        watch.take(bad.name, bad.ids)


def test_tokens_that_were_not_seen_are_said(clusters: TokenClusters, watch: WatchedRequests) -> None:
    (request,) = make_requests(clusters.vocabulary.size, 1, 0)
    watched = watch.enter(request.name, "raw", None)
    watch.step(request.logits[:1], [WatchedRow(0, watched, 0, PLACEHOLDER)])
    watch.step(request.logits[:1], [WatchedRow(0, watched, 3, request.ids[0])])
    with pytest.raises(BackendError, match="the engine is at token 3, the last one seen was 0"):
        watch.take(request.name, request.ids)


@pytest.mark.parametrize("given", [[], [5], [5, 6, 7, 8], [6, 6, 7]])
def test_other_tokens_than_those_of_the_engine_are_refused(
    clusters: TokenClusters, watch: WatchedRequests, given: list[int]
) -> None:
    logits, watched = np.zeros((3, clusters.vocabulary.size), dtype=np.float32), watch.enter("r", "raw", None)
    for step, last in enumerate((PLACEHOLDER, 5, 6)):
        watch.step(logits[step][None], [WatchedRow(0, watched, step, last)])
    with pytest.raises(BackendError, match="the engine recorded 2 tokens"):
        watch.take("r", given)
