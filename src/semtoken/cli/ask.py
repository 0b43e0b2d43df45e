"""`semtoken ask`: questions in, answers with their uncertainty out."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semtoken.choices import PartKind
from semtoken.cli.console import dispute_line, json_line, out, print_scores
from semtoken.cli.options import (
    AbstainTextOption,
    BatchSizeOption,
    CalibratorOption,
    JsonOption,
    MaxNewTokensOption,
    ModelChoice,
    PartsOption,
    load_calibrator_for,
    model_options,
)
from semtoken.errors import InvalidInput, OverBudget
from semtoken.models.prompts import how_to_ask

if TYPE_CHECKING:
    from semtoken import STC
    from semtoken.core.results import ScoredResponse
    from semtoken.guarantees.apply import CalibratorInUse
    from semtoken.models.probing import Dispute

LEAST_DISAGREEMENT = 0.01
"""A dispute with less disagreement than this gets no line."""


@model_options()
def ask(
    questions: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUESTION...", help="One or more questions; '-' reads them from stdin, one per line."),
    ] = None,
    *,
    choice: ModelChoice,
    max_new_tokens: MaxNewTokensOption = 64,
    batch_size: BatchSizeOption = 8,
    image: Annotated[
        list[Path] | None,
        typer.Option("--image", exists=True, dir_okay=False, help="An image to ask about; may be repeated."),
    ] = None,
    raw_prompt: Annotated[bool, typer.Option("--raw-prompt", help="Send the text to the model as it is.")] = False,
    tokens: Annotated[
        bool, typer.Option("--tokens", "-t", help="A table of the tokens: probabilities and what carried them.")
    ] = False,
    also: Annotated[
        bool,
        typer.Option(
            "--also", help="Name what else the model considered, and how it would have gone on: takes longer."
        ),
    ] = False,
    parts: PartsOption = None,
    as_json: JsonOption = False,
    calibrator: CalibratorOption = None,
    abstain_text: AbstainTextOption = None,
) -> None:
    """Ask a model; see its answer, how sure it is, and of which words it is not.

    A question is put into the form that the model knows: the almanac's own, the chat template of the tokenizer if it
    has one, else the paper's prompt with one example (answers end at a newline). --raw-prompt sends it untouched.
    Decoding is greedy.

    For example:

    - `semtoken ask "What is the capital of Japan?"`
    - `semtoken ask --tokens "Which country is Kyoto in?" "What is the currency of Japan?"`
    - `semtoken ask --also --model smollm2 "What is the capital of Australia?"`
    - `semtoken ask --parts number "When did the second world war end?"`
    - `semtoken ask --image scan.png --model path/to/an/image-text/model "What is the total?"`
    - `cat questions.txt | semtoken ask - --json > answers.jsonl`
    - `semtoken ask --model Qwen/Qwen2.5-3B "who wrote the score for mission impossible fallout"`
    """
    if also and as_json:
        raise typer.BadParameter("--also is for people; leave out --json.", param_hint="--also")
    if image and (also or raw_prompt):
        raise typer.BadParameter("leave out --also and --raw-prompt: they read text only.", param_hint="--image")
    asked = _read(questions)
    stc = choice.load(calibrator=calibrator) if calibrator is not None else _loaded(choice)
    applied = load_calibrator_for(stc, calibrator, choice.model, abstain_text)
    asking = how_to_ask(choice.model, stc.tokenizer, raw=raw_prompt)

    def show(number: int, result: ScoredResponse) -> None:
        if as_json:
            record = _record(asked[number], result, applied, parts)
            if image:
                record["messages"] = prompts[number]
            typer.echo(json_line(record))
        else:
            _print(asked[number], result, applied, tokens=tokens, parts=parts)

    seen = [{"type": "image", "path": str(path)} for path in image or ()]
    prompts: list[Any] = [
        [{"role": "user", "content": [*seen, {"type": "text", "text": question}]}] if seen else asking.prompt(question)
        for question in asked
    ]
    answers = stc.generate(
        prompts,
        max_new_tokens,
        batch_size=batch_size,
        stop_at_newline=asking.stop_at_newline and not image,
        on_result=None if also else show,
    )
    for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True) if also else ()):
        _print(
            asked[number],
            answer,
            applied,
            tokens=tokens,
            parts=parts,
            disputes=stc.disputed(prompt, answer, max_steps=4),
        )
    if not as_json:
        from semtoken.core.results.headlines import RANKS
        from semtoken.display import legend

        out.print(legend())
        if applied is None:
            out.print(RANKS, style="dim", soft_wrap=True)
        if applied is not None and applied.calibrator.threshold is not None:
            out.print(applied.calibrator.threshold.statement, soft_wrap=True, markup=False)


def _record(
    question: str, result: ScoredResponse, applied: CalibratorInUse | None, parts: PartKind | None
) -> dict[str, Any]:
    """An answer as plain values, with its question and what the calibrator says of it."""
    scores = result.to_dict()
    record = {"question": question, "response": scores.pop("text"), **scores}
    record["new_word_confidence"] = result.new_word_confidence(question)
    if applied is not None:
        record |= applied.block(result) | {"response": applied.shown(result)}
    if record["response"] != result.text:  # it is held back, and so is all that quotes it
        record["headline"]["sentence"] = result.headline.unquoted.sentence
        del record["tokens"], record["flags"]
    elif parts is not None:
        try:
            record["parts"] = [part.to_dict() for part in result.parts(parts)]
        except OverBudget as error:
            record["parts_refused"] = str(error)
    return record


def _loaded(choice: ModelChoice) -> STC:
    """The model; the embedded one without torch, which takes longer to import than this one to answer."""
    if replace(choice, verbose=False) != ModelChoice():
        return choice.load()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # several would spend more time on waiting than on work
    from semtoken import STC
    from semtoken.models.small import SmallBackend

    return STC(SmallBackend())


def _read(questions: Sequence[str] | None) -> list[str]:
    """The questions of the command line; those of stdin for '-' or, in a pipe, for none."""
    from semtoken.support.files.safe_files import bounded_lines, reading_errors

    given = list(questions or ())
    if given == ["-"] or (not given and not sys.stdin.isatty()):
        with reading_errors(Path("standard input")):
            given = [line.strip() for line in bounded_lines(sys.stdin) if line.strip()]
    if not given:
        raise typer.BadParameter("Give at least one question, or '-' to read them from stdin.", param_hint="QUESTION")
    for number, question in enumerate(given, start=1):
        if not question.strip():
            raise InvalidInput(f"Question {number} is empty.")
    return given


def _print(
    question: str,
    result: ScoredResponse,
    applied: CalibratorInUse | None,
    *,
    tokens: bool,
    parts: PartKind | None,
    disputes: Sequence[Dispute] | None = None,
) -> None:
    """The question; the number and the chance; the answer; what was asked for besides."""
    from rich.padding import Padding
    from rich.text import Text

    from semtoken.display import parts_table, shaded_text, token_table

    out.print(Text(question, style="bold"))
    hidden = applied is not None and applied.shown(result) != result.text
    first, colon, rest = summary(result, hidden=hidden).partition(":")
    out.print(Text("  ").append(first, style="bold").append(f"{colon}{rest}", style="dim"), soft_wrap=True)
    if applied is not None:
        out.print(Text(f"  {applied.sentence(result)}"), soft_wrap=True)
    shown = Text(applied.shown(result)) if applied is not None and hidden else shaded_text(result)
    out.print(Text("  ").append_text(shown))
    if hidden:
        tokens, parts, disputes = False, None, None
    print_scores(result)
    if disputes is not None:
        told = [dispute_line(dispute) for dispute in disputes if dispute.disagreement >= LEAST_DISAGREEMENT]
        for line in told or ["what else the model considered says the same"]:
            out.print(Text(f"  {line}"), soft_wrap=True)
    if tokens:
        out.print(Padding(token_table(result), (0, 0, 0, 2)))
    if parts is not None:
        try:
            out.print(Padding(parts_table(result.parts(parts)), (0, 0, 0, 2)))
        except OverBudget as error:
            out.print(Text(f"  without its parts: {error}", style="dim"), soft_wrap=True)
    out.print()


def summary(result: ScoredResponse, *, hidden: bool = False) -> str:
    """The numbers of an answer in one line, the headline first; nothing quotes one that is hidden."""
    from semtoken.core.parts.prose import is_sentence
    from semtoken.support.text import CUT_OFF, number

    notes = [(result.headline.unquoted if hidden else result.headline).line]
    if not is_sentence(result.text, result.n_tokens):  # of a sentence these two say how it might have been phrased
        notes.append(f"uncertainty {number(result.uncertainty)}")
        notes.append(f"probability of these very words {number(math.exp(result.log_probability))}")
    if result.truncated:
        notes.append(CUT_OFF)
    if result.empty:
        notes.append("empty answer")
    elif result.neutral_only:
        notes.append("only function words")
    return " · ".join(notes)
