"""Made-up answers of a model that knows which calls may run, to see the gate open. Nothing in them was measured.

    python examples/gate/made_up.py FOLDER

writes FOLDER/answers.jsonl, labeled answers to "may it run?" as `semtoken decide` writes them, each right as often
as its probability says, and FOLDER/replies.jsonl, three calls as a server returns them.
"""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path
from typing import Any

from semtoken.decisions import Answer, ReadingOptions
from semtoken.decisions.records import answer_values

sys.path.insert(0, str(Path(__file__).parents[1]))
from gate_a_tool_call import MAY_RUN

CALL = (
    ("{", 0.99),
    ('"name": "', 0.99),
    ("delete_file", 0.0),
    ('", "arguments": {"path": "', 0.99),
    ("PATH", 0.97),
    ('"}}', 0.99),
)
"""The tokens of a call with their probabilities; that of the name differs from call to call."""


def labeled(number: int, seed: int = 0) -> list[dict[str, Any]]:
    """Lines with a state, a label and an answer."""
    chance, found = random.Random(seed), []  # noqa: S311 - nothing is secret here
    for n in range(number):
        probability = chance.betavariate(1.2, 0.4)
        answer = Answer(MAY_RUN, (probability, 1 - probability))
        answers = {"may_run": answer_values(answer, ReadingOptions())}
        labels = {"may_run": chance.random() < probability}
        found.append({"state": f"made-up call {n}", "labels": labels, "answers": answers})
    return found


def reply(path: str, name: float, may_run: float) -> dict[str, Any]:
    """A request, the reply with the call, and that of /v1/decisions."""
    tokens = [(path if text == "PATH" else text, name if text == "delete_file" else p) for text, p in CALL]
    listed = [{"token": text, "logprob": math.log(p), "bytes": list(text.encode())} for text, p in tokens]
    content = [{**one, "top_logprobs": [one]} for one in listed]
    message = {"role": "assistant", "content": "".join(text for text, _ in tokens)}
    choice = {"index": 0, "message": message, "logprobs": {"content": content}, "finish_reason": "stop"}
    answered = {"type": "predicate", "name": "may_run", "probability": may_run}
    return {
        "request": f"Delete {path}.",
        "reply": {"object": "chat.completion", "model": "made-up", "choices": [choice]},
        "decision": {"model": "made-up", "answers": [answered]},
    }


def main() -> None:
    """Write both files."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    replies = [reply("notes.txt", 0.98, 0.97), reply("plan.txt", 0.98, 0.55), reply("draft.md", 0.62, 0.97)]
    for name, lines in (("answers", labeled(500)), ("replies", replies)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


if __name__ == "__main__":
    main()
