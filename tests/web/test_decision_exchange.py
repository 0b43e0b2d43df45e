"""`serve --calibrator` and `proxy --calibrator` take another one while they run."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from semtoken.decisions import Predicate, ReadingOptions
from semtoken.decisions.answers import Answer
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.records import DecisionRecord, answer_values, records_of
from tests.web.servers import wait_until
from tests.web.test_journal_servers import exchange_at, started

ASKED = {"model": "almanac", "state": "x", "questions": {"late": {"type": "noul", "instructions": "Late?"}}}


def fitted(n: int, name: str = "late") -> DecisionCalibrator:
    """A calibrator of one predicate, from n labels of either side, one in ten of them against it."""
    records: list[DecisionRecord] = []
    for number in range(2 * n):
        yes = (0.6 + 0.3 * (number % 7) / 7) if number % 2 else (0.4 - 0.3 * (number % 7) / 7)
        given = answer_values(Answer(Predicate("Late?"), (yes, 1 - yes)), ReadingOptions())
        line = {"state": str(number), "answers": {name: given}, "labels": {name: (number % 10 > 1) == (yes >= 0.5)}}
        records += records_of(line)
    return DecisionCalibrator.fit(records, alpha=0.4)


def put(folder: Path, calibrator: DecisionCalibrator) -> str:
    """Save it in place of what is there; which one it is."""
    calibrator.save(folder)
    return calibrator.checksum


def block(url: str) -> dict[str, Any]:
    reply = httpx.post(f"{url}/v1/systemone", json=ASKED, timeout=60)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()["answers"]["late"]["semtoken"]
    return found


exchange = partial(exchange_at, "/semtoken/decision-calibrator")


def test_a_checksum_is_that_of_what_it_says(tmp_path: Path) -> None:
    made = fitted(60)
    put(tmp_path / "first", made)
    assert DecisionCalibrator.load(tmp_path / "first").checksum == made.checksum
    assert len({made.checksum, fitted(61).checksum, fitted(60, "other").checksum}) == 3
    assert made.n == 120


@pytest.mark.slow
@pytest.mark.parametrize("through", ["serve", "proxy"])
def test_another_one_decides_from_then_on_and_the_former_comes_back(through: str, tmp_path: Path) -> None:
    folder = tmp_path / "late"
    first = put(folder, fitted(60))
    with started("serve", "--model", "almanac", "--calibrator", str(folder)) as (served, process, log):
        if through == "serve":
            _exchanged(served, process, log, folder, first)
            return
        behind = ("--base-url", served, "--calibrator", str(folder))
        with started("proxy", *behind) as (url, own, its_log):
            _exchanged(url, own, its_log, folder, first)


def _exchanged(url: str, process: Any, log: Path, folder: Path, first: str) -> None:
    assert block(url)["labels"] == 60
    assert exchange(url, "reload", {}).status_code == 401
    assert exchange(url, "explode").status_code == exchange(url, "back").status_code == 400
    assert exchange(url, "reload").json()["calibrator"] == first

    second = put(folder, fitted(80))
    told = exchange(url, "reload").json()
    assert told["calibrator"] == second and "160 labels" in told["told"]
    assert block(url)["labels"] == 80

    (folder / "decisions.json").write_text('{"half of it')
    assert exchange(url, "reload").status_code == 400
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: "The calibrator stays as it is" in log.read_text())
    assert block(url)["labels"] == 80

    third = put(folder, fitted(100))
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: third[:12] in log.read_text())
    assert block(url)["labels"] == 100
    assert exchange(url, "back").json()["calibrator"] == second
    assert block(url)["labels"] == 80


@pytest.mark.slow
def test_without_one_there_is_no_such_route() -> None:
    with started("serve", "--model", "almanac") as (url, _, _):
        assert exchange(url, "reload").status_code in (404, 405)
