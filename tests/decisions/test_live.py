"""`semtoken decide` against a server that runs: runs, live audits, and the journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from semtoken import ScoredModel
from semtoken.decisions import Choice, Predicate
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.records import read_decisions
from tests.decisions.models import tiny
from tests.decisions.test_commands import semtoken
from tests.json_lines import read_lines, write_lines
from tests.web.servers import running

N = 80
LISTED = 1000
"""More log-probabilities a token than the tiny model has tokens."""
QUESTIONS = """
late: {type: predicate, instructions: "Is it late?"}
tone: {type: choice, instructions: "What is the tone?", choices: [calm, angry, sad]}
"""
REWORDED = QUESTIONS.replace("Is it late?", "Does it come too late?").replace("the tone", "its tone")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    from semtoken.web.serve.app import serve_app
    from semtoken.web.serve.engine import Engine
    from semtoken.web.serve.service import Offer

    with running(serve_app(Engine(ScoredModel(tiny())), Offer("tiny", max_logprobs=LISTED)), strict=False) as address:
        yield address


@pytest.fixture(scope="module")
def labeled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("live") / "items.jsonl", labels_of(range(N)))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Items like those that the calibrator was fitted on."""
    return write_lines(tmp_path_factory.mktemp("others") / "items.jsonl", labels_of(range(N, 2 * N)))


def labels_of(parcels: Iterable[int]) -> list[dict[str, Any]]:
    """Items, four in five labeled as the tiny model answers them, so that there is something to guarantee."""
    stc = ScoredModel(tiny())
    questions = {"late": Predicate("Is it late?"), "tone": Choice("What is the tone?", ["calm", "angry", "sad"])}
    found: list[dict[str, Any]] = []
    for i in parcels:
        said = stc.decide(f"Parcel {i}", questions)
        wrong = {"late": not said["late"].value, "tone": "calm" if said["tone"].value != "calm" else "sad"}
        labels = wrong if i % 5 == 0 else {name: one.value for name, one in said.items()}
        found.append({"state": f"Parcel {i}", "labels": labels})
    return found


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("asked") / "questions.yaml"
    path.write_text(QUESTIONS, "utf-8")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, url: str, labeled: Path, asked: Path) -> Path:
    """A calibrator that was fitted on what the server said."""
    folder = tmp_path_factory.mktemp("made")
    code, _, said = semtoken("decide", asked, labeled, "-o", folder / "here.jsonl", "--base-url", f"{url}/v1/decisions")
    assert code == 0, said
    code, shown, said = semtoken("calibrate", folder / "here.jsonl", "-o", folder / "calibrator", "--alpha", "0.4")
    assert code == 0, said
    assert "tone, probabilities of all options: temperature" in shown
    return folder


