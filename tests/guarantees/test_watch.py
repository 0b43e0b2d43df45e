"""From labels to words, to a new calibrator, and back; in both databases."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

import semtoken as st
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.guarantees.betting import wrong_share
from semtoken.guarantees.drift import drift
from semtoken.guarantees.journal.labels import add_label, agreement, queue, undo
from semtoken.guarantees.journal.store import Journal
from semtoken.guarantees.journal.watch import guarantee_report, watch
from tests.cli.run import invoke
from tests.guarantees.conftest import database_url
from tests.guarantees.made_up import DAY, entry, filled, fitted, labeled, rows_of, selective


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """SQLite by default: what stands in this file is asked of both databases in the same SQL."""
    return database_url(request, tmp_path)


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_both_databases_are_asked_alike(journal: Journal) -> None:
    filled(journal, fitted(), [i % 10 != 9 for i in range(60)])
    report = watch(journal)
    assert (report.state, report.n, report.wrong, report.order) == ("unknown", 60, 6, "draw")
    assert [row["id"] for row in queue(journal, "you")] != []
    assert agreement(journal).twice == 0 and undo(journal, "me") == "entry-59"


def test_only_accepted_answers_of_the_calibrator_in_use_count(journal: Journal) -> None:
    nothing = watch(journal)
    assert (nothing.state, nothing.n, nothing.wrong, nothing.low, nothing.high) == ("no_guarantee", 0, 0, 0.0, 1.0)
    assert (nothing.level, nothing.without_label, nothing.undecided, nothing.alpha) == (0.05, 0, 0, None)
    old, new = fitted(), fitted(seed=1)
    filled(journal, old, [False] * 60)
    assert watch(journal).state == "broken"
    filled(journal, new, [True] * 10, first=1000)
    made = entry(5000, sampled=True, decision="abstain", calibrator=new.checksum)
    doubtful = entry(5001, sampled=False, decision="answer", calibrator=new.checksum)
    journal.add(rows_of([made, doubtful]))
    add_label(journal, made.id, "me", False)
    add_label(journal, doubtful.id, "me", False)
    report = watch(journal)
    assert (report.state, report.n, report.wrong, report.calibrator) == ("unknown", 10, 0, new.checksum)
    journal.use(old.file, old.checksum)  # the old one came back
    assert watch(journal).calibrator == old.checksum


def test_labels_lead_to_their_answers_and_no_other_answer_is_looked_at(journal: Journal) -> None:
    """A server looks every minute, and the calibrator in use may have decided millions."""
    if journal.engine.dialect.name != "sqlite":
        pytest.skip("SQLite alone says its plan in these words, and knows nothing of how many rows there are")
    filled(journal, fitted(), [True] * 20)
    asked: list[tuple[str, tuple[object, ...]]] = []
    sa.event.listen(
        journal.engine, "before_cursor_execute", lambda _c, _u, text, given, *_: asked.append((text, given))
    )
    watch(journal)
    [query] = [one for one in asked if "JOIN labels" in one[0]]
    with journal.engine.connect() as connection:
        plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query[0]}", query[1])]
    assert plan == ["SCAN labels", "SEARCH entries USING INTEGER PRIMARY KEY (rowid=?)"]


def test_questions_that_are_asked_again_and_again_count_once(journal: Journal) -> None:
    """Compared as if they were independent, a few answers of the fitted kind would look like other questions."""
    calibrator = fitted()
    labeled = np.array(calibrator.calibrator.scores)
    kinds = np.quantile(labeled, (np.arange(60) + 0.5) / 60)
    often = [0] * 500 + [20] * 300 + list(range(60))
    journal.use(calibrator.file, calibrator.checksum)
    about = {"calibrator": calibrator.checksum, "confidence_method": None}
    journal.add(
        rows_of(
            entry(n, log_confidence=float(kinds[kind]), prompt=f"question {kind}", **about)
            for n, kind in enumerate(often)
        )
    )
    found = watch(journal)
    assert found.moved is not None and found.moved.n_recent == 60
    assert found.moved.distance < 0.05 and "no difference is shown" in found.moved_sentence
    assert drift(labeled, kinds[often]).low > 0.2  # what would be said otherwise
    journal.add(rows_of(entry(n, log_confidence=-0.1, prompt=f"question {n % 11}", **about) for n in range(1000, 3000)))
    few = watch(journal)
    assert few.moved is None and few.moved_sentence.startswith("The newest answers are to 11 different questions: too")


def test_labeling_again_does_not_make_an_answer_new(journal: Journal) -> None:
    """Wrong answers that are rechecked in one sitting stay where they were; with 10% wrong nothing is broken."""
    filled(journal, fitted(), [i % 10 != 9 for i in range(200)])
    before = watch(journal)
    for i in range(9, 200, 10):
        add_label(journal, f"entry-{i}", "me", None)
        add_label(journal, f"entry-{i}", "me", False)
    again = watch(journal)
    assert again == before and (again.state, again.wrong) == ("kept", 20)
    journal.add(rows_of([entry(900, sampled=True)]))
    assert undo(journal, "me") == "entry-199", "the label that was given last, not the one of the newest answer"


def test_a_clock_that_is_set_back_changes_no_order(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The label given last is the one that is taken back, and answers count in the order in which they came."""
    applied = fitted()
    filled(journal, applied, [True] * 60)
    before = watch(journal)
    for hours, number in enumerate((3, 1, 2)):
        monkeypatch.setattr("semtoken.guarantees.journal.labels.time.time", lambda hours=hours: 1.6e9 - 3600 * hours)
        add_label(journal, f"entry-{number}", "me", False)
    assert watch(journal).wrong == 3
    assert [undo(journal, "me") for _ in range(3)] == ["entry-2", "entry-1", "entry-3"]
    for number in (1, 2, 3):
        add_label(journal, f"entry-{number}", "me", True)
    assert watch(journal) == before
    filled(journal, applied, [False] * 30, first=60, begin=1.5e9)
    late = watch(journal)
    assert (late.state, late.order, late.n) == ("broken", "draw", 90)
    assert late.broken_since == 1.5e9 + DAY * 60


