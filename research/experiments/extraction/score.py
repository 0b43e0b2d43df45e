r"""AUROC of the confidence of fields: semtoken's parts against plain probability and `structured-logprobs`.

    python research/experiments/extraction/score.py MODEL CLUSTERS ANSWERS.jsonl --results research/experiments/extraction/results

Answers are those of `read.py`; their logits come from one teacher-forced pass each. `structured-logprobs` 0.1.5 is a
package of its own (`pip install --no-deps structured-logprobs==0.1.5 lark==1.2.2`, as it asks for an old `openai`); it
reads the same log-probabilities in the form in which OpenAI sends them, pieces of characters named `\xc3`.
A field counts as right if its value is the document's, case and blanks aside. Intervals come from 2,000 bootstrap
samples of documents.
"""

from __future__ import annotations

import copy
import csv
import json
import math
from collections.abc import Sequence
from os.path import commonprefix
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from documents import FIELDS
from openai.types.chat import ChatCompletion
from structured_logprobs import add_logprobs
from transformers import AutoModelForCausalLM, DynamicCache

import semtoken as st

SCHEMA = {
    "type": "object",
    "properties": {
        "invoice_number": {"type": "string", "pattern": ".*"},
        "seller": {"type": "string"},
        "buyer": {"type": "string"},
        "invoice_date": {"type": "string", "format": "date"},
        "due_date": {"type": "string", "format": "date"},
        "currency": {"enum": ["EUR", "USD", "GBP", "CHF", "SEK"]},
        "total": {"type": "number"},
        "paid": {"type": "boolean"},
    },
}
SCORES = ("confidence", "with_end", "weakest", "plain", "surface", "meaning", "structured_logprobs")
"""`plain` is the product over the tokens of the value; `with_end` the same times the probability that it ends there."""
REPLICATES = 2000


def same(said: Any, known: Any) -> bool:
    """Whether a field says what the document says."""
    if isinstance(known, bool):
        return said is known
    if isinstance(known, float):
        return isinstance(said, int | float) and not isinstance(said, bool) and math.isclose(said, known)
    return " ".join(str(said).split()).casefold() == " ".join(str(known).split()).casefold()


