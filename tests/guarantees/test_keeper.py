"""Answers that go into a journal once, and calibrators that are found in it by their checksums."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from semtoken.errors import InvalidInputError
from semtoken.guarantees.journal.database import entries
from semtoken.guarantees.journal.entries import AnswerOrigin, Recording, SamplingRule
from semtoken.guarantees.journal.keeper import AnswerKeeper
from semtoken.guarantees.journal.store import Journal
from semtoken.guarantees.journal.writer import JournalWriter
from semtoken.replies.checking import RankedAnswer, rank_replies
from tests.guarantees.made_up import fitted

REPLIES = Path(__file__).parents[2] / "examples" / "replies"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "journal.db")


def keep(journal: Journal, answers: list[tuple[str, RankedAnswer]], spool: Path, *, seed: int | None = None) -> None:
    applied = None if seed is None else fitted(seed=seed)
    writer = JournalWriter(journal, spool)
    writer.start()
    keeper = AnswerKeeper(Recording(AnswerOrigin("check"), SamplingRule("seed", 0.5), b"salt"), writer)
    keeper.uses(applied)
    for place, answer in answers:
        keeper.keep(answer.response, None, applied, place=place, question=answer.question)
    writer.close()


def count(journal: Journal) -> int:
    with journal.engine.connect() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(entries)).scalar_one())


def test_an_answer_is_kept_once_for_each_place_and_calibrator(journal: Journal, tmp_path: Path) -> None:
    found = [(one.id, one) for one in rank_replies(REPLIES)]
    keep(journal, found[:4], tmp_path / "spool")
    keep(journal, found, tmp_path / "spool")  # resumed
    assert count(journal) == len(found) == len(list(REPLIES.iterdir()))
    assert sorted(row["confidence"] for row in journal.entries()) == sorted(one.confidence for _, one in found)
    keep(journal, [("elsewhere", found[0][1])], tmp_path / "spool")
    assert count(journal) == len(found) + 1
    keep(journal, found, tmp_path / "spool", seed=1)
    assert count(journal) == 2 * len(found) + 1
    assert [use.checksum for use in journal.in_use()] == [fitted(seed=1).checksum]


def test_a_calibrator_is_found_by_the_beginning_of_its_checksum(journal: Journal) -> None:
    first, second = fitted(), fitted(seed=1)
    for one in (first, second):
        journal.use(one.file, one.checksum)
    assert journal.used(first.checksum[:9].upper()).calibrator == first.calibrator
    assert journal.used(second.checksum).checksum == second.checksum
    with pytest.raises(InvalidInputError, match="No calibrators of this journal begin with 'xyz'"):
        journal.used("xyz")
    with pytest.raises(InvalidInputError, match="2 calibrators of this journal begin with ''"):
        journal.used("")
