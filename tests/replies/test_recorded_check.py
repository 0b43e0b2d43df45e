"""A check of odd replies: all tables, pages and remarks that are made of it, word by word."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from semtoken.errors import InvalidInputError
from semtoken.replies.checking import rank_replies
from semtoken.replies.checking.tables import (
    field_table,
    markdown,
    markdown_of_fields,
    nested_fields,
    page_rows,
    rows_of,
)
from tests.replies.made import chat_chunk, chat_reply, events, item, lines, listed

SCHEMA = {
    "properties": {
        "total": {"type": "integer"},
        "unit": {"enum": ["kg", "lb"]},
        "paid": {"type": ["boolean", "null"]},
        "lines": {"type": "array", "items": {"properties": {"price": {"type": "number"}}}},
        "due": {"type": "string"},
    }
}
Words = list[tuple[str, float]]
"""Tokens with their probabilities."""


def said(words: Words, *rivals: tuple[str, float], at: int = 1, **choice: Any) -> dict[str, Any]:
    """A reply of these tokens; the one at a place has rivals of some probabilities, which need not be listed."""
    others = [(text, math.log(share)) for text, share in rivals]
    items = [listed(text, math.log(p), *(others if k == at else [])) for k, (text, p) in enumerate(words)]
    return chat_reply("".join(text for text, _ in words), items, **choice)


LONG = "antidisestablishmentarianism" * 3
REPLIES: dict[str, Any] = {
    "sure": said([("Lima", 0.99)]),
    "torn": said([("It is ", 0.99), ("Ankara", 0.4), (".", 0.99)], ("Ist", 0.3), ("Iz", 0.2), ("Van", 0.05)),
    "rare": said([("It is ", 0.99), ("Rome", 0.6), (".", 0.99)], ("Paris", 0.031), ("Oslo", 0.029), (" ", 0.2)),
    "long": said([("It is ", 0.99), (LONG, 0.5), (".", 0.99)], (LONG[::-1], 0.3)),
    "cut": said([("Once upon", 0.7)], finish_reason="length"),
    "length": said([(f"w{k} ", 0.9) for k in range(9)]),
    "comma": said([("red", 0.95), (", ", 0.3), ("blue", 0.95)]),
    "blank": said([(" ", 0.5)]),
    "markup": said([("`a|b` *<b>*", 0.9), ("_[x]_ #1\\", 0.8)]),
    "fields": said(
        [
            *(('{"total": ', 0.99), ("12.5", 0.4), (', "unit": "', 0.9), ("g", 0.86), ('", "paid": ', 0.9)),
            *(("null", 0.8), (', "lines": [{"price": ', 0.9), ("3", 0.84), ('}, {"price": "', 0.9), ("x", 0.7)),
            ('"}]}', 0.9),
        ],
        *(("13", 0.3), ("14", 0.2), ("15", 0.1)),
    ),
    "ends": said([('{"total": ', 0.99), ("5", 0.9), ("}", 0.3)], (".", 0.3), (" kg", 0.2), ("0", 0.1), at=2),
    "half": said([('{"total": ', 0.99), ("7", 0.9), (', "un', 0.9)], finish_reason="length"),
    "two": {
        "choices": [
            said([(text, p)])["choices"][0] | {"index": k} for k, (text, p) in enumerate([("a", 0.9), ("b", 0.2)])
        ]
    },
}
OTHER = "It is said that the capital of Peru"
CAPITAL = [(word, 0.9) for word in (OTHER, " is", " Lima", ", which lies", " at the coast", " of the Pacific", ".")]
BROKEN = {
    "silent": chat_reply("Lima", []),
    "failed": {"error": {"message": "too long"}},
    "alien": {"no": "reply"},
    "another": {"nor": "this", "one": 1},
    "list": [1, 2],
    "embedding": {"data": [{"embedding": [0.1]}]},
    "moderation": {"results": [{"category_scores": {}}]},
    "batch": {"output_file_id": "f"},
    "declined": {"promptFeedback": {}},
    "whisper": {"segments": [{"avg_logprob": -0.2}]},
    "other": {
        "choices": [said(CAPITAL)["choices"][0] | {"message": {"content": f"{OTHER} is Cuzco, in the mountains"}}]
    },
}


ONE, ANOTHER = REPLIES["sure"], REPLIES["torn"]
FIRST, SECOND = (
    [one | {"id": name} for one in (chat_chunk(item(name)), chat_chunk(finish_reason="stop"))] for name in "ab"
)
FILES = {
    "lines.jsonl": lines(*FIRST, ONE, *SECOND, {"id": "7", "response": ANOTHER}, *FIRST[:1]) + '{"broken\n',
    "stream.jsonl": lines(*FIRST),
    "array.json": json.dumps([ONE, {"id": "7", "reply": ANOTHER}, {"no": 1}]) + "\n",
    "cut.json": json.dumps([ONE, ANOTHER])[:-20],
    "chunks.json": json.dumps(FIRST),
    "behind.json": "\n".join(json.dumps(one, indent=1) for one in (ONE, ANOTHER)),
    "events.txt": events(*FIRST, done=True) + events(*SECOND, done=True),
    "event.txt": events(*FIRST, done=True),
    "packed.json": "PK\x03\x04",
    "named.json": json.dumps({"x": ONE, "y": ANOTHER}),
    "saved.json": json.dumps({"runs": [{"id": "7", "reply": ONE}, {"id": "8", "reply": ANOTHER}]}),
}
"""Files of several replies, in all the ways that they are kept."""


def findings() -> Iterator[tuple[str, Any]]:
    """What a check of the folders `good` and `bad` says, by the names of its forms."""
    found = rank_replies(["good", "bad"])
    yield from (("rows", rows_of(found)[: len(found) + 1]), ("page", map(of_page, page_rows(found)[: len(found) + 1])))
    yield from (("markdown", markdown(found, found.answers[:5])), ("not scored", found.not_scored))
    yield from (("remarks", found.remarks), ("messages", [one.messages for one in found]))
    checked = rank_replies(
        [f"good/{name}.json" for name in ("fields", "half", "cut", "ends")], schema=SCHEMA, temperature=0.5
    )
    rows = field_table(checked)
    yield from (("fields", rows), ("page of fields", [of_page(one)["parts"] for one in page_rows(checked)]))
    yield from (("nested", nested_fields(checked)), ("markdown of fields", markdown_of_fields(rows, 4)))
    with pytest.raises(InvalidInputError) as nothing:
        rank_replies(["bad"])
    yield "nothing", nothing.value
    several = rank_replies(["files"])
    yield "files", sorted(f"{one.where} {one.id} {one.text}" for one in several)
    yield "files refused", [f"{one.where} {one.id} {one.reason}" for one in several.refused]


def of_page(row: dict[str, Any]) -> dict[str, Any]:
    """What only the page shows of an answer."""
    return {name: value for name, value in row.items() if name in ("id", "flags", "shown", "marks", "parts", "error")}


def shown(value: Any) -> str:
    """A value a line, its numbers to six digits."""
    if isinstance(value, str | Exception):
        return str(value)
    if isinstance(value, dict):
        return json.dumps(rounded({k: v for k, v in value.items() if k != "signature"}), ensure_ascii=False)
    return "\n".join(map(shown, value))


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def test_a_check_says_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a change is meant, what this test prints goes into the file, once it has been read."""
    monkeypatch.chdir(tmp_path)
    for folder, replies in (("good", REPLIES), ("bad", BROKEN)):
        Path(folder).mkdir()
        for name, reply in replies.items():
            Path(folder, f"{name}.json").write_text(json.dumps(reply), "utf-8")
    for number in range(6):
        Path("bad", f"picture{number}.png").write_bytes(b"")
    Path("files").mkdir()
    for name, text in FILES.items():
        Path("files", name).write_text(text, "utf-8")
    said_now = "".join(f"# {name}\n{shown(value)}\n\n" for name, value in findings())
    said_now = re.sub(r"\b(good|bad|files)\\+", r"\1/", said_now)  # as Windows writes them
    print(said_now)
    assert said_now == Path(__file__).with_name("recorded_check.txt").read_text("utf-8")