def test_a_clock_that_is_set_back_hides_no_model(journal: Journal) -> None:
    """Those since the calibrator's first decision are named, though the clock says that they came before it."""
    old, new = fitted(), fitted(seed=1)
    early = [entry(i, model="before", calibrator=None) for i in range(3)]
    journal.add(rows_of([*early, entry(3, model="former", calibrator=old.checksum)]))
    journal.use(old.file, old.checksum)
    journal.use(new.file, new.checksum)
    assert watch(journal).models == {}
    later = [entry(i, model="own", calibrator=new.checksum, decision="answer") for i in (4, 5)]
    journal.add(rows_of([*later, entry(6, model="other", calibrator=None)]))
    assert watch(journal).models == {"own": 2, "other": 1}
    journal.use(old.file, old.checksum)  # it came back, and what it decided before is no answer since
    assert watch(journal).models == {}
    journal.add(rows_of([entry(7, model="former", calibrator=old.checksum)]))
    assert watch(journal).models == {"former": 1}


def test_the_order_of_the_draw_counts_where_it_can_be_had(journal: Journal) -> None:
    """Wrong answers that are labeled first look like a change, until the answers before them have labels."""
    applied = fitted()
    journal.use(applied.file, applied.checksum)
    made = [entry(i, sampled=True, decision="answer", calibrator=applied.checksum) for i in range(200)]
    abstained = entry(300, sampled=True, decision="abstain", calibrator=applied.checksum)
    journal.add(rows_of([abstained, *made]))
    labeled(journal, {made[i].id: False for i in range(9, 200, 10)})
    early = watch(journal)
    assert (early.state, early.order, early.without_label) == ("broken", "labels", 180)
    assert "180 older answers of the sample have no label" in early.sentence
    labeled(journal, {made[i].id: True for i in range(200) if i % 10 != 9})
    late = watch(journal)
    assert (late.state, late.order, late.without_label, late.n) == ("kept", "draw", 0, 200)


