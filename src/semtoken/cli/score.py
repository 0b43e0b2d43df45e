"""`semtoken score`: a file of prompts in, the same lines with scores out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semtoken.cli.console import counting, tell
from semtoken.cli.models import ALMANAC, ModelChoice, how_to_ask
from semtoken.cli.options import (
    BatchSizeOption,
    ClustersOption,
    DeviceOption,
    DType,
    DTypeOption,
    FunctionWords,
    FunctionWordsOption,
    MaxNewTokensOption,
    ModelOption,
    Preset,
    PresetOption,
    RevisionOption,
    TrustRemoteCodeOption,
    VerboseOption,
)

if TYPE_CHECKING:
    from semtoken import STC, ScoredResponse
    from semtoken.jobs import Item


def score(
    source: Annotated[
        Path,
        typer.Argument(metavar="INPUT.jsonl", exists=True, dir_okay=False, help="Prompts, one JSON object a line."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .jsonl or .parquet file. Default: INPUT.scored.jsonl beside the input."),
    ] = None,
    model: ModelOption = ALMANAC,
    clusters: ClustersOption = None,
    preset: PresetOption = Preset.default,
    function_words: FunctionWordsOption = FunctionWords.paper,
    max_new_tokens: MaxNewTokensOption = 256,
    batch_size: BatchSizeOption = 8,
    questions: Annotated[
        bool, typer.Option("--questions", help="Prompts are bare questions: put them into the model's form, as `ask`.")
    ] = False,
    stop_at_newline: Annotated[
        bool, typer.Option("--stop-at-newline", help="An answer ends at its first newline, as in the paper.")
    ] = False,
    tokens: Annotated[bool, typer.Option("--tokens", "-t", help="Write the scores of every token too.")] = False,
    skip_bad_lines: Annotated[
        bool, typer.Option("--skip-bad-lines", help='Write {"line": ..., "error": ...} for them instead of stopping.')
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start anew if the output exists.")] = False,
    device: DeviceOption = None,
    dtype: DTypeOption = DType.auto,
    revision: RevisionOption = None,
    trust_remote_code: TrustRemoteCodeOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Score a file of prompts, or of prompts with responses, line by line.

    Each line is {"prompt": "..."} or {"messages": [...]}. With "response" (text or token ids) that text is scored as
    it stands; without, an answer is generated greedily. Other fields are carried through. A run that was interrupted,
    even killed, goes on when the same command is given again and ends with the very lines of an undisturbed run.

    For example:

    - `semtoken score prompts.jsonl -o scored.jsonl --model Qwen/Qwen2.5-3B`
    - `semtoken score questions.jsonl --questions --tokens`
    - `semtoken score answers.jsonl -o scored.parquet --batch-size 16`
    """
    from semtoken.jobs import ScoringJob

    choice = ModelChoice(
        model, clusters, preset.value, function_words.value, device, dtype.value, revision, trust_remote_code, verbose
    )
    generation = {"max_new_tokens": max_new_tokens, "stop_at_newline": stop_at_newline}
    job = ScoringJob(
        source=source,
        target=output or source.with_suffix(".scored.jsonl"),
        settings=choice.settings | generation | {"questions": questions},
        batch_size=batch_size,
        tokens=tokens,
        skip_bad_lines=skip_bad_lines,
        overwrite=overwrite,
    )
    found = job.check()
    if job.is_finished(found):
        tell(f"{job.target} is complete ({found.total:,} lines); nothing to do.")
        return
    if found.done:
        tell(f"Going on after line {found.done:,} of {found.total:,} in {job.target}.")
    stc = choice.load()
    job = replace(job, settings=dict(job.settings) | _facts(stc))
    with counting("scoring", found.total, found.done) as progress:
        reached = job.run(_scorer(stc, model, generation, questions=questions), progress)
    tell(f"{reached.total:,} lines in {job.target}.")


def _facts(stc: STC) -> dict[str, Any]:
    """What decides the numbers and is known only once the model is loaded."""
    return {
        "clusters_signature": stc.clusters.signature,
        "commit": getattr(stc.model.config, "_commit_hash", None),
        "device_used": str(stc.model.device),
        "dtype_used": str(stc.model.dtype),
    }


def _scorer(
    stc: STC, model: str, generation: dict[str, Any], *, questions: bool
) -> Callable[[Sequence[Item]], list[ScoredResponse]]:
    from semtoken.jobs import score_items

    asking = how_to_ask(model, stc.tokenizer, raw=not questions)
    if questions:
        generation = generation | {"stop_at_newline": generation["stop_at_newline"] or asking.stop_at_newline}

    def score_batch(items: Sequence[Item]) -> list[ScoredResponse]:
        prepared = [replace(i, prompt=asking.prompt(i.prompt)) if isinstance(i.prompt, str) else i for i in items]
        return score_items(stc, prepared, **generation)

    return score_batch
