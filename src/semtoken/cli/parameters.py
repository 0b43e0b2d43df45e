"""Arguments and options that several commands share, each with one name, one meaning and one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from semtoken.choices import PartKind
from semtoken.cli.settings import Count, Given


def _check_lines(_: type, path: Path | None) -> None:
    """Refuse an output whose ending says another format than JSON lines, which is all that a command writes."""
    from semtoken.support.files.record_files import LINES_ENDINGS
    from semtoken.support.files.safe_files import ending_of

    # An empty name, and the working directory, are refused as what they are.
    if path is not None and path != Path() and ending_of(path) not in LINES_ENDINGS:
        raise ValueError("It holds JSON lines: give a name that ends in .jsonl.")


# One name and one short form for several commands, each of which says in its docstring what it means there.
ToFile = Annotated[Given, Parameter(name=("--output", "-o"))]
ToLines = Annotated[Given, Parameter(name=("--output", "-o"), validator=_check_lines)]
ToFolder = Annotated[Given, Parameter(name=("--output", "-o"), metavar="DIR")]
ModelNamed = Annotated[Given, Parameter(name=("--model", "-m"))]
ClustersNamed = Annotated[Given, Parameter(name=("--clusters", "-c"))]
JudgeNamed = Annotated[Given, Parameter(name=("--judge", "-j"))]
Limit = Annotated[Given, Parameter(name=("--limit", "-n"), validator=Number(gte=1))]

BaseUrl = Annotated[
    str | None,
    Parameter(metavar="URL", help="Address of the server's API. Default: base_url under [endpoint]."),
]
NameThere = Annotated[ModelNamed[str | None], Parameter(help="The model's name on the server.")]
Tokenizer = Annotated[str | None, Parameter(help="Tokenizer of the model that answered, for narrower intervals.")]
Calibrator = Annotated[
    Path | None,
    Parameter(metavar="DIR", help="Apply a calibrator: adds the probability of being right and the decision."),
]
Calibrators = Annotated[
    tuple[Path, ...],
    Parameter(
        name="--calibrator",
        metavar="DIR",
        help="Apply a calibrator, of answers or of typed questions; may be repeated.",
    ),
]
JournalUrl = Annotated[
    str | None,
    Parameter(metavar="URL", help="Record every scored answer in this database (SQLite file or postgresql://...)."),
]
Host = Annotated[str, Parameter(metavar="ADDRESS", help="Address to listen on.")]
Port = Annotated[
    int, Parameter(metavar="N", help="Port to listen on; 0 picks a free one.", validator=Number(gte=0, lte=65535))
]
Output = Annotated[
    ToFile[Path | None], Parameter(help="Write here; the ending sets the format (.jsonl, .csv, .parquet).")
]
ShowTokens = Annotated[
    bool, Parameter(name=("--tokens", "-t"), help="Show each token with its probability and alternatives.")
]
Parts = Annotated[
    PartKind | None,
    Parameter(metavar="KIND", help="Score parts of the answer: phrase, sentence, number, field, ..."),
]
MaxTokens = Annotated[Count, Parameter(help="Longest answer, in tokens.")]
NoChatTemplate = Annotated[bool, Parameter(help="Send the text as it is.")]
Schema = Annotated[
    Path | None,
    Parameter(help="JSON Schema of the answers: scores and ranks each field."),
]
Methods = Annotated[
    str | None,
    Parameter(metavar="LIST", help="Compute further scores, comma-separated: perplexity,trace or file.py:function."),
]
BenchMethods = Annotated[
    str | None,
    Parameter(metavar="LIST", help="Methods, comma-separated: stc,perplexity or file.py:function. Default: all."),
]
OwnScores = Annotated[
    Path | None,
    Parameter(
        help="Scores of your own to compare with: the questions' id and a column for each; higher is riskier.",
    ),
]
TestedCalibrator = Annotated[
    Path | None, Parameter(metavar="DIR", help="Test the probabilities and the guarantee of a calibrator, too.")
]
Strict = Annotated[bool, Parameter(help="Stop at the first bad line instead of recording its error.")]
Labels = Annotated[Path | None, Parameter(help="Correct values, where the answers come without them.")]
Questions = Annotated[Path | None, Parameter(help="Questions, where the answers come without them.")]
Force = Annotated[bool, Parameter(help="Replace the output if it exists.")]
Overwrite = Annotated[bool, Parameter(name="--force", help="Replace the output if it exists.")]
"""The same for a command that looks for itself at what it would replace."""
Json = Annotated[bool, Parameter(name="--json", help="Print JSON, one object per line.")]
