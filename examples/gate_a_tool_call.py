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

import semtoken as st
from semtoken.decisions import Answer, Predicate
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.tool_calls import LEAST, ProposedCall, gate, proposed_calls
from semtoken.decisions.wire import openai

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


@dataclass(frozen=True)
class Proposed:
    """What a model answered to a request: the calls in it, and for each whether it may run by the predicate."""

    request: str
    calls: list[ProposedCall]
    allowed: list[Answer | None]


def messages(request: str) -> list[dict[str, str]]:
    """The conversation in which a call is written, after worked examples."""
    found = [{"role": "system", "content": TOOLS}]
    for asked, written in SHOWN:
        found += [{"role": "user", "content": asked}, {"role": "assistant", "content": written}]
    return [*found, {"role": "user", "content": request}]


def written_by(name: str) -> Iterator[Proposed]:
    """Calls that a local model writes, and what it says of each."""
    model = st.ScoredModel.from_pretrained(name)
    for request in REQUESTS:
        [answer] = model.generate([messages(request)], max_new_tokens=32)
        calls = proposed_calls(answer)
        asked = [call.state([{"role": "user", "content": request}]) for call in calls]
        yield Proposed(request, calls, [model.decide(state, [MAY_RUN])[0] for state in asked])


def recorded(path: Path) -> Iterator[Proposed]:
    """Saved replies: lines with the request, the chat completion with log-probabilities, and that of /v1/decisions.

    Where the completion has several calls, `decision` is a list with the reply about each of them.
    """
    for line in path.read_text("utf-8").splitlines():
        saved = json.loads(line)
        decisions = saved["decision"] if isinstance(saved["decision"], list) else [saved["decision"]]
        read = [openai.read_answer(MAY_RUN, answer) for decision in decisions for answer in decision["answers"]]
        allowed = [None if found is None else Answer(MAY_RUN, found) for found in read]
        yield Proposed(saved["request"], proposed_calls(saved["reply"]), allowed)


def show(proposed: Proposed, calibrator: DecisionCalibrator | None, least: float) -> None:
    """Print every call with its doubts and its verdict."""
    print(proposed.request)
    if not proposed.calls:
        print("  no call")
    verdicts = gate(proposed.calls, proposed.allowed, calibrator, least=least)
    answers = proposed.allowed if len(proposed.allowed) == len(verdicts) else [None] * len(verdicts)
    for call, answer, verdict in zip(proposed.calls, answers, verdicts, strict=True):
        print(f"  {call.name}({call.written})")
        for part in call.parts:
            print(f"  {part.path:24} {shown(part.confidence)}  {part.text}")
        print(f"  name and arguments       {shown(call.confidence and call.confidence.confidence)}")
        print(f"  may it run?              {shown(answer and answer.probability)}")
        print(f"  -> {verdict}")


def shown(number: float | None) -> str:
    """A probability as text."""
    return "unknown" if number is None else f"{number:.3f}"


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
        show(proposed, calibrator, given.least)


if __name__ == "__main__":
    main()
