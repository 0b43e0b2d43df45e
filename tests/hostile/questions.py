"""Odd typed questions to `/v1/decisions` and `/v1/systemone` of servers and proxies as people start them.

Requests are right ones, most of them bent in one place or several. They go to `semtoken serve`, and through proxies:
before one that serves the embedded model, and before an upstream of ours, which answers typed questions or texts with
log-probabilities in each API's form, well or in some wrong way. Nothing may hang or fail. What a request may hold is
decided here by the `openai` package and by transformers, what must be answered by the lists that the upstream sent.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from string import ascii_uppercase
from typing import Any

import aiohttp
import numpy as np

from tests.hostile.apis import APIS, Item
from tests.hostile.outcomes import Outcome, case_random
from tests.hostile.serving import serve_process
from tests.hostile.upstream import asked_together, listening
from tests.hostile.watch import WatchedServer
from tests.web.odd_requests import odd_request, right_request
from tests.web.servers import Received, response
from tests.web.test_proxy_load import proxy_process

AT_ONCE = 8
SECONDS = 100.0
"""In which every request has to be answered."""
READ_TIMEOUT = 5
"""Seconds for which proxies wait for an upstream that says nothing."""
ROUNDED = 1e-9
CASE = "x-case"
"""The header with the number of a request, which proxies pass on."""
RIGHT = 0.3
"""Share of requests that are not bent."""
ASKED_AS_TEXTS = ("chat", "completions")


@dataclass(frozen=True)
class Way:
    """A way by which typed questions come to who answers them."""

    answers: str
    """Who answers: our upstream in the form of this API, or itself (`decisions`), or the embedded model (`model`)."""
    options: tuple[str, ...] = ()
    """Options of the proxy."""


WAYS: Mapping[str, Way] = {
    "passed": Way("decisions"),
    "only passed": Way("decisions", ("--decisions.route", "pass")),
    **{name: Way(name, ("--decisions.route", name)) for name in ASKED_AS_TEXTS},
    "found out": Way("completions"),
    "model": Way("model"),
    "model as texts": Way("model", ("--decisions.route", "chat")),
    "serve": Way("model"),
}
WRONG_LISTS = ("nan", "positive", "overfull", "text", "null", "none", "nested")
"""Replies with something else than log-probabilities."""
WRONG_REPLIES = ("cut", "html", "array", "deep", "empty", "gzip")
FIELDS = (b"choices", b"id", b"usage", b"output", b"content", b"answers", b"meta_info", b"error")
STATUSES = ("400", "401", "429", "500", "503")
FAILURES = (*STATUSES, "vanishes", "dies", "garbage", "hangs", "deep error")
WRONG_ANSWERS = ("seven", "not a number", "missing", "half", "another kind")
"""Answers of an upstream to typed questions that are none."""
TOKENS = [
    *("Yes", "No", "A", "B", "C", "D", " Yes", "yes", "NO", " A", "a", "1", "we", " we", "We", "they", "true", "True"),
    *("c", "b", "New", " York", "the", "\n", ".", "é", "日", "Maybe"),
]
KNOWN = re.compile(
    r"more than [\d,]+ requests|cannot be told apart|surely among the tokens|no text|reads text only|same option twice|"
    r"must be unique|needs 1 to \d+ (options|levels)|No call before|lone surrogate|not JSON|than the context|too long|"
    r"does not (exist|serve)|model .* (is not|does not)|empty|tokens|Extra inputs|valid string|at (least|most)"
)
"""Reasons for which a request that its format allows may be refused."""


class Plan:
    """The plan of every request: the question, its way, and the answer of our upstream."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def chance(self, what: str, number: int) -> random.Random:
        """The random numbers of one thing about one request."""
        return case_random(self._seed, f"questions {what}", number)

    def way(self, number: int) -> str:
        """By which way a request goes."""
        return self.chance("way", number).choice(list(WAYS))

    def request(self, number: int) -> tuple[str, bytes]:
        """Path and body."""
        chance = self.chance("request", number)
        return (right_request if chance.random() < RIGHT else odd_request)(chance, "almanac")

    def how(self, number: int) -> str:
        """The behavior of our upstream."""
        chance = self.chance("how", number)
        typed = WAYS[self.way(number)].answers == "decisions"
        wrong = WRONG_ANSWERS if typed else WRONG_LISTS
        return str(chance.choice(["well"] * 22 + [*wrong, *WRONG_REPLIES, *FAILURES]))

    def items(self, number: int) -> list[Item]:
        """The tokens of the answer to every text about a request, with the best of each."""
        chance = self.chance("lists", number)
        return [self._item(chance) for _ in range(chance.choice([1, 1, 2, 3]))]

    def _item(self, chance: random.Random) -> Item:
        listed = chance.sample(TOKENS, chance.choice([1, 3, 10, 20]))
        if chance.random() < 0.7:
            listed = [*dict.fromkeys([*("Yes", "No", "A", "B", "C"), *listed])][:20]
        weights = sorted((chance.random() ** 3 + 1e-9 for _ in listed), reverse=True)
        chance.shuffle(listed)
        mass = chance.choice([0.2, 0.9, 0.999999]) / sum(weights)
        best = [
            {"id": TOKENS.index(token), "token": token, "bytes": [*token.encode()], "logprob": math.log(mass * weight)}
            for token, weight in zip(listed, weights, strict=True)
        ]
        return {**best[0], "top_logprobs": best}


