"""The campaigns find what is planted, and repeat a case from its seed and number."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import pkgutil
import re
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import semtoken
from semtoken.decisions import Answer, Predicate
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.records import DecisionRecord
from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.support.arrays import real_numbers
from tests.hostile import (
    apis,
    damage,
    endings,
    fetching,
    functions,
    kills,
    outputs,
    questions,
    routes,
    serving,
    texts,
    traffic,
    watch,
)
from tests.hostile.functions import Target
from tests.hostile.outcomes import Outcome, case_random, table

VALUES = np.array([0.1, 0.5, 0.2])


def mean(values: Any) -> float:
    """A function as it should be."""
    found = real_numbers(values, "values")
    if found.ndim != 1 or not found.size or not np.isfinite(found).all() or np.abs(found).max() > 1e300:
        raise InvalidInputError("give a list of numbers")
    return float(found.astype(np.float64).mean())


def careless(values: Any) -> float:
    """It drops masks and imaginary parts, and raises what numpy raises."""
    return float(np.asarray(values).real.mean())


def attack(call: Any, calls: int = 400, **more: Any) -> Outcome:
    return functions.attack(7, calls, targets=[Target(call, {"values": VALUES}, **more)])


def test_a_careful_function_survives() -> None:
    assert attack(mean).failures == []


def test_foreign_exceptions_and_silent_numbers_are_found() -> None:
    failures = "\n".join(attack(careless).failures)
    for form in ("masked", "complex"):
        assert re.search(rf"values: {form}\) \[.*\]: answered", failures)
    assert "TypeError" in failures


def test_numbers_out_of_range_and_other_numbers_are_found() -> None:
    assert any("answered 0.2" in failure for failure in attack(mean, high=0.2).failures)
    assert any(
        "not 0.26" in one
        for one in attack(lambda values: mean(np.array(values)[::1]) + (type(values) is list)).failures
    )


@pytest.mark.slow
def test_what_takes_too_long_or_too_much_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "SECONDS", 0.05)

    def slow(values: Any) -> float:
        if np.ma.isMaskedArray(values):
            while True:
                pass
        if isinstance(values, tuple):
            return float(np.zeros(2**40).sum())
        return mean(values)

    failures = "\n".join(attack(slow, 300).failures)
    assert "took too long" in failures and "MemoryError" in failures


def test_a_case_is_the_same_again() -> None:
    whole = attack(careless, 60).failures
    first = int(whole[0].split("--first ")[1].split()[0])
    again = functions.attack(7, 1, first, [Target(careless, {"values": VALUES})])
    assert again.failures == whole[:1]
    assert case_random(1, "a", 2).random() == case_random(1, "a", 2).random() != case_random(1, "a", 3).random()


def test_every_target_works_and_keeps_its_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some targets save under odd names
    assert functions.attack(3, 60).failures == []


REASONS = {
    "a decorator of developers": "method statistic",
    "gives the place of a folder that comes with semtoken": (
        "embedded_folder almanac_path almanac_clusters_path almanac_nli_path almanac_sts_path"
    ),
    "takes an engine's own objects, or loads an engine": (
        "load_transformers load_llama_cpp load_vllm check_spelling sampling_params score_outputs"
    ),
    "a step of a command or a server, which checks what it is given where that is read": (
        "examine static_page extension_of check_shape normalized_rows check_shared_vocabulary shapes_at scorer_of "
        "decoding observer result results fingerprint"
    ),
    "a step of a stream, which is attacked as a whole under the name of its class": (
        "add LogprobsStream.finish feed ReplyStream.finish choice"
    ),
    "a step of `record`, which is attacked, or one that needs a further model": (
        "record_greedy record_samples alternative_classes entailment_matrices similarity_matrices token_similarities"
    ),
    "takes objects of this library alone, or places that the answer has": (
        "neutral_masks alike in_cluster call_confidences DecisionCalibrator.accepts DecisionCalibrator.decide block "
        "alternatives_at ScoredAnswer.with_fields"
    ),
    "takes nothing that can be odd": (
        "reset to_dict to_summary facts to_pandas without_quotes without_tokens lines plain_values"
    ),
    "campaigns `damage` and `kills` are for its files": (
        "token_table fetch DecisionCalibrator.save DecisionCalibrator.load"
    ),
    "calls others that are attacked": "from_model field_confidences Vocabulary.parts from_summary clusters_of",
    "uploads, or takes a model of torch": "push_to_hub watching",
}
"""Why a public function is not attacked, and the names of those."""
LEFT_OUT = {name for names in REASONS.values() for name in names.split()}
NOT_HERE = {"load_llama_cpp", "check_spelling", "load_vllm", "sampling_params", "score_outputs"}
"""Functions of engines that may not be installed."""


def public_functions() -> set[str]:
    """The functions of the packages that list their names, and methods of the classes that `semtoken` lists.

    A name that several of them have stands with its class: "Threshold.decide".
    """
    functions, methods = set(), list[tuple[str, str]]()
    for module in (semtoken, *map(importlib.import_module, packages())):
        listed = [getattr(module, name) for name in getattr(module, "__all__", ())]
        functions |= {one.__name__ for one in listed if inspect.isfunction(one)}
    for kind in filter(inspect.isclass, (getattr(semtoken, name) for name in semtoken.__all__)):
        members = {name: inspect.getattr_static(kind, name) for name in vars(kind) if not name.startswith("_")}
        callables = (classmethod, staticmethod, FunctionType)
        methods += [(kind.__name__, name) for name, value in members.items() if isinstance(value, callables)]
    names = Counter([*functions, *(name for _, name in methods)])
    return functions | {f"{kind}.{name}" if names[name] > 1 else name for kind, name in methods}


def packages() -> list[str]:
    """The packages below semtoken that list their names; engines that are not installed are left out."""
    found = []
    for one in pkgutil.walk_packages(semtoken.__path__, "semtoken."):
        try:
            if one.ispkg and hasattr(importlib.import_module(one.name), "__all__"):
                found.append(one.name)
        except (ImportError, SemtokenError):
            continue
    return found


def test_every_public_function_is_attacked_or_left_out_for_a_reason() -> None:
    from tests.hostile.targets import all_targets

    names = {target.name.split()[0] for target in all_targets()}
    attacked = names | {name.rpartition(".")[2] for name in names}
    missing = public_functions() - attacked
    assert missing <= LEFT_OUT <= missing | NOT_HERE


def test_every_place_of_a_file_is_changed_once() -> None:
    data = bytes(range(50))
    places = [place for place, _ in damage.changed_bytes(data, 1, "x", 1)]
    assert places == list(range(50))
    assert all(
        sum(a != b for a, b in zip(data, changed, strict=True)) == 1
        for _, changed in damage.changed_bytes(data, 1, "x", 7)
    )


def test_a_file_that_reads_as_something_else_is_found(tmp_path: Path) -> None:
    path = tmp_path / "number"
    path.write_bytes(b"12345")
    outcome = Outcome("damage", "")
    damage.each_damage(outcome, tmp_path, [path], 1, 1, lambda: None if path.read_bytes() == b"12345" else "another")
    tried = len(list(damage.damages(b"12345", 1, "number", 1)))
    assert (outcome.tried, len(outcome.failures), path.read_bytes()) == (tried, tried, b"12345")


def test_what_else_is_done_to_a_file() -> None:
    done = dict(damage.damages(b"12345", 1, "x", 1))
    assert done["cut to 4"] == b"1234" and done["twice"] == b"1234512345"
    assert done["nothing in its place"] == b"" and b"12345" not in done.values()


def test_half_a_folder_of_clusters_is_found(tmp_path: Path) -> None:
    fault_of = kills.loads_or_none(semtoken.TokenClusters.from_pretrained)
    assert fault_of(tmp_path / "none") is None
    (tmp_path / "half").mkdir()
    assert "does not load" in str(fault_of(tmp_path / "half"))


def test_calibrators_are_the_same_whenever_they_were_made(tmp_path: Path) -> None:
    """Also those of decisions, whose checksums follow from the dates of their parts."""
    question = Predicate("Is it late?", name="late")
    records = [DecisionRecord(Answer(question, (1 - i / 99, i / 99)), label=int(i > 40)) for i in range(100)]
    one = DecisionCalibrator.fit(records, alpha=0.3)
    early, late, other = (tmp_path / name for name in ("early", "late", "other"))
    one.save(early)
    with patch("semtoken.guarantees.calibrator.datetime") as clock:
        clock.now.return_value = datetime(2001, 1, 1, tzinfo=UTC)
        DecisionCalibrator.fit(records, alpha=0.3).save(late)
    DecisionCalibrator.fit(records, alpha=0.2).save(other)
    same = kills.same_calibrators(DecisionCalibrator.load)
    assert DecisionCalibrator.load(early) != DecisionCalibrator.load(late)
    assert same(early, late) and not same(early, other)


def test_what_a_terminal_obeys_is_found() -> None:
    assert outputs.unprintable("fine \x1b[1;31mred\x1b[0m\n") is None
    for evil in ("\x1b[2J", "\x07", "\u202e", "\r"):
        assert outputs.unprintable(f"a{evil}b") is not None


def test_another_clients_bytes_are_found() -> None:
    plan = traffic.Plan(5)
    of = {how: next(n for n in range(500) if plan.how(n) == how) for how in ("bytes", "stream", "dies", "damaged")}
    number = of["bytes"]
    assert traffic.judge(plan, number, 200, plan.body(number), True) is None
    assert traffic.judge(plan, number, 200, plan.body(number)[:-1], True)
    assert traffic.judge(plan, number, 200, plan.body(number + 1), True)
    assert traffic.judge(plan, of["dies"], 200, plan.half(of["dies"], shown=False), False) is None
    assert traffic.judge(plan, of["dies"], 200, plan.half(of["dies"], shown=False), True)
    assert traffic.judge(plan, of["stream"], 200, b"".join(plan.events(of["stream"])), True)
    numbered = b'data: {"semtoken": {"sequence_uncertainty": 0.1, "final": true}}\n'
    assert traffic.judge(plan, of["damaged"], 200, numbered, True)


SERVER = "import os, signal, sys, time; print('on', flush=True); input(); {}; print('on', flush=True); time.sleep(60)"


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("pass", None),
        ("print('Traceback', file=sys.stderr, flush=True)", "a traceback in the log"),
        ("found = [open(os.devnull) for _ in range(9)]", "files open"),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "it did not stop"),
    ],
    ids=["well", "traceback", "files", "stays"],
)
def test_how_a_server_is_left_is_found(code: str, fault: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PATIENCE", 1)
    monkeypatch.setattr(watch, "SETTLING", 0)
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", SERVER.format(code)], text=True, **pipes) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        server = watch.WatchedServer("it", process, 2)
        print(file=process.stdin, flush=True)
        process.stdout.readline()
        found = server.stopped()
        process.kill()
    assert [fault in one for one in found] == [True] if fault else not found


def test_a_text_in_an_event_is_found() -> None:
    plan = traffic.Plan(5)
    told = {"gen_ai.response.id": "chat-3", "semtoken.sequence_uncertainty": 0.5, "semtoken.flags": ["masked", "top_k"]}
    assert traffic.event_fault(plan, {"attributes": told}) is None
    said = apis.text_of(plan.items(3))
    assert "quotes" in str(traffic.event_fault(plan, {"attributes": told | {"semtoken.model": said}}))
    assert "holds" in str(traffic.event_fault(plan, {"attributes": told | {"semtoken.reason": "It is so."}}))
    shown = '{"attributes": {"a": 1}}\n{"attributes": {"a": 2}}\n'
    assert [event["attributes"]["a"] for event in traffic.events_of(shown)] == [1, 2]


def answered(text: str, number: float, *best: float) -> serving.MarkedAnswer:
    items = [{"token": letter, "logprob": best[0], "best": [*best]} for letter in text]
    return serving.MarkedAnswer(200, [text], [number], [items])


def test_another_answer_among_others_is_found() -> None:
    asked = serving.Asked("/v1/completions", {}, None)
    alone = answered("abc", 0.5, -0.1, -3.0)
    assert serving.judge(asked, alone, answered("abc", 0.500001, -0.1, -3.0)) == (None, "")
    for other in (
        answered("abd", 0.5, -0.1, -3.0),
        answered("abc", 0.501, -0.1, -3.0),
        answered("ab", 0.5, -0.1, -3.0),
    ):
        assert serving.judge(asked, alone, other)[0] is not None
    assert "503" in str(serving.judge(asked, alone, serving.MarkedAnswer(503))[0])
    tied = answered("abc", 0.5, -0.7, -0.70001)
    assert serving.judge(asked, tied, answered("abd", 0.6, -0.7, -0.70001)) == (None, "tie")
    drawing = serving.Asked("/v1/completions", {"temperature": 1.0}, None)
    assert serving.judge(drawing, alone, answered("abd", 0.6, -0.1, -3.0)) == (None, "draw")


def test_requests_come_again_and_are_mixed() -> None:
    plan = serving.Plan(1)
    asked = [plan.asked(number) for number in range(200)]
    prompts = [str(one.body.get("prompt") or one.body["messages"]) for one in asked]
    assert len(set(prompts)) < 180 and max(map(len, prompts)) > 10 * min(map(len, prompts))
    assert any(one.leaves_after for one in asked) and any(one.draws for one in asked)
    assert asked[7] == plan.asked(7)


@pytest.mark.slow
def test_wrong_answers_to_typed_questions_are_found() -> None:
    plan = questions.Plan(5)

    def first(how: str, way: str, question: str) -> int:
        """A request of this kind that is allowed, with one question that is read by labels."""
        for number in range(20_000):
            if plan.how(number) == how and plan.way(number) == way and b'"words"' not in plan.request(number)[1]:
                path, body = plan.request(number)
                asked = json.loads(body)["questions"] if questions.permitted(path, body) and path[-1] == "s" else []
                if [one["type"] for one in asked] == [question]:
                    return number
        raise AssertionError("there is none")

    def judged(number: int, answer: Any, status: int = 200) -> str | None:
        reply = questions.Reply(status, json.dumps(answer).encode(), None, 0.1)
        return questions.judge(plan, number, reply)

    number = first("well", "chat", "predicate")
    listed = {one["token"]: math.exp(one["logprob"]) for one in plan.items(number)[0]["top_logprobs"]}
    yes, no = listed["Yes"], listed["No"]
    p = yes / (yes + no)

    def answers(probability: float, **block: Any) -> Any:
        given = {"type": "predicate", "probability": probability, "semtoken": {"option_mass": yes + no, **block}}
        return {"answers": [given]}

    assert judged(number, answers(p)) is None
    assert "not [" in str(judged(number, answers(p + 0.001)))
    assert "outside of its bounds" in str(judged(number, answers(p, bounds=[[0.0, 0.0], [0.0, 1.0]])))
    assert "no probabilities" in str(judged(number, answers(1.5)))
    assert "500" in str(judged(number, {"error": {"message": "The proxy failed; see its log."}}, 500))
    assert "without words" in str(judged(number, {"error": {}}, 400))
    assert "allows" in str(judged(number, {"error": {"message": "This question cannot be answered."}}, 400))
    assert "a number" in str(judged(first("nan", "chat", "predicate"), answers(p)))
    refused = next(n for n in range(500) if questions.permitted(*plan.request(n)) is False and plan.way(n) == "model")
    assert "does not allow" in str(judged(refused, answers(p)))
    passed = first("seven", "passed", "predicate")
    sent = questions.TypedUpstream(plan, "decisions").reply(passed, *plan.request(passed))
    assert sent is not None and judged(passed, json.loads(sent)) is None
    assert "changed" in str(judged(passed, answers(p)))


def test_a_typed_question_is_the_same_again_whatever_was_asked_before() -> None:
    alone = questions.Plan(5).request(299)
    before = [questions.Plan(5).request(number) for number in range(300)]
    assert before[-1] == alone and [questions.Plan(5).request(number) for number in range(300)] == before


def test_what_typed_questions_may_hold_is_what_their_packages_say() -> None:
    right = {"type": "choice", "instructions": "Which?", "choices": [{"value": "a"}, {"value": True}]}

    def allowed(question: Any, **more: Any) -> bool | None:
        return questions.permitted(
            "/v1/decisions", json.dumps({"input": "x", "questions": [question], **more}).encode()
        )

    assert allowed(right) is True
    assert allowed(right | {"choices": [{"value": "a"}, {"value": 1}]}) is False
    assert allowed(right | {"choices": [{"value": "a"}, {"value": "a"}]}) is False
    assert allowed(right | {"further": 1}) is False
    assert allowed(right, semtoken={"orders": True}) is False
    assert questions.permitted("/v1/decisions", b'{"input": "x", "questions": [') is False
    state = {"state": "x", "questions": {"q": {"type": "noul", "criteria": {"maybe": "x"}}}}
    assert questions.permitted("/v1/systemone", json.dumps(state).encode()) is False
    state["questions"] = {"q": {"type": "noul"}}
    assert questions.permitted("/v1/systemone", json.dumps(state).encode()) is True


def test_a_model_that_goes_away_is_found(tmp_path: Path) -> None:
    stays = fetching.ModelStays()
    assert stays(tmp_path) is None
    folder = tmp_path / "models" / "tiny"
    folder.mkdir(parents=True)
    assert stays(tmp_path) == "a model that is not complete has its name"
    (folder / "semtoken.json").write_text("{")
    assert stays(tmp_path) == "damaged: semtoken.json"
    (folder / "semtoken.json").unlink()
    folder.rmdir()
    assert stays(tmp_path) == "the model that was there is gone"


def test_a_finder_whose_work_grows_too_fast_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "LEAST", 0.01)
    monkeypatch.setattr("gc.collect", lambda: 0)  # which takes longer here than the work

    def work(seconds: float) -> None:
        """Takes time of the processor, so that the test is the same on any machine."""
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    too_long = texts.LEAST + texts.FACTOR * 4 * 0.004
    assert "4 times the characters" in str(texts.judge(lambda: work(0.002), lambda: work(too_long), 4))
    assert texts.judge(lambda: work(0.002), lambda: work(0.008), 4) is None
    assert "ZeroDivisionError" in str(texts.judge(lambda: 1, lambda: 1 / 0, 4))


def test_no_body_is_an_error_of_a_server(tmp_path: Path) -> None:
    """The short form of `python -m tests.hostile routes --routes 5000`."""
    outcome = routes.attack(46, 4, tmp_path)
    assert outcome.failures == []
    statuses = {status for note in outcome.notes for status in (200, 400) if f"{status}:" in note}
    assert statuses == {200, 400}, "both answers and refusals are seen"


def test_the_table_counts_and_shows_failures() -> None:
    outcome = Outcome("one", "things")
    for fault in (None, None, "broke"):
        outcome.count(fault)
    told = table([outcome])
    assert told.splitlines()[1].split()[:3] == ["one", "3", "2"]
    assert "FAILED one: broke" in told
    assert math.isclose(outcome.survived, 2)