@pytest.mark.slow
class TestLive:
    def test_both_formats_and_the_library_say_the_same(
        self, url: str, labeled: Path, asked: Path, made: Path, tmp_path: Path
    ) -> None:
        target = tmp_path / "there.jsonl"
        code, _, said = semtoken("decide", asked, labeled, "-o", target, "--base-url", f"{url}/v1/systemone")
        assert code == 0, said
        stc = ScoredModel(tiny())
        here, there = read_decisions(made / "here.jsonl"), read_decisions(target)
        for one, other in zip(here[:20], there, strict=False):
            assert one.fingerprint == other.fingerprint
            assert one.answer.probabilities == pytest.approx(
                other.answer.probabilities, abs=1e-5
            )  # asked beside others
        [direct] = stc.decide("Parcel 0", [Predicate("Is it late?")])
        assert here[0].answer.probabilities == pytest.approx(direct.probabilities, abs=1e-5)

    def test_chat_says_the_same(self, url: str, labeled: Path, asked: Path, made: Path, tmp_path: Path) -> None:
        """Its lists name every token here, so nothing is left open; with 20 of them each share is an interval."""
        for top, wide in ((LISTED, False), (20, True)):
            target = tmp_path / f"{top}.jsonl"
            told = ("--base-url", f"{url}/v1/chat/completions", f"--endpoint.top_logprobs={top}")
            code, _, said = semtoken("decide", asked, labeled, "-o", target, *told)
            assert code == 0, said
            exact, found = ([line["answers"] for line in read_lines(path)] for path in (made / "here.jsonl", target))
            assert len(found) == len(exact)
            for there, here in zip(found, exact, strict=True):
                for name in ("late", "tone"):
                    if wide and "refusal" in there[name]:  # none of its options was listed
                        continue
                    shares = here[name]["probabilities"]
                    bounds = there[name].get("bounds") or [(p, p) for p in there[name]["probabilities"]]
                    for (low, high), p in zip(bounds, shares, strict=True):
                        assert low - 1e-4 <= p <= high + 1e-4
                        assert wide or high - low < 1e-3

    def test_an_audit_asks_the_endpoint_itself(self, url: str, others: Path, made: Path, tmp_path: Path) -> None:
        reworded = tmp_path / "reworded.yaml"
        reworded.write_text(REWORDED, "utf-8")
        kept = tmp_path / "kept.jsonl"
        words = ("audit", others, "--calibrator", made / "calibrator", "--base-url", f"{url}/v1/systemone", "--json")
        code, shown, said = semtoken(*words, "--rewordings", reworded, "--audit.variants=30", "-o", kept)
        assert code == 0, said
        found = read_lines(shown)
        verdicts = {(one["question"], one["side"]): one for one in found if "side" in one}
        fitted = DecisionCalibrator.load(made / "calibrator")
        assert set(verdicts) == {(one.name, one.side) for one in fitted.sides} | {
            ("tone", "set"),
            ("late", "set"),
        }
        assert all(one["verdict"] != "does not hold" for one in verdicts.values())  # it is the server and the world
        variants = {(one["question"], one["how"]): one for one in found if "how" in one}
        assert set(variants) == {
            ("tone", "with its options in another order"),
            ("late", "in other words"),
            ("tone", "in other words"),
        }
        assert all(one["asked"] == 30 and 0 < one["moved"] < 1 for one in variants.values())
        stc = ScoredModel(tiny())
        before = stc.decide(f"Parcel {N}", [Choice("What is the tone?", ["calm", "angry", "sad"])])[0]
        turned = stc.decide(f"Parcel {N}", [Choice("What is the tone?", ["sad", "calm", "angry"])])[0]
        told = read_decisions(tmp_path / "kept.order.jsonl")[0]
        assert told.answer.probabilities == pytest.approx(turned.probabilities, abs=1e-5)
        assert before.probabilities != pytest.approx(turned.probabilities, abs=1e-5)
        code, again, _ = semtoken(*words, "--rewordings", reworded, "--audit.variants=30", "-o", kept)
        assert (code, again) == (0, shown)
        code, shown, said = semtoken(*words, "--model", "another", "-o", kept)
        assert (code, shown) == (2, ""), "a verdict on one server by the answers of another"
        assert "line 1: the field 'answered_by' was 'http://127.0.0.1:" in said and "now 'another at http://" in said

    def test_items_that_it_was_fitted_on_measure_nothing(self, url: str, labeled: Path, made: Path) -> None:
        code, shown, said = semtoken(
            "audit", labeled, "--calibrator", made / "calibrator", "--base-url", f"{url}/v1/systemone", "--json"
        )
        assert code == 3, said
        found = read_lines(shown)
        verdicts = {one["verdict"] for one in found if "verdict" in one}
        assert verdicts == {"nothing was measured", "nothing was guaranteed"}
        accepted = {(one["question"], one["side"]): one["accepted"] for one in found if "side" in one}
        fitted = DecisionCalibrator.load(made / "calibrator")
        for side in fitted.sides:  # the server is the one that it was fitted on
            assert accepted[side.name, side.side] == side.n_accepted

    def test_an_audit_that_stops_says_where_its_answers_are(
        self, url: str, others: Path, made: Path, tmp_path: Path
    ) -> None:
        lines = others.read_text().splitlines(keepends=True)[:3]
        (tmp_path / "items.jsonl").write_text("".join(lines) + "no item\n")
        words = ("audit", tmp_path / "items.jsonl", "--calibrator", made / "calibrator", "--base-url")
        code, _, said = semtoken(*words, f"{url}/v1/systemone")
        [kept] = tmp_path.glob("items.asked-*.jsonl")
        assert code == 2 and "items.jsonl, line 4: not JSON" in said
        assert f"The answers so far are in {kept}: the same command goes on from there." in said
        assert len(read_lines(kept)) == 3

    def test_another_question_among_the_rewordings_is_found_before_anybody_is_asked(
        self, url: str, others: Path, made: Path, tmp_path: Path
    ) -> None:
        (reworded := tmp_path / "reworded.yaml").write_text('early: {type: predicate, instructions: "Is it early?"}')
        words = ("audit", others, "--calibrator", made / "calibrator", "--base-url", f"{url}/v1/systemone")
        code, _, said = semtoken(*words, "--rewordings", reworded, "-o", tmp_path / "kept.jsonl")
        assert code == 2 and "The calibrator has no question 'early'." in said
        assert not (tmp_path / "kept.jsonl").exists()

    def test_what_cannot_be_asked_is_one_line(self, url: str, labeled: Path, made: Path, tmp_path: Path) -> None:
        other = tmp_path / "other.yaml"
        other.write_text('early: {type: predicate, instructions: "Is it early?"}', "utf-8")
        calibrator = made / "calibrator"
        for words, why in (
            ((labeled, "--base-url", f"{url}/v1/systemone", "--rewordings", other), "no question 'early'"),
            ((labeled, "--rewordings", other), "without --base-url: leave it out"),
            ((labeled, "--base-url", f"{url}/v1/elsewhere"), "An endpoint ends with"),
            ((labeled, "--base-url", "http://127.0.0.1:9/v1/decisions"), "cannot be reached"),
        ):
            code, _, said = semtoken("audit", *words, "--calibrator", calibrator)
            assert code == 2 and why in " ".join(said.split()) and "Traceback" not in said, said