class TypedUpstream:
    """A server that answers by the plan: typed questions, or texts in the form of one API; on other paths, 404."""

    def __init__(self, plan: Plan, answers: str) -> None:
        self._plan = plan
        self._answers = answers
        self._paths = ("/v1/decisions", "/v1/systemone") if answers == "decisions" else (_path_of(answers),)

    async def answer(self, received: Received, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; whether the connection goes on."""
        number, path = received.header(CASE.encode()), received.line.split()[1].decode().partition("?")[0]
        if path in self._paths and number is not None:
            return await self._answer(int(number), path, received.body, writer)
        writer.write(response(b'{"detail": "Not Found"}', status=b"404 Not Found"))
        return True

    async def _answer(self, number: int, path: str, body: bytes, writer: asyncio.StreamWriter) -> bool:
        how = self._plan.how(number)
        if how == "hangs":
            await asyncio.sleep(READ_TIMEOUT + 3)
            return False
        if how == "vanishes":
            return False
        if how == "garbage":
            writer.write(b"\x00garbage\r\n\r\n")
            return False
        if how == "deep error":
            writer.write(response(b'{"error": {"message": %s}}' % self._deep(number), status=b"400 No"))
            return True
        if how in STATUSES:
            said = json.dumps({"error": {"message": f"The upstream says no to {number}."}}).encode()
            writer.write(response(said, status=how.encode() + b" No"))
            return True
        reply = self.reply(number, path, body)
        if reply is None:
            writer.write(response(b'{"error": {"message": "That is no request."}}', status=b"400 No"))
            return True
        if how == "dies":
            writer.write(response(reply)[:-5])
            return False
        headers = (b"Content-Encoding: gzip",) if how == "gzip" else ()
        writer.write(response(reply, *headers, kind=b"text/html" if how == "html" else b"application/json"))
        return True

    def _deep(self, number: int) -> bytes:
        depth = self._plan.chance("depth", number).choice([200, 450, 600, 900, 5000])
        return b"[" * depth + b"]" * depth

    def reply(self, number: int, path: str, body: bytes) -> bytes | None:
        """The body of an answer; None to what is no request."""
        how = self._plan.how(number)
        if how in WRONG_REPLIES:
            return {
                "cut": b'{"choices": [{"mess',
                "html": b"<p>1</p>",
                "array": b"[]",
                "deep": b'{"%s": %s}' % (self._plan.chance("field", number).choice(FIELDS), self._deep(number)),
                "empty": b"",
                "gzip": b"\x1f\x8b\x00 no gzip",
            }[how]
        if self._answers == "decisions":
            found = _typed_reply(path, body, self._plan.chance("answers", number), how)
            return None if found is None else json.dumps(found).encode()
        items = _damaged(self._plan.items(number), how)
        whole = (
            _completions(items) if self._answers == "completions" else APIS[self._answers].whole(number, items, True)
        )
        whole = _without_lists(whole) if how == "none" else whole
        return json.dumps(whole).encode()


def _path_of(api: str) -> str:
    return "/v1/completions" if api == "completions" else APIS[api].path


def _completions(items: Sequence[Item]) -> Any:
    logprobs = {
        "tokens": [item["token"] for item in items],
        "token_logprobs": [item["logprob"] for item in items],
        "top_logprobs": [{best["token"]: best["logprob"] for best in item["top_logprobs"]} for item in items],
    }
    return {"id": "c", "choices": [{"index": 0, "text": "x", "logprobs": logprobs, "finish_reason": "length"}]}


def _damaged(items: Sequence[Item], how: str) -> list[Any]:
    """Lists whose numbers are no log-probabilities in the first step, which is the one that is always read."""
    numbers: dict[str, Any] = {"nan": math.nan, "positive": 0.7, "text": "-0.5", "null": None, "nested": [-0.5]}
    first: dict[str, Any] = dict(items[0])
    best = [dict(one) for one in first["top_logprobs"]]
    if how in numbers:
        best[0]["logprob"] = numbers[how]
    elif how == "overfull":
        best = [
            {**best[0], "logprob": -0.1, "token": token, "bytes": [*token.encode()]} for token in ("Yes", "No", "A")
        ]
    return [{**best[0], "top_logprobs": best}, *items[1:]]


def _without_lists(reply: Any) -> Any:
    """A reply without anything that names probabilities."""
    if isinstance(reply, list):
        return [_without_lists(one) for one in reply]
    if isinstance(reply, dict):
        return {key: _without_lists(one) for key, one in reply.items() if "prob" not in key}
    return reply


def _typed_reply(path: str, body: bytes, chance: random.Random, how: str) -> Any:
    """Answers to typed questions, right but for what `how` says; None to a request that the formats do not allow."""
    if permitted(path, body) is False:
        return None
    questions = json.loads(body.removeprefix(b"\xef\xbb\xbf"))["questions"]
    named = questions.items() if isinstance(questions, dict) else enumerate(questions)
    try:
        answers = {name: _typed_answer(path, one, chance, how) for name, one in named}
    except (KeyError, TypeError, AttributeError):
        return None
    if how == "missing":
        answers.popitem()
    return {"model": "m", "answers": answers if isinstance(questions, dict) else list(answers.values()), "usage": {}}


def _typed_answer(path: str, question: Any, chance: random.Random, how: str) -> Any:
    kind = "predicate" if how == "another kind" and question["type"] == "choice" else question["type"]
    kind = "choice" if how == "another kind" and question["type"] != "choice" else kind
    number: Any = {"seven": 7, "not a number": math.nan, "half": None}.get(how, chance.random())
    if kind in ("predicate", "noul"):
        return {"type": kind, "name": None, "probability" if kind == "predicate" else "noul": number}
    options = question.get("choices") or question.get("levels") or question.get("criteria") or ["a", "b"]
    weights = [chance.random() + 0.01 for _ in options]
    shares = [weight / sum(weights) * (0.5 if how == "half" else 1.0) for weight in weights]
    shares[0] = shares[0] if how not in ("seven", "not a number") else number
    if path.endswith("/decisions"):
        values = [one.get("value", i) if isinstance(one, dict) else one for i, one in enumerate(options)]
        listed: Any = [{"value": value, "probability": p} for value, p in zip(values, shares, strict=True)]
        return {"type": kind, "name": None, "confidence": 0.5, "probabilities": listed}
    names = options if isinstance(options, dict) else range(len(options))
    return {"type": kind, "confidence": 0.5, "probabilities": dict(zip(map(str, names), shares, strict=True))}


def permitted(path: str, data: bytes) -> bool | None:
    """Whether a format allows a request, by the packages whose formats they are; None where that is for us to say."""
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode()
        body = json.loads(text, parse_constant=_no_constant)
        json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    if not isinstance(body, dict):
        return False
    if (deep := _depth(body)) > 150:
        return None if deep < 250 else False
    fields = {"/v1/decisions": {"input", "safety_identifier", "prompt_cache_key", "prompt_cache_options"}}
    if set(body) - {"model", "questions", "semtoken"} - fields.get(path, {"state", "assets"}):
        return False
    if not isinstance(body.get("model"), str | None) or not _is_reading(body.get("semtoken")):
        return False
    return _permitted_decisions(body) if path == "/v1/decisions" else _permitted_systemone(body)


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _depth(value: Any) -> int:
    """The depth to which a value of JSON is nested."""
    inside, depth = [value], 0
    while inside:
        depth += 1
        inside = [
            one
            for holder in inside
            if isinstance(holder, dict | list)
            for one in (holder.values() if isinstance(holder, dict) else holder)
        ]
    return depth


def _is_reading(given: Any) -> bool:
    if given is None:
        return True
    if not isinstance(given, dict) or set(given) - {"reading", "orders"}:
        return False
    orders = given.get("orders", 1)
    whole = type(orders) is int and 1 <= orders <= 255
    return given.get("reading", "labels") in ("labels", "words") and (orders in ("all", None) or whole)


def _permitted_decisions(body: Mapping[str, Any]) -> bool | None:
    from pydantic import ValidationError

    questions, state = body.get("questions"), body.get("input")
    if (
        not isinstance(questions, list)
        or not 1 <= len(questions) <= 400
        or not (isinstance(state, str | list) and state)
    ):
        return False if state != "" else None
    for question in questions:
        try:
            _drained(_sdk_question().validate_python(_without_nulls(question), strict=True))
        except ValidationError:
            return False
        if not _has_only_known_fields(question):
            return False
        options = question.get("choices") if question["type"] == "choice" else question.get("levels")
        most = 255 if question["type"] == "choice" else 10
        if question["type"] != "predicate" and (not isinstance(options, list) or not 2 <= len(options) <= most):
            return False
        values = [(type(one["value"]), one["value"]) for one in options or [] if "value" in one]
        if len(set(values)) < len(values):
            return False
    return True if isinstance(state, str) else None  # items of an input are read more widely than the package writes


def _has_only_known_fields(question: Mapping[str, Any]) -> bool:
    """Whether a question and its options have no fields but those of the package, which reads over further ones."""
    listed = {"predicate": None, "choice": "choices", "score": "levels"}[question["type"]]
    options = question.get(listed, []) if listed else []
    inside = all(set(one) <= {"value" if listed == "choices" else "label", "description"} for one in options)
    return inside and set(question) <= {"type", "instructions", "name", *([listed] if listed else [])}


@cache
def _sdk_question() -> Any:
    from openai.types.decision_create_params import Question
    from pydantic import TypeAdapter

    return TypeAdapter(Question)


def _without_nulls(value: Any) -> Any:
    """A question without the fields that are null, which we take for absent."""
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _drained(value: Any) -> None:
    """Check what pydantic checks only as it is read."""
    if isinstance(value, dict):
        for one in value.values():
            _drained(one)
    elif hasattr(value, "__next__") or isinstance(value, list):
        for one in value:
            _drained(one)


def _permitted_systemone(body: Mapping[str, Any]) -> bool | None:
    from transformers.decision import DecisionConfig
    from transformers.decision.template_utils import parse_questions

    questions, assets = body.get("questions"), body.get("assets", {})
    if not isinstance(body.get("state"), str | dict | list) or not isinstance(assets, dict):
        return False
    if not isinstance(questions, dict) or not 1 <= len(questions) <= 64:
        return False
    criteria = [one.get("criteria") for one in questions.values() if isinstance(one, dict)]
    most = {dict: len(ascii_uppercase), list: 10}
    if any(len(one) > most[type(one)] for one in criteria if isinstance(one, dict | list)):
        return None  # the letters of transformers' models and our levels end there
    try:
        parse_questions(questions, DecisionConfig())
    except (ValueError, TypeError):  # of a type that is a list
        return False
    return None if assets else True


@dataclass(frozen=True)
class Reply:
    """The reply that a client got."""

    status: int
    content: bytes
    unscored: str | None
    seconds: float


def judge(plan: Plan, number: int, reply: Reply) -> str | None:
    """The fault of a reply; None: there is none."""
    _, data = plan.request(number)
    way, how, allowed = WAYS[plan.way(number)], plan.how(number), permitted(*plan.request(number))
    try:
        found = json.loads(reply.content)
    except (ValueError, RecursionError):
        found = None
    if way.answers == "decisions":
        return _judge_passed(plan, number, reply, found)
    if not isinstance(found, dict):
        return "no JSON object"
    if reply.status != 200:
        return _judge_error(way, how, allowed, reply.status, found)
    if allowed is False:
        return "numbers for a request that its format does not allow"
    answers = _answers(found)
    if (fault := next(filter(None, map(_probability_fault, answers)), None)) is not None:
        return fault
    if way.answers == "model":
        return None
    body, item = json.loads(data.removeprefix(b"\xef\xbb\xbf")), plan.items(number)[0]
    listed = {one["token"]: math.exp(one["logprob"]) for one in item["top_logprobs"]}
    if how == "null":  # null is how every shape writes a number that is not known: an interval
        listed[item["token"]] = 0.0
        listed[item["token"]] = 1 - sum(listed.values())
    elif how != "well":
        return f"{how}: a number" if any(map(_numbers, answers)) else None
    return _judge_numbers(how, listed, body, found["answers"])


def _answers(found: Any) -> list[Any]:
    answers = found["answers"]
    return answers if isinstance(answers, list) else [*answers.values()]


def _said(found: Mapping[str, Any]) -> str:
    """The words of an error in the forms of both formats."""
    error, detail = found.get("error"), found.get("detail")
    if isinstance(error, dict):
        return str(error.get("message") or "")
    if isinstance(detail, list):
        return " ".join(str(one.get("msg") or "") for one in detail)
    return detail if isinstance(detail, str) else ""


def _judge_error(way: Way, how: str, allowed: bool | None, status: int, found: Mapping[str, Any]) -> str | None:
    said = _said(found)
    if len(said) < 10:
        return f"{status} without words"
    if status in (400, 404, 413, 422) and (allowed is not True or KNOWN.search(said)):
        return None
    if way.answers == "model" or how == "well":
        return f"{status} to a request that its format allows: {said[:200]}"
    expected = {"hangs": "504", **{one: one for one in ("400", "401", "429")}}.get(how, "502")
    if how == "deep error" and status == 400:
        return None
    return None if str(status) == expected else f"{how}: {status}, not {expected}: {said[:200]}"


def _judge_passed(plan: Plan, number: int, reply: Reply, found: Any) -> str | None:
    """Answers of an upstream pass as they are; right ones get a block."""
    path, data = plan.request(number)
    how = plan.how(number)
    if how in ("vanishes", "garbage", "hangs", "dies"):
        expected = 504 if how == "hangs" else 502
        if how == "dies" and TypedUpstream(plan, "decisions").reply(number, path, data) is None:
            expected = 400
        return None if reply.status == expected and _said(found) else f"{how}: {reply.status}"
    if how in STATUSES:
        passed = str(reply.status) == how and f"no to {number}." in _said(found)
        return None if passed else f"{how}: {reply.status}, {reply.content[:200]!r}"
    if how == "deep error":
        return None if reply.status == 400 and b"[[[" in reply.content else f"{how}: {reply.status}"
    sent = TypedUpstream(plan, "decisions").reply(number, path, data)
    if sent is None:
        return None if reply.status == 400 and b"That is no request." in reply.content else f"400: {reply.status}"
    if reply.status != 200:
        return f"{how}: {reply.status}, not what the upstream sent"
    if how != "well":
        unchanged = reply.content == sent
        return (
            None if unchanged and b'"semtoken"' not in reply.content else f"{how}: changed to {reply.content[:200]!r}"
        )
    blocks = [one.pop("semtoken", None) for one in _answers(found)]
    if found != json.loads(sent):
        return f"other answers than the upstream's: {reply.content[-300:]!r}, not {sent[-300:]!r}"
    if permitted(path, data) is None:
        return None  # the upstream answers what we may refuse: it passes
    return None if all(blocks) else f"no block, {reply.unscored}: {reply.content[:200]!r}"


def _numbers(answer: Any) -> list[float]:
    """The probabilities of an answer."""
    one = answer.get("probability", answer.get("noul"))
    if one is not None:
        return [one, 1 - one]
    given = answer.get("probabilities", [])
    return [entry["probability"] for entry in given] if isinstance(given, list) else [*given.values()]


def _probability_fault(answer: Any) -> str | None:
    numbers, block = _numbers(answer), answer.get("semtoken") or {}
    if not numbers:
        return None if answer["type"] == "refusal" and block.get("refusal") else "neither a number nor a refusal"
    if not all(0 <= p <= 1 for p in numbers) or not math.isclose(sum(numbers), 1, abs_tol=1e-6):
        return f"no probabilities: {numbers[:5]}"
    if not 0 <= block["option_mass"] <= 1 or not 0 <= answer.get("confidence", 0) <= 1:
        return f"a mass or confidence outside of [0, 1]: {answer}"
    bounds = block.get("bounds") or [[p, p] for p in numbers]
    for p, (low, high) in zip(numbers, bounds, strict=True):
        if not -ROUNDED <= low <= p + ROUNDED or not p - ROUNDED <= high <= 1 + ROUNDED:
            return f"{p} outside of its bounds {low}, {high}"
    return None


def _judge_numbers(how: str, listed: Mapping[str, float], body: Mapping[str, Any], answers: Any) -> str | None:
    """Whether probabilities read by labels are those of the first list, renormalized and averaged over orders.

    Where they are known as intervals, the list has to lie within these.
    """
    reading = body.get("semtoken") or {}
    if reading.get("reading", "labels") != "labels":
        return None
    questions = body["questions"]
    named = questions.items() if isinstance(questions, dict) else enumerate(questions)
    for name, question in named:
        expected = _shares(question, listed, reading.get("orders", 1))
        found, bounds = _numbers(answers[name]), answers[name]["semtoken"].get("bounds")
        if expected == [] and found:
            return f"question {name!r}: {found}, though nothing of it is listed"
        if not expected or (not found and how != "well"):
            continue
        within = bounds or [(p, p) for p in found]
        fits = all(low - ROUNDED <= p <= high + ROUNDED for p, (low, high) in zip(expected, within, strict=True))
        if not found or not fits or (how == "well" and not np.allclose(found, expected, rtol=0, atol=ROUNDED)):
            return f"question {name!r}: {found} within {bounds}, not {expected}"
    return None


def _shares(question: Mapping[str, Any], listed: Mapping[str, float], orders: Any) -> list[float] | None:
    """The probabilities that lists give to labels; [] where no label is listed, None where that is not so simple."""
    kind = question["type"]
    if kind in ("predicate", "noul"):
        masses = [listed.get("Yes", 0.0), listed.get("No", 0.0)]
        return [mass / sum(masses) for mass in masses] if any(masses) else []
    n = len(question.get("choices") or question.get("levels") or question.get("criteria") or ())
    if not 1 <= n <= len(ascii_uppercase):
        return None
    most = (n if n < 3 else 2) if kind == "score" else n
    count = most if orders in ("all", None) else min(orders, most)
    starts = [k * n // count for k in range(count)]
    shown = [[(i + start) % n for i in range(n)] for start in starts]
    if kind == "score":
        shown = [[*range(n)], [*range(n)][::-1]][:count]
    found = [[listed.get(ascii_uppercase[order.index(i)], 0.0) for i in range(n)] for order in shown]
    totals = [sum(row) for row in found]
    if not any(totals):
        return []
    if not all(totals):
        return None
    return [sum(row[i] / total for row, total in zip(found, totals, strict=True)) / count for i in range(n)]


async def ask(http: aiohttp.ClientSession, urls: Mapping[str, str], plan: Plan, number: int) -> Reply | str | None:
    """One request: the reply, or what went wrong with the connection; None if it broke off as it should."""
    path, data = plan.request(number)
    headers = {CASE: str(number), "content-type": "application/json"}
    start = time.monotonic()
    try:
        async with http.post(
            urls[plan.way(number)] + path, data=data, headers=headers, auto_decompress=False
        ) as answer:
            content = await answer.read()
            unscored = answer.headers.get("semtoken-unscored")
            return Reply(answer.status, content, unscored, time.monotonic() - start)
    except aiohttp.ClientPayloadError as error:  # what is not read here breaks off as visibly as the upstream's answer
        read = WAYS[plan.way(number)].answers != "decisions" or permitted(path, data)
        return None if plan.how(number) == "dies" and not read else f"{type(error).__name__}: {error}"
    except (TimeoutError, aiohttp.ClientError) as error:
        return f"{type(error).__name__}: {error}"


def started(plan: Plan, stack: ExitStack) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """All servers and proxies: each way's name, its address, the process that answers there."""
    serve, process = stack.enter_context(serve_process())
    yield "serve", serve, process
    for name, way in WAYS.items():
        if name != "serve":
            upstream = serve
            if way.answers != "model":
                upstream = stack.enter_context(listening(TypedUpstream(plan, way.answers).answer))
            options = ("--limits.read-seconds", str(READ_TIMEOUT if way.answers != "model" else 100), *way.options)
            yield name, *stack.enter_context(proxy_process(upstream, *options))


def attack(seed: int, requests: int, first: int = 0) -> Outcome:
    """Ask so many requests, and judge every reply."""
    outcome = Outcome("questions", f"odd typed questions by {len(WAYS)} ways: right numbers, or a refusal in words")
    plan, seen, checked = Plan(seed), Counter[str](), 0
    slowest, numbers = 0.0, range(first, first + requests)
    with ExitStack() as stack:
        ways = list(started(plan, stack))
        urls = {name: url for name, url, _ in ways}
        watched = [WatchedServer(name, process, AT_ONCE + 8) for name, _, process in ways]
        found = asyncio.run(asked_together(lambda http, n: ask(http, urls, plan, n), numbers, AT_ONCE, SECONDS))
        for number, reply in sorted(found.items()):
            if isinstance(reply, Reply):
                fault = judge(plan, number, reply)
                seen[f"{reply.status}"] += 1
                slowest = max(slowest, reply.seconds)
                checked += reply.status == 200 and WAYS[plan.way(number)].answers in ASKED_AS_TEXTS
            else:
                fault = reply
            outcome.count(fault, f"request {number} of --seed {seed} by {plan.way(number)}, {plan.how(number)}")
        for server in reversed(watched):  # those in front of others first
            outcome.failures += server.stopped()
    told = ", ".join(f"{count:,} with {status}" for status, count in sorted(seen.items()))
    outcome.notes.append(f"{told}; {checked:,} with numbers from our lists; the slowest took {slowest:.1f} s")
    return outcome