def test_people_who_label_at_the_same_time_seldom_meet(journal: Journal) -> None:
    """Both fetch before either labels; half of the answers would be labeled twice if they came in one order."""
    journal.add(rows_of(entry(i, sampled=True, seen_twice=False) for i in range(200)))
    fetched = [{row["id"] for row in queue(journal, person, limit=20)} for person in ("ann", "bob")]
    assert all(len(one) == 20 for one in fetched) and len(fetched[0] & fetched[1]) <= 9  # 4 on average


def test_a_calibrator_from_the_labeled_sample_alone(journal: Journal, url: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    scores = -generator.exponential(0.5, 350)
    journal.add(
        rows_of(
            entry(i, log_confidence=float(s), sampled=i < 300, confidence_method=None) for i, s in enumerate(scores)
        )
    )
    right = [bool(generator.random() < np.exp(score)) for score in scores[:150]] + [False] * 50
    chosen = [*range(150), *range(300, 350)]
    labeled(journal, {f"entry-{i}": said for i, said in zip(chosen, right, strict=True)})
    target = tmp_path / "calibrator"
    done = invoke(["calibrate", url, "-o", str(target), "--alpha", "0.3"])
    assert done.exit_code == 0, done.output
    found = st.Calibrator.load(target)
    assert found.n == 150  # not the fifty wrong ones that are not of the sample
    assert found.fingerprint.judge == "labels in the journal"
    assert set(found.scores) == {float(s) for s in scores[:150]}
    assert "150 labeled answers and 150 further scores" in done.output


def test_the_command_says_it_in_words_and_as_json(journal: Journal, url: str) -> None:
    filled(journal, fitted(), [True] * 30 + [False] * 40)
    done = invoke(["audit", url])
    assert done.exit_code == 1 and "Broken since about" in done.output and "distance" in done.output
    report = json.loads(invoke(["audit", url, "--json"]).stdout)
    assert (report["state"], report["n"], report["wrong"], report["holds"]) == ("broken", 70, 40, False)
    assert invoke(["audit", url + "-not-there"]).exit_code == 2
    gone = invoke(["audit", "gone.db"])
    assert (gone.exit_code, gone.stderr.strip()) == (2, "Error: There is no file, folder or journal gone.db.")


def test_a_former_calibrator_is_put_back_from_the_journal(journal: Journal, url: str, tmp_path: Path) -> None:
    """Also after its file was overwritten, which `calibrate --force` does."""
    first, second = fitted(), fitted(seed=1)
    journal.use(first.file, first.checksum)
    journal.use(second.file, second.checksum)
    folder = tmp_path / "calibrator"
    second.calibrator.save(folder)

    def run(*arguments: str) -> tuple[int, str]:
        done = invoke(["journal", "export" if arguments else "show", url, *arguments])
        return done.exit_code, " ".join(done.output.split())

    listed = run()[1]
    assert listed.index(second.checksum[:12]) < listed.index(first.checksum[:12]) and "400 labels" in listed
    code, told = run("--checksum", first.checksum[:8], "-o", str(folder))
    assert code != 0 and "--force" in told and CalibratorInUse.load(folder).checksum == second.checksum
    assert run("--checksum", first.checksum[:8], "-o", str(folder), "--force")[0] == 0
    assert CalibratorInUse.load(folder).checksum == first.checksum
    assert run("--checksum", second.checksum, "-o", str(tmp_path / "new"))[0] == 0
    assert CalibratorInUse.load(tmp_path / "new").checksum == second.checksum
    assert run("--checksum", "no", "-o", str(folder))[0] != 0


def test_a_guarantee_is_called_kept_from_the_upper_end_on_and_not_before() -> None:
    bad = [i % 20 == 10 for i in range(100)]
    high = wrong_share(5, 100)[1]
    for alpha, state in ((high - 1e-6, "unknown"), (high - 0.005, "unknown"), (high, "kept"), (high + 1e-6, "kept")):
        report = guarantee_report(bad, range(100), selective(alpha))
        assert (report.state, report.high) == (state, high)