def by_structured_logprobs(answer: st.ScoredAnswer, pieces: Sequence[bytes]) -> dict[str, Any]:
    """Log-probabilities of the fields by the other package; nothing where it raises an error."""
    content = []
    for token, piece in zip(answer.tokens, pieces, strict=True):
        if not piece:
            continue
        name = piece.decode("utf-8", "backslashreplace")
        item = {"token": name, "bytes": list(piece), "logprob": token.log_probability, "top_logprobs": []}
        content.append(item)
    message = {"role": "assistant", "content": answer.text}
    choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": {"content": content}}
    reply = {"id": "0", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    try:
        found = add_logprobs(ChatCompletion.model_validate(reply)).log_probs[0]
    except Exception:  # a parser's errors, an index error
        return {}
    return found if isinstance(found, dict) else {}


def rows_of(record: dict[str, Any], answer: st.ScoredAnswer, pieces: Sequence[bytes]) -> list[dict[str, Any]]:
    """One row a field of one document."""
    told = {part.path: part for part in answer.parts(by="field", schema=SCHEMA) if part.present}
    under = {
        name: {part.path: part.product for part in answer.parts(by="field", equality=name)}
        for name in ("exact", "surface", "meaning")
    }
    peers = by_structured_logprobs(answer, pieces)
    rows = []
    for field in FIELDS:
        part = told.get(f"/{field}")
        if part is None:
            continue
        plain, peer = under["exact"][part.path], peers.get(field)
        rows.append(
            {
                "document": record["id"],
                "field": field,
                "value": part.text,
                "known": record["fields"][field],
                "right": int(same(part.value, record["fields"][field])),
                "confidence": part.confidence,
                "with_end": plain * (1.0 if part.closing is None else part.closing),
                "closing": part.closing,
                "weakest": part.weakest,
                "plain": plain,
                "surface": under["surface"][part.path],
                "meaning": under["meaning"][part.path],
                "structured_logprobs": math.exp(peer) if isinstance(peer, float | int) else None,
            }
        )
    return rows


def aurocs(confidence: np.ndarray, right: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Chance that a right field has more confidence than a wrong one, for each row of weights [replicates, fields]."""
    values, place = np.unique(confidence, return_inverse=True)
    kinds = [np.zeros((len(weights), len(values))) for _ in range(2)]
    for kind, of in zip(kinds, (right == 1, right == 0), strict=True):
        np.add.at(kind.T, place[of], weights[:, of].T)
    good, bad = kinds
    below = np.cumsum(bad, axis=1) - bad / 2
    with np.errstate(invalid="ignore"):
        return (good * below).sum(axis=1) / (good.sum(axis=1) * bad.sum(axis=1))


def interval(rows: list[dict[str, Any]], score: str, base: str | None) -> tuple[float, float, float]:
    """AUROC of a score (or its difference to another), with a 95 % interval over documents."""
    documents, place = np.unique([row["document"] for row in rows], return_inverse=True)
    right = np.array([row["right"] for row in rows])
    drawn = np.random.default_rng(0).multinomial(
        len(documents), np.full(len(documents), 1 / len(documents)), REPLICATES
    )
    weights = np.concatenate([np.ones((1, len(rows))), drawn[:, place]])  # the first one is the sample itself
    found = aurocs(np.array([row[score] for row in rows], dtype=float), right, weights)
    if base is not None:
        found = found - aurocs(np.array([row[base] for row in rows], dtype=float), right, weights)
    low, high = np.nanquantile(found[1:], [0.025, 0.975])
    return float(found[0]), float(low), float(high)


def main(
    model: Annotated[str, typer.Argument(help="The model that gave the answers.")],
    clusters: Annotated[str, typer.Argument(help="Clusters of its tokens.")],
    answers: Annotated[Path, typer.Argument(help="What read.py wrote.")],
    results: Annotated[Path, typer.Option(help="Folder for fields.csv and auroc.csv.")],
    dtype: Annotated[str, typer.Option(help="Of the weights, as in read.py.")] = "float32",
) -> None:
    """Score all answers, write the rows and print the tables."""
    known = st.TokenClusters.from_pretrained(clusters)
    reader = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype)).eval()
    rows: list[dict[str, Any]] = []
    records = [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]
    shared = commonprefix([record["prompt_ids"] for record in records[:2]])  # noqa: RUF071
    with torch.no_grad():
        examples = DynamicCache(config=reader.config)
        reader(input_ids=torch.tensor([shared]), past_key_values=examples)
    for record in records:
        ids = record["answer_ids"]
        read = torch.tensor([[*record["prompt_ids"][len(shared) :], *ids[:-1]]])
        with torch.no_grad():
            logits = reader(read, past_key_values=copy.deepcopy(examples), logits_to_keep=len(ids)).logits[0]
        answer = st.score_logits(logits, ids, known)
        rows += rows_of(record, answer, [known.vocabulary.pieces[i] for i in ids])
    results.mkdir(parents=True, exist_ok=True)
    with (results / "fields.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    report(rows, len(records), results / "auroc.csv")


def report(rows: list[dict[str, Any]], n_documents: int, output: Path) -> None:
    """Print and save AUROC by field, for all fields, and the differences to the plain probability."""
    unread = sum(row["structured_logprobs"] is None for row in rows)
    print(f"{n_documents} documents, {len(rows)} fields, {sum(row['right'] for row in rows)} of them right")
    print(f"structured-logprobs gives no number for {unread} fields; its lines are about the others, `plain` included")
    lines = []
    for field in (*FIELDS, "all"):
        mine = [row for row in rows if field in (row["field"], "all")]
        for score in SCORES:
            known = [row for row in mine if row[score] is not None]
            if not 0 < sum(row["right"] for row in known) < len(known):
                continue
            share = f"{sum(row['right'] for row in known)}/{len(known)}"
            value, low, high = interval(known, score, None)
            gain, gain_low, gain_high = interval(known, score, "plain")
            lines.append(
                {
                    "field": field,
                    "right": share,
                    "score": score,
                    "auroc": f"{value:.3f}",
                    "interval": f"[{low:.3f}, {high:.3f}]",
                    "difference_to_plain": f"{gain:+.3f}",
                    "difference_interval": f"[{gain_low:+.3f}, {gain_high:+.3f}]",
                }
            )
            print("  ".join(f"{text:>22}" for text in lines[-1].values()))
    with output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    typer.run(main)
