"""Options that several commands share."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Literal

import typer


class Preset(str, Enum):
    """Which of the named settings to score with."""

    default = "default"
    paper = "paper"


class FunctionWords(str, Enum):
    """What becomes of function words such as "the"."""

    paper = "paper"
    whole_word = "whole-word"
    off = "off"


def value_of(option: Enum | None) -> Any:
    """The value of an option, None where it was not given."""
    return None if option is None else option.value


class PartKind(str, Enum):
    """Parts of an answer that have a confidence of their own."""

    word = "word"
    phrase = "phrase"
    sentence = "sentence"
    number = "number"
    reference = "reference"
    field = "field"
    identifier = "identifier"
    tool_call = "tool_call"


class DType(str, Enum):
    """Precision of the model's weights."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


ModelOption = Annotated[
    str,
    typer.Option("--model", "-m", help="'almanac' (the small model that is built in), a directory, or a hub id."),
]
BackendOption = Annotated[
    Literal["transformers", "vllm", "llama-cpp"],
    typer.Option("--backend", help="The engine that runs the model; llama-cpp takes a GGUF file."),
]
ClustersOption = Annotated[
    str | None,
    typer.Option(
        "--clusters",
        "-c",
        help="Clusters of the model's tokens: a directory or a hub id. Without it: those made before for this model, "
        "or new ones, which takes minutes for a large vocabulary.",
    ),
]
PresetOption = Annotated[
    Preset,
    typer.Option(help="'paper': the published code's numbers. 'default': counts tokens of the same spelling only."),
]
FunctionWordsOption = Annotated[
    FunctionWords | None,
    typer.Option(
        help="Function words and blanks count as certain, if not as in the preset: 'paper': everywhere; "
        "'whole-word': only where they are whole words and do not open the answer; 'off': nowhere."
    ),
]
MaxNewTokensOption = Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")]
BatchSizeOption = Annotated[int, typer.Option(min=1, help="Prompts answered together.")]
DeviceOption = Annotated[
    str | None, typer.Option(help="Where to compute: 'cpu', 'cuda', 'cuda:1', ... Default: a GPU if there is one.")
]
DTypeOption = Annotated[DType, typer.Option(help="Precision of the weights; 'auto' is that of the checkpoint.")]
RevisionOption = Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub id.")]
TrustRemoteCodeOption = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run Python code that comes with the model. Off unless asked for.")
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="Show the warnings and progress bars of transformers and the hub, too.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable: one JSON object a line, nothing else.")]
PartsOption = Annotated[
    PartKind | None,
    typer.Option("--parts", help="The confidence of parts of the answer: JSON fields, sentences, numbers and so on."),
]
