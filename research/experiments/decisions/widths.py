"""How wide the bounds of options are that a server's best tokens give, and those from the tokens of the options by id.

    python research/experiments/decisions/widths.py write items.jsonl MODEL NAME widths.csv [items of each kind]
    python research/experiments/decisions/widths.py figures widths.csv

Each prompt is read once with all logits. From these two replies are made: one as APIs send it, with the 20 best tokens,
and one as vLLM sends it for `logprob_token_ids`, with the tokens of the options by their ids. Both are read as
`semtoken decide --base-url` reads them, so the exact masses must lie within both.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from semtoken.choices import Reading
from semtoken.decisions import ReadingOptions
from semtoken.decisions.asked_texts import AskedText, asked_texts
from semtoken.decisions.remote import BEST
from semtoken.models import load_backend
from semtoken.models.transformers import TransformersBackend
from semtoken.replies import read_reply
from semtoken.replies.formats.openai_choices import OpenAIChat

sys.path.append(str(Path(__file__).parent))
from read import lines_of, question_of

EACH = 16
FIELDS = ("model", "item", "kind", "reading", "asked", "listed", "by_ids", "is_inside")
ROUNDING = 1e-6


def texts_of(item: dict, reading: Reading) -> Sequence[AskedText]:
    """The prompt of an item with its options in their first order."""
    return asked_texts(item["state"], [question_of(item)], ReadingOptions(reading, 1)).texts


def chat_reply(chosen: int, listed: Sequence[int], log_probs: np.ndarray, names: Sequence[str], pieces: Any) -> Any:
    """A reply of a chat with one token and a list."""
    entries = [
        {"token": name, "logprob": float(log_probs[token]), "bytes": None if pieces is None else list(pieces[token])}
        for token, name in zip([chosen, *listed], names, strict=True)
    ]
    content = [{**entries[0], "top_logprobs": entries[1:]}]
    choice = {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": names[0]}}
    return read_reply({"object": "chat.completion", "choices": [{**choice, "logprobs": {"content": content}}]})


def rows_of(item: dict, backend: TransformersBackend, name: str) -> Iterator[dict[str, Any]]:
    """A row for each reading: the widest bounds of an option, from the list and by ids."""
    vocabulary = backend.vocabulary
    for reading in get_args(Reading):
        for text in texts_of(item, reading):
            row = {"model": name, "item": item["item"], "kind": item["kind"], "reading": reading}
            reader = text.reader(vocabulary, backend.tokenizer)
            if reader is None:  # some option takes several tokens: the list is read, token by token
                yield row | {"asked": "list"}
                continue
            messages = text.request(OpenAIChat, item["state"], top=BEST)["messages"]
            with torch.inference_mode():
                logits = backend.passes.whole(backend.encode([messages])[0], 1)[0, : vocabulary.size]
            log_probs = logits.double().log_softmax(-1).numpy()
            best = np.argsort(-log_probs)[:BEST].tolist()
            low, high = text.masses(
                chat_reply(best[0], best, log_probs, [vocabulary.texts[t] for t in [best[0], *best]], vocabulary.pieces)
            )
            own = reader.first_tokens.tolist()
            by_ids = chat_reply(best[0], own, log_probs, [f"token_id:{t}" for t in [best[0], *own]], None)
            exact = text.named_masses(by_ids, reader)
            assert exact is not None, "all tokens were listed"
            inside = bool((low <= exact[0] + ROUNDING).all() and (exact[1] <= high + ROUNDING).all())
            widths = {"listed": float((high - low).max()), "by_ids": float((exact[1] - exact[0]).max())}
            yield row | {"asked": "ids", "is_inside": int(inside)} | {key: f"{w:.3g}" for key, w in widths.items()}


def write(items: Path, model: str, name: str, target: Path, each: int) -> None:
    """Read the first items of each kind that the file does not hold yet."""
    kept = list(csv.DictReader(target.open(encoding="utf-8"))) if target.exists() else []
    done = {row["item"] for row in kept if row["model"] == name}
    torch.set_num_threads(1)
    backend = load_backend("transformers", model, dtype="float32")
    wanted = [item for kind in ("predicate", "choice") for item in _of_kind(items, kind, each)]
    with target.open("a", newline="", encoding="utf-8") as file:
        rows = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if target.stat().st_size == 0:
            rows.writeheader()
        for item in wanted:
            if item["item"] not in done:
                rows.writerows(rows_of(item, backend, name))
                file.flush()


def _of_kind(items: Path, kind: str, each: int) -> list[dict]:
    return [item for item in lines_of(items) if item["kind"] == kind][:each]


def figures(source: Path) -> None:
    """The table of the README."""
    rows = list(csv.DictReader(source.open(encoding="utf-8")))
    print(
        "| model | kind | reading | prompts | asked by ids | list: median | 95% | by ids: median | 95% | not inside |"
    )
    print("|---|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for group in dict.fromkeys((row["model"], row["kind"], row["reading"]) for row in rows):
        mine = [row for row in rows if (row["model"], row["kind"], row["reading"]) == group]
        asked = [row for row in mine if row["asked"] == "ids"]
        cells = [
            f"{np.quantile([float(row[column]) for row in asked], q):.2g}" if asked else "-"
            for column in ("listed", "by_ids")
            for q in (0.5, 0.95)
        ]
        outside = sum(row["is_inside"] == "0" for row in asked)
        print("|", " | ".join([*group, str(len(mine)), str(len(asked)), *cells, str(outside)]), "|")


if __name__ == "__main__":
    if sys.argv[1] == "figures":
        figures(Path(sys.argv[2]))
    else:
        _, _, given, model, name, target, *more = sys.argv
        write(Path(given), model, name, Path(target), int(more[0]) if more else EACH)
