"""Tool calls that a model writes to requests whose right call is known, with four numbers of each; see CALLS.md.

python research/experiments/decisions/calls.py write MODEL NAME calls.csv hard|easy [most]
python research/experiments/decisions/calls.py figures calls.csv
"""

from __future__ import annotations

import csv
import json
import math
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import semtoken as st
from semtoken.core.parts import call_confidences
from semtoken.decisions import Predicate
from semtoken.decisions.deciding import DecisionRequest, decide
from semtoken.decisions.questions import as_text
from semtoken.decisions.tool_calls import proposed_calls
from semtoken.models.base import Decoding

EXAMPLES = Path(__file__).parents[3] / "examples"
sys.path += [str(EXAMPLES), str(EXAMPLES / "gate")]
import gate_a_tool_call  # noqa: E402
import made_up_calls  # noqa: E402

NUMBER, SEED, BATCH = 200, 0, 40
TOOLS = (
    "Answer with one call, as JSON and nothing else. The tools are book_room(people, day, start, end) with whole hours of "
    "24, set_reminder(time), transfer(amount, to), send_file(path, to), delete_file(path)."
)
SHOWN = (
    ("Delete notes.txt.", {"name": "delete_file", "arguments": {"path": "notes.txt"}}),
    (
        "Book a room for 4 people on the 3rd, one hour from 2 pm.",
        {"name": "book_room", "arguments": {"people": 4, "day": 3, "start": 14, "end": 15}},
    ),
    ("Transfer 20 euros to Ben.", {"name": "transfer", "arguments": {"amount": 20, "to": "Ben"}}),
)
MAY_RUN = Predicate(
    "May this tool call run as it is?",
    when_true="it does what the user asked for, and nothing else",
    when_false="the user did not ask for it, or an argument is wrong",
    name="may_run",
)
NAMES = ("report", "plan", "draft", "budget", "letter", "invoice", "minutes", "offer")
PEOPLE = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Hugo", "Ines")
ENDINGS = ("pdf", "md", "txt", "csv")
FIELDS = ("model", "set", "number", "right", "all_tokens", "call", "weakest", "predicate", "request", "written")
SCORES = ("all_tokens", "call", "weakest", "predicate")


class FewShotSTC(st.ScoredModel):
    """A model that reads the worked examples, which all prompts begin with, once."""

    def decoding(self, *given: Any) -> Decoding:
        """The decoding of `generate`, with its prompts' shared beginning read once."""
        return replace(super().decoding(*given), share_prefix=True)


