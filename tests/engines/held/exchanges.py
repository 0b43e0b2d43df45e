"""An exchange with an engine: what was asked, what came, and the model's own numbers beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from semtoken.errors import SemtokenError
from semtoken.replies import Reply, read_reply

DATA = Path(__file__).parents[2] / "replies" / "engines"
SUMS = DATA.with_name("engine_sums.json")
"""The sum of all log-probabilities that were read from each reply when it was recorded."""


@dataclass
class Choice:
    """One answer of a reply."""

    ids: list[int] | None
    """Its tokens; None where the reply does not tell all of them."""
    own: dict[str, list[float]]
    """The model's own log-probabilities of them, `raw` and `processed`."""
    furthest: dict[str, float]
    """The largest difference between the numbers that semtoken reads and the model's own, for each kind."""


@dataclass
class Exchange:
    """A request and its reply."""

    engine: str
    version: str
    date: str
    weights: str
    name: str
    route: str
    request: dict[str, Any]
    status: int
    reply: Any
    """JSON, or the text of a stream."""
    prompt: list[int]
    choices: list[Choice]
    note: str = ""

    def save(self) -> None:
        """Write it where the default tests find it."""
        DATA.mkdir(exist_ok=True)
        text = json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))
        (DATA / f"{self.engine}-{self.name}.json").write_text(text + "\n", encoding="utf-8")


def save_sums(engine: str) -> None:
    """Write the sums of an engine's replies beside those of the others."""
    sums: dict[str, float] = json.loads(SUMS.read_text(encoding="utf-8"))
    found = {path.stem: load(path) for path in recorded()}
    mine = {name: one for name, one in found.items() if one.engine == engine and any(c.ids for c in one.choices)}
    sums = {name: total for name, total in sums.items() if name in found and found[name].engine != engine}
    sums |= {name: sum_of(one.reply) for name, one in mine.items()}
    SUMS.write_text(json.dumps(dict(sorted(sums.items())), indent=0) + "\n", encoding="utf-8")


def sum_of(reply: Any) -> float:
    """Sum of the chosen tokens' numbers and of all that are listed beside them."""
    parsed_reply, _ = reading(reply)
    assert parsed_reply is not None
    steps = [step for choice in parsed_reply.choices for part in choice.segments for step in part.steps]
    return math.fsum(value for step in steps for value in step.log_probs if math.isfinite(value))


def load(path: Path) -> Exchange:
    """A saved exchange."""
    values = json.loads(path.read_text(encoding="utf-8"))
    return Exchange(**values | {"choices": [Choice(**choice) for choice in values["choices"]]})


def recorded() -> list[Path]:
    """All saved exchanges."""
    return sorted(DATA.glob("*.json"))


def pieces(reply: Any) -> Iterator[dict[str, Any]]:
    """The choices of a reply, or of each chunk of a stream."""
    bodies = [reply]
    if isinstance(reply, str):
        lines = (line.removeprefix("data:").strip() for line in reply.splitlines() if line.startswith("data:"))
        bodies = [json.loads(line) for line in lines if line != "[DONE]"]
    for body in bodies:
        if "response_metadata" in body:  # a message of LangChain
            yield body["response_metadata"]
        yield from body.get("choices", [])


def tokens_in(reply: Any) -> dict[int, list[int]]:
    """The ids of each choice's tokens, as the reply tells them: in a list of their own, or in each item."""
    found: dict[int, list[int]] = {}
    for piece in pieces(reply):
        ids = found.setdefault(piece.get("index", 0), [])
        if piece.get("token_ids") is not None:
            ids += piece["token_ids"]
        else:
            ids += [item["id"] for item in (piece.get("logprobs") or {}).get("content") or [] if "id" in item]
    return found


def texts_in(reply: Any) -> dict[int, list[str]]:
    """The texts of each choice's tokens, for engines that give no ids."""
    found: dict[int, list[str]] = {}
    for piece in pieces(reply):
        lists = piece.get("logprobs") or {}
        texts = [item["token"] for item in lists.get("content") or []] or lists.get("tokens") or []
        found.setdefault(piece.get("index", 0), []).extend(texts)
    return found


def spelled_in(reply: Any) -> dict[int, str]:
    """The text that the items of each choice spell; nothing where tokens come in a list of their own."""
    found: dict[int, str] = {}
    for piece in pieces(reply):
        items = [] if piece.get("token_ids") is not None else (piece.get("logprobs") or {}).get("content") or []
        found[piece.get("index", 0)] = found.get(piece.get("index", 0), "") + "".join(item["token"] for item in items)
    return found


def text_of(reply: Any, index: int) -> str:
    """The text of a choice."""
    if isinstance(reply, dict) and "response_metadata" in reply:
        return str(reply["content"])
    parts = (
        choice.get("message") or choice.get("delta") or {}
        for choice in pieces(reply)
        if choice.get("index", 0) == index
    )
    return "".join(part.get("content") or "" for part in parts)


def number_of(item: dict[str, Any]) -> float:
    """The log-probability of an item; of llama-server's `prob` the logarithm."""
    return float(item["logprob"]) if "logprob" in item else math.log(item["prob"] or 1e-45)


def listed_in(reply: Any) -> dict[int, list[float]]:
    """The log-probabilities of each choice in the order of its list."""
    found: dict[int, list[float]] = {}
    for piece in pieces(reply):
        lists = piece.get("logprobs") or {}
        items = [number_of(item) for item in lists.get("content") or []] or lists.get("token_logprobs") or []
        found.setdefault(piece.get("index", 0), []).extend(items)
    return found


def reading(reply: Any) -> tuple[Reply | None, str]:
    """The answers that semtoken reads, and why it gives no number; the reason is empty where it gives one."""
    try:
        parsed_reply = read_reply(reply)
    except SemtokenError as error:
        return None, str(error)
    problems = [choice.broken for choice in parsed_reply.choices]
    problems += [segment.problem for choice in parsed_reply.choices for segment in choice.segments]
    return parsed_reply, next((problem for problem in problems if problem), "")


def numbers_read(parsed_reply: Reply, index: int) -> list[float]:
    """The log-probabilities that semtoken reads of a choice."""
    choice = parsed_reply.choices[index]
    return [step.chosen.log_prob for segment in choice.segments for step in segment.steps]


def differences(parsed_reply: Reply, index: int, listed: list[float], own: dict[str, list[float]]) -> dict[str, float]:
    """The largest difference of each kind; what semtoken reads is looked up in the list, where it is in one piece."""
    read = numbers_read(parsed_reply, index)
    ends = range(len(read), len(listed) + 1)
    places = [end - len(read) for end in ends if np.allclose(listed[end - len(read) : end], read, rtol=0, atol=1e-9)]
    if not read or not places:
        return {}
    at = places[0]
    return {
        kind: max(abs(a - b) for a, b in zip(read, numbers[at : at + len(read)], strict=True))
        for kind, numbers in own.items()
    }
