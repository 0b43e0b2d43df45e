"""A loaded model for the lines of a file: the function that scores a batch, and the facts that decide its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from semtoken.bench.score_file import Annotate, ScoreItems, score_items
from semtoken.bench.score_file.lines import Item
from semtoken.core.results import ScoredAnswer
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.models.prompts import how_to_ask
from semtoken.replies.checking.fields import field_records
from semtoken.scored_model import ScoredModel


def batch_scorer(
    model: ScoredModel, name: str, *, max_new_tokens: int = 256, stop_at_newline: bool = False, raw: bool = False
) -> ScoreItems:
    """Make the function that scores a batch of lines, for `ScoringJob.run`, with bare questions in the model's form.

    Parameters
    ----------
    model
        The model, loaded.
    name
        The name that it was loaded by, which decides the form of its questions (`semtoken.models.prompts.how_to_ask`).
    max_new_tokens : int
        The most tokens of an answer that is generated.
    stop_at_newline : bool
        Whether every answer ends at its first newline. Answers to questions do where the model's form asks for one
        line.
    raw : bool
        Whether questions stay as they are.
    """
    asking = how_to_ask(name, model.tokenizer, raw=raw)

    def score_batch(items: Sequence[Item]) -> list[ScoredAnswer]:
        asked = [item for item in items if item.is_question and not raw]
        others = [item for item in items if not item.is_question or raw]
        in_form = [replace(item, prompt=asking.prompt(str(item.prompt))) for item in asked]
        results: dict[int, ScoredAnswer] = {}
        # Questions end where the model's form says; texts and chats only where the user says: two calls at most.
        for chosen, stop in ((others, stop_at_newline), (in_form, stop_at_newline or asking.stop_at_newline)):
            if chosen:
                scored = score_items(model, chosen, max_new_tokens=max_new_tokens, stop_at_newline=stop)
                results |= {item.number: result for item, result in zip(chosen, scored, strict=True)}
        return [results[item.number] for item in items]

    return score_batch


def annotator(
    model: str, calibrator: CalibratorInUse | None = None, schema: Mapping[str, Any] | None = None
) -> Annotate | None:
    """Make the function that adds to a line what a calibrator says of its answer, or its fields by a JSON Schema, for
    `ScoringJob.annotate`; None without either.

    `model` is the name that it was loaded by, which a calibrator of fields compares.
    """
    if schema is None:
        return None if calibrator is None else calibrator.block

    def fields(answer: ScoredAnswer, line: Mapping[str, Any]) -> dict[str, Any]:
        return {"parts": field_records(answer.with_fields(model=model), schema, calibrator, line)}

    return fields


def facts_of(model: ScoredModel) -> dict[str, Any]:
    """The facts that decide the numbers and are known only once a model is loaded, for `ScoringJob.settings`."""
    engine, clusters = model.backend, model.scorer.clusters
    signature = None if clusters is None else clusters.signature
    if engine.name != "transformers":
        return {"clusters_signature": signature, "distribution": engine.distribution}
    return {
        "clusters_signature": signature,
        "commit": getattr(engine.model.config, "_commit_hash", None),
        "device_used": str(engine.model.device),
        "dtype_used": str(engine.model.dtype),
    }