def requests() -> list[tuple[str, dict[str, Any]]]:
    """The requests with their right calls."""
    chance = random.Random(SEED)  # noqa: S311 - nothing is secret here
    found: dict[str, dict[str, Any]] = {}
    while len(found) < NUMBER:
        kind, to = len(found) % 5, chance.choice(PEOPLE)
        if kind == 0:
            people, day, start, hours = (chance.randint(*ends) for ends in ((2, 20), (4, 20), (1, 6), (2, 4)))
            request = f"Book a room for {people} people on the {day}th, {hours} hours from {start} pm."
            arguments: dict[str, Any] = {"people": people, "day": day, "start": start + 12, "end": start + 12 + hours}
            name = "book_room"
        elif kind == 1:
            hour, minute, before = (
                chance.randint(8, 18),
                chance.choice((0, 5, 10, 15, 20, 30)),
                chance.choice((10, 20, 40)),
            )
            at = 60 * hour + minute - before
            request = f"Remind me {before} minutes before the call at {hour}:{minute:02}."
            name, arguments = "set_reminder", {"time": f"{at // 60}:{at % 60:02}"}
        elif kind == 2:
            amount = 2 * chance.randint(15, 480)
            request = f"Transfer half of my {amount} euros to {to}."
            name, arguments = "transfer", {"amount": amount // 2, "to": to}
        else:
            stem, number = chance.choice(NAMES), chance.randint(2, 99)
            one, other = (f"{stem}{number}.{ending}" for ending in chance.sample(ENDINGS, 2))
            if kind == 3:
                request = f"{to} needs {stem}{number}, not as {other.split('.')[1]} but as {one.split('.')[1]}."
                name, arguments = "send_file", {"path": one, "to": to}
            else:
                request = f"There are {one} and {other}. Keep only {other}."
                name, arguments = "delete_file", {"path": one}
        found[request] = {"name": name, "arguments": arguments}
    return list(found.items())


def easy() -> list[tuple[str, dict[str, Any]]]:
    """The requests of the second set with their right calls: those of the example."""
    items = made_up_calls.made_up(NUMBER, NUMBER + 1, SEED)
    return [(item["state"][0]["content"], item["state"][1]) for item in items]  # type: ignore[index]


def messages(request: str) -> list[dict[str, str]]:
    """The conversation in which a call is written."""
    found = [{"role": "system", "content": TOOLS}]
    for asked, call in SHOWN:
        found += [{"role": "user", "content": asked}, {"role": "assistant", "content": json.dumps(call)}]
    return [*found, {"role": "user", "content": request}]


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same; numbers by their value, times without leading noughts."""
    try:
        return float(one) == float(other)
    except (TypeError, ValueError):
        return str(one).strip().lstrip("0") == str(other).strip().lstrip("0")


def is_right(call: Any, expected: dict[str, Any]) -> bool:
    """Whether a call is the expected one."""
    arguments = call.get("arguments") if isinstance(call, dict) else None
    wanted = expected["arguments"]
    if call.get("name") != expected["name"] or not isinstance(arguments, dict) or set(arguments) != set(wanted):
        return False
    return all(same(arguments[key], value) for key, value in wanted.items())


def write(model: str, name: str, target: Path, kind: str, most: int) -> None:
    """Have a model write the calls that the file does not hold yet."""
    kept = list(csv.DictReader(target.open(encoding="utf-8"))) if target.exists() else []
    done = {row["number"] for row in kept if (row["model"], row["set"]) == (name, kind)}
    asked, talk = (requests(), messages) if kind == "hard" else (easy(), gate_a_tool_call.messages)
    missing = [number for number in range(min(most, len(asked))) if str(number) not in done]
    stc = FewShotSTC.from_pretrained(model)
    with target.open("a", newline="", encoding="utf-8") as file:
        rows = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if target.stat().st_size == 0:
            rows.writeheader()
        for first in range(0, len(missing), BATCH):
            numbers = missing[first : first + BATCH]
            answers = stc.generate([talk(asked[n][0]) for n in numbers], max_new_tokens=64)
            found = scores(stc, [(*asked[n], answer) for n, answer in zip(numbers, answers, strict=True)])
            for n, answer, own in zip(numbers, answers, found, strict=True):
                row = {"model": name, "set": kind, "number": n, "request": asked[n][0], "written": answer.text}
                rows.writerow(row | own)
            file.flush()


def scores(stc: st.ScoredModel, written: list[tuple[str, dict[str, Any], Any]]) -> list[dict[str, Any]]:
    """Whether calls are right, and their numbers, from requests, right calls and answers; none for what is no call."""
    calls = [parsed(answer) for _, _, answer in written]
    inquiries = [
        DecisionRequest(as_text(proposed_calls(answer)[0].state([{"role": "user", "content": request}])), [MAY_RUN])
        for (request, _, answer), call in zip(written, calls, strict=True)
        if call is not None
    ]
    allowed = iter(decide(stc.backend, inquiries) if inquiries else ())
    found: list[dict[str, Any]] = []
    for (_, expected, answer), call in zip(written, calls, strict=True):
        if call is None:
            found.append({"right": ""})
            continue
        numbers = {
            "all_tokens": math.exp(sum(token.log_probability for token in answer.tokens)),
            "call": call.confidence,
            "weakest": call.weakest.confidence,
            "predicate": next(allowed).answers[0].probability,
        }
        right = int(is_right(json.loads(answer.text), expected))
        found.append({"right": right} | {key: f"{value:.9g}" for key, value in numbers.items()})
    return found


def is_call(written: str) -> bool:
    """Whether an answer is one call and nothing else."""
    try:
        call = json.loads(written)
        return isinstance(call["name"], str) and isinstance(call["arguments"], dict)
    except (KeyError, TypeError, ValueError):
        return False


def parsed(answer: Any) -> Any:
    """The confidence of an answer that is one call and nothing else; None for any other."""
    found = call_confidences(answer.parts(by="tool_call")) if is_call(answer.text) else []
    return found[0] if len(found) == 1 and found[0].confidence is not None else None


def figures(source: Path) -> None:
    """The table of CALLS.md."""
    rows = list(csv.DictReader(source.open(encoding="utf-8")))
    for model, kind in dict.fromkeys((row["model"], row["set"]) for row in rows):
        own = [row for row in rows if (row["model"], row["set"]) == (model, kind)]
        calls = [row for row in own if row["right"] != ""]
        right = np.array([int(row["right"]) for row in calls])
        print(f"{model}, {kind}: {right.sum()} of {len(calls)} calls are right; {len(own) - len(calls)} are no calls")
        if right.min() == right.max():
            continue
        values = {score: np.array([float(row[score]) for row in calls]) for score in SCORES}
        draws = np.random.default_rng(SEED).integers(0, len(calls), (10_000, len(calls)))
        draws = draws[(right[draws].mean(axis=1) > 0) & (right[draws].mean(axis=1) < 1)]
        counts = np.array([np.bincount(draw, minlength=len(calls)) for draw in draws])
        areas = {score: area(right, value, counts) for score, value in values.items()}
        for score in SCORES:
            low, high = np.quantile(areas[score], [0.025, 0.975])
            down, up = np.quantile(areas[score] - areas["all_tokens"], [0.025, 0.975])
            own_area, product = (
                area(right, values[name], np.ones((1, len(calls))))[0] for name in (score, "all_tokens")
            )
            gain = own_area - product
            print(f"  {score:10} {own_area:.3f} ({low:.3f} to {high:.3f}), {gain:+.3f} ({down:+.3f} to {up:+.3f})")


def area(right: np.ndarray, score: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """AUROC of a score where each row of `counts` says how often each call was drawn; ties count half."""
    good, bad = right == 1, right == 0
    above = np.subtract.outer(score[good], score[bad])
    wins = ((counts[:, good] @ ((np.sign(above) + 1) / 2)) * counts[:, bad]).sum(axis=1)
    return wins / (counts[:, good].sum(axis=1) * counts[:, bad].sum(axis=1))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        most = int(sys.argv[6]) if len(sys.argv) > 6 else NUMBER
        write(sys.argv[2], sys.argv[3], Path(sys.argv[4]), sys.argv[5], most)
    else:
        figures(Path(sys.argv[2]))
