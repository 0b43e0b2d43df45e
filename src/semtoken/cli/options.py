"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from semtoken.choices import Distribution, FunctionWords, PartKind, Preset

PresetOption = Annotated[
    Preset,
    typer.Option(help="'paper': the published code's numbers. 'default': counts tokens of the same spelling only."),
]
FunctionWordsOption = Annotated[
    FunctionWords | None,
    typer.Option(
        help="Where function words and white space count as certain. 'paper': everywhere; 'whole-word': only as "
        "whole words that do not open the answer; 'off': nowhere. Default: as in the preset."
    ),
]
TokenizerOption = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        "-t",
        help="Whose tokens they are, for narrower intervals: 'smollm2' or another name of `semtoken fetch`, a "
        "directory, a GGUF file, a tokenizer.json, or a hub id. Needed where tokens come as ids without texts.",
    ),
]
ClustersOption = Annotated[
    str | None,
    typer.Option(
        "--clusters",
        "-c",
        help="Only for the preset paper: clusters of these tokens. A directory, a hub id, or a model.",
    ),
]
DistributionOption = Annotated[
    Distribution | None,
    typer.Option(
        help="What the log-probabilities are, where the replies do not tell: 'processed' for vLLM with --logprobs-mode "
        "processed_logprobs."
    ),
]
MaxNewTokensOption = Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")]
BatchSizeOption = Annotated[int, typer.Option(min=1, help="Number of prompts answered together.")]
DeviceOption = Annotated[
    str | None, typer.Option(help="Where to compute: 'cpu', 'cuda', 'cuda:1', ... Default: a GPU if there is one.")
]
RevisionOption = Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub id.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="Show the warnings and progress bars of transformers and the hub, too.")
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace an output that exists and that this command did not write.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable: one JSON object per line, nothing else.")]
PartsOption = Annotated[
    PartKind | None,
    typer.Option("--parts", help="The confidence of parts of the answer: JSON fields, sentences, numbers and so on."),
]
SchemaOption = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        dir_okay=False,
        help="A JSON Schema of the answers: a table gets a row for each document and field.",
    ),
]
MethodsOption = Annotated[
    str | None,
    typer.Option(
        "--methods",
        help="Further numbers of every answer, separated by commas, from the same generation: 'mean_new_word,trace', "
        "or a function of your own: 'path/to/file.py:function'. 'all' gives all that can be known here "
        "(docs/methods.md).",
    ),
]
ByOption = Annotated[
    str | None,
    typer.Option(
        help="Order the answers by this method, whose scores the file has (`semtoken score --methods`). Default: by "
        "the headline of each answer.",
    ),
]

ScoresOption = Annotated[
    Path | None,
    typer.Option(
        "--scores",
        dir_okay=False,
        help="Scores of your own to compare with the methods: CSV, JSON lines or Parquet with the questions' `id` and "
        "a column for each score; higher is riskier.",
    ),
]


def output_file(help: str, *, allow_dash: bool = False) -> Any:
    """The option `--output` of a command that writes a file."""
    return typer.Option("--output", "-o", dir_okay=False, allow_dash=allow_dash, writable=True, help=help)


def as_methods(given: str | None, *, of_replies: bool = False) -> tuple[str, ...]:
    """The methods of one pass that `--methods` names.

    Parameters
    ----------
    given
        Names, separated by commas, or "all".
    of_replies
        Whether "all" stands only for those methods that need the best tokens of each step alone, as replies list them.

    Raises
    ------
    InvalidInput
        There is no such method, or it needs more than one pass.
    """
    from semtoken.observers.method_scores import FROM_BEST, methods_reading, one_pass_methods, require_one_pass

    if given is None:
        return ()
    if given.strip() == "all":
        return tuple(methods_reading(FROM_BEST) if of_replies else one_pass_methods())
    return require_one_pass([name.strip() for name in given.split(",") if name.strip()])
