"""`semtoken compare`: every method on the same questions, as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semtoken.cli.console import counting, out, tell
from semtoken.cli.models import ALMANAC, ModelChoice, how_to_ask
from semtoken.cli.options import (
    ClustersOption,
    DeviceOption,
    DType,
    DTypeOption,
    FunctionWordsOption,
    MaxNewTokensOption,
    ModelOption,
    Preset,
    PresetOption,
    RevisionOption,
    TrustRemoteCodeOption,
    VerboseOption,
    value_of,
)
from semtoken.errors import InvalidInput

if TYPE_CHECKING:
    from semtoken.bench.compare import Comparison
    from semtoken.statistics.generations import Progress

DEFAULT_LIMIT = 500


def compare(
    questions: Annotated[
        str,
        typer.Argument(
            help="'almanac' (test questions of the built-in model), 'almanac-dev', or a file of JSON lines: "
            '{"question": "...", "answers": ["...", ...]}.'
        ),
    ] = ALMANAC,
    model: ModelOption = ALMANAC,
    clusters: ClustersOption = None,
    preset: PresetOption = Preset.default,
    function_words: FunctionWordsOption = None,
    limit: Annotated[
        int, typer.Option(min=0, help="A random part of so many questions, the same for the same seed; 0: all.")
    ] = DEFAULT_LIMIT,
    methods: Annotated[
        str, typer.Option(help="Some methods only, with commas between: 'perplexity,sar'. STC is always there.")
    ] = "",
    samples: Annotated[int, typer.Option(min=1, help="Sampled answers a question.")] = 5,
    temperature: Annotated[float, typer.Option(min=0.01, help="Of the samples.")] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Of the part of the questions, the samples and the bootstrap.")] = 0,
    nli: Annotated[
        str | None,
        typer.Option(
            help="NLI model: 'almanac', a directory or a hub id. Default: microsoft/deberta-large-mnli, and "
            "'almanac' for the built-in model."
        ),
    ] = None,
    similarity: Annotated[
        str | None,
        typer.Option(help="Similarity cross-encoder, likewise. Default: cross-encoder/stsb-roberta-large."),
    ] = None,
    max_new_tokens: MaxNewTokensOption = 256,
    batch_size: Annotated[int, typer.Option(min=1, help="Prompts answered together.")] = 32,
    csv: Annotated[Path | None, typer.Option(help="Write the table here as CSV.", dir_okay=False)] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the table here as Markdown.", dir_okay=False)] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write all figures here as JSON, with settings and seconds.", dir_okay=False)
    ] = None,
    device: DeviceOption = None,
    dtype: DTypeOption = DType.auto,
    revision: RevisionOption = None,
    trust_remote_code: TrustRemoteCodeOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Compare STC with fourteen other methods on questions whose answers are known.

    Every question is answered once greedily; samples, entailment, similarity and so on are recorded once and shared.
    The table says how well each uncertainty tells wrong answers from right ones (AUROC, PRR, with 95 % intervals),
    the difference to STC on the same answers, and the seconds that the method needs beyond the greedy answers. An
    answer is right if it equals an accepted one after lower-casing and without articles and punctuation.

    For example:
      semtoken compare

      semtoken compare --limit 0 --json compare.json --markdown compare.md

      semtoken compare questions.jsonl --model Qwen/Qwen2.5-3B --methods perplexity,semantic_entropy,sar
    """
    from semtoken.bench.compare import run_comparison, selected_methods
    from semtoken.bench.datasets import read_dataset
    from semtoken.statistics import Decoding
    from semtoken.statistics.entailment import DEFAULT_NLI
    from semtoken.statistics.similarity import DEFAULT_SIMILARITY

    chosen = selected_methods(name.strip() for name in methods.split(",") if name.strip())
    for path in (csv, markdown, json):
        _check_writable(path)
    asked = read_dataset(questions, limit=limit or None, seed=seed).questions
    choice = ModelChoice(
        model,
        clusters,
        preset.value,
        value_of(function_words),
        device,
        dtype.value,
        revision,
        trust_remote_code,
        verbose,
    )
    stc = choice.load()
    asking = how_to_ask(model, stc.tokenizer, raw=False)
    with step_bars() as progress:
        comparison = run_comparison(
            stc,
            asked,
            [asking.prompt(question.question) for question in asked],
            chosen,
            decoding=Decoding(
                max_new_tokens=max_new_tokens,
                stop_at_newline=asking.stop_at_newline,
                n_samples=samples,
                temperature=temperature,
                seed=seed,
                batch_size=batch_size,
            ),
            nli=nli or (ALMANAC if model == ALMANAC else DEFAULT_NLI),
            similarity=similarity or (ALMANAC if model == ALMANAC else DEFAULT_SIMILARITY),
            progress=progress,
            settings={"questions": questions, **choice.settings},
        )
    show(comparison, csv=csv, markdown=markdown, json=json)


def show(comparison: Comparison, *, csv: Path | None, markdown: Path | None, json: Path | None) -> None:
    """Print the table and write the files that were asked for."""
    from semtoken.bench.tables import csv_table, json_text, markdown_table, rich_table

    out.print(rich_table(comparison, out.width))
    for path, text_of in ((csv, csv_table), (markdown, markdown_table), (json, json_text)):
        if path is not None:
            path.write_text(text_of(comparison), encoding="utf-8")
            tell(f"Wrote {path}")


def _check_writable(path: Path | None) -> None:
    """Refuse before the work begins what would fail after it."""
    if path is not None and not path.absolute().parent.is_dir():
        raise InvalidInput(f"{path} cannot be written: there is no directory {path.absolute().parent}.")


@contextmanager
def step_bars() -> Iterator[Progress]:
    """One bar at a time, for the recording step that is running."""
    with ExitStack() as stack:
        bars: dict[str, Callable[[int], None]] = {}

        def progress(step: str, done: int, total: int) -> None:
            if step not in bars:
                stack.close()
                bars[step] = stack.enter_context(counting(step.replace("_", " "), total))
            bars[step](done)

        yield progress
