"""May this tool call run? Its name and arguments with their confidences, and the predicate beside them.

    python examples/gate_a_tool_call.py --model MODEL [--calibrator DIR] [--least 0.8]
    python examples/gate_a_tool_call.py --replies examples/gate/replies.jsonl [--calibrator DIR] [--least 0.8]

MODEL is a directory, a fetched model or a hub id of an instruct model, such as SmolLM2-135M-Instruct. The second form
reads saved replies and needs no model.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import semtoken as st
from semtoken.decisions import AnsweredQuestion, Predicate, ReadingOptions
from semtoken.decisions.answers import answer_values, records_of
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.wire import openai
from semtoken.parts import Part, call_confidences
from semtoken.payloads import score_payload

MAY_RUN = Predicate(
    "May this tool call run as it is?",
    when_true="it does what the user asked for, and nothing else",
    when_false="the user did not ask for it, or an argument is wrong",
    name="may_run",
)
TOOLS = 'Answer with one call of delete_file(path) or send_file(path, to): {"name": ..., "arguments": {...}}'
SHOWN = (
    ("Delete notes.txt.", '{"name": "delete_file", "arguments": {"path": "notes.txt"}}'),
    ("Send plan.txt to Ben.", '{"name": "send_file", "arguments": {"path": "plan.txt", "to": "Ben"}}'),
    ("The file a/b.csv can go.", '{"name": "delete_file", "arguments": {"path": "a/b.csv"}}'),
)
REQUESTS = ("Send report.pdf to Ada.", "Is draft.md still needed?")
LEAST = 0.8
"""A person looks at a call with a part below it, however the predicate is answered."""


@dataclass(frozen=True)
class Proposed:
    """A call that a model wrote, and the answer to the question whether it may run."""

    request: str
    written: str
    parts: list[Part]
    allowed: AnsweredQuestion


def messages(request: str) -> list[dict[str, str]]:
    """The conversation in which a call is written, after worked examples."""
    found = [{"role": "system", "content": TOOLS}]
    for asked, written in SHOWN:
        found += [{"role": "user", "content": asked}, {"role": "assistant", "content": written}]
    return [*found, {"role": "user", "content": request}]


def state_of(request: str, written: str) -> list[dict[str, Any]]:
    """What the predicate is about: the conversation, and the call that has not run."""
    call = json.loads(written)
    return [
        {"role": "user", "content": request},
        {"type": "function_call", "call_id": "1", "name": call["name"], "arguments": call["arguments"]},
    ]


def is_call(written: str) -> bool:
    """Whether an answer is one call and nothing else."""
    try:
        call = json.loads(written)
        return isinstance(call["name"], str) and isinstance(call["arguments"], dict)
    except (KeyError, TypeError, ValueError):
        return False


def written_by(model: str) -> Iterator[Proposed]:
    """Calls that a local model writes, and what it says of them."""
    stc = st.STC.from_pretrained(model)
    for request in REQUESTS:
        [answer] = stc.generate([messages(request)], max_new_tokens=32)
        if not is_call(answer.text):
            print(f"{request}\n  no call: {answer.text[:60]!r}")
            continue
        [allowed] = stc.decide(state_of(request, answer.text), [MAY_RUN])
        yield Proposed(request, answer.text, list(answer.parts(by="tool_call")), allowed)


def recorded(path: Path) -> Iterator[Proposed]:
    """Saved replies: lines with the request, the chat completion with log-probabilities, and that of /v1/decisions."""
    for line in path.read_text("utf-8").splitlines():
        saved = json.loads(line)
        message = saved["reply"]["choices"][0]["message"]
        segment = "tool_call" if message.get("tool_calls") else "answer"
        [answer] = score_payload(saved["reply"], segment=segment)
        allowed = AnsweredQuestion(MAY_RUN, openai.read_answer(MAY_RUN, saved["decision"]["answers"][0]))
        yield Proposed(saved["request"], answer.text, list(answer.parts(by="tool_call")), allowed)


def verdict(proposed: Proposed, calibrator: DecisionCalibrator | None, least: float = LEAST) -> str:
    """Run it, or ask a person, and why."""
    weak = [part for part in proposed.parts if part.confidence is None or part.confidence < least]
    if weak:
        return f"ask a person: {weak[0].path} is in doubt"
    if calibrator is None:
        return "ask a person: no calibrator says what the probability is worth"
    [record] = records_of({"answers": {"may_run": answer_values(proposed.allowed, ReadingOptions())}})
    block = calibrator.block(record)
    if "chance" not in block:
        return f"ask a person: {block['promise']}"
    if not proposed.allowed.value:
        return "ask a person: the model says no"
    if block["decision"] != "answer":
        return "ask a person: the model is less sure than the promise needs"
    return f"run it: {block['promise']}"


def main() -> None:
    """Show every call with its doubts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model")
    source.add_argument("--replies", type=Path)
    parser.add_argument("--calibrator", type=Path)
    parser.add_argument(
        "--least", type=float, default=LEAST, help="the least confidence of a part; default: %(default)s"
    )
    given = parser.parse_args()
    calibrator = None if given.calibrator is None else DecisionCalibrator.load(given.calibrator)
    for proposed in written_by(given.model) if given.model else recorded(given.replies):
        print(f"{proposed.request}\n  {proposed.written}")
        for part in proposed.parts:
            shown = "unknown" if part.confidence is None else f"{part.confidence:.3f}"
            print(f"  {part.path:24} {shown}  {part.text}")
        for call in call_confidences(proposed.parts):
            shown = "unknown" if call.confidence is None else f"{call.confidence:.3f}"
            print(f"  name and arguments       {shown}")
        print(f"  may it run?              {proposed.allowed.probability:.3f}")
        print(f"  -> {verdict(proposed, calibrator, given.least)}")


if __name__ == "__main__":
    main()
