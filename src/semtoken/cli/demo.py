"""`semtoken demo`: what the uncertainty looks like, and how well it tells wrong answers from right ones."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from semtoken.cli.console import counting, out, tell
from semtoken.cli.models import ALMANAC, ModelChoice
from semtoken.cli.options import (
    FunctionWordsOption,
    Preset,
    PresetOption,
    VerboseOption,
    value_of,
)
from semtoken.errors import InvalidInput
from semtoken.results import ScoredResponse

if TYPE_CHECKING:
    from semtoken import STC
    from semtoken.almanac import Question
    from semtoken.metrics import Difference, Estimate

MAX_NEW_TOKENS = 24
BATCH_SIZE = 32


@dataclass(frozen=True)
class Answered:
    """A question of the almanac with the model's answer, marked."""

    question: Question
    result: ScoredResponse
    correct: bool


@dataclass(frozen=True)
class Comparison:
    """How well two uncertainties of the same answers tell wrong from right."""

    stc: Estimate
    probability: Estimate
    difference: Difference
    accuracy: float

    @property
    def verdict(self) -> str:
        """The outcome in words that the figures bear out."""
        d = self.difference
        if math.isnan(d.value):
            return f"No comparison: {d.reason}."
        if d.low > 0:
            return "STC is the better of the two here: the interval of the difference lies above 0."
        if d.high < 0:
            return "Sequence probability is the better of the two here: the interval of the difference lies below 0."
        return "Neither is reliably better here: the interval of the difference includes 0."


def demo(
    questions: Annotated[int, typer.Option(min=20, help="Test questions for the AUROC.")] = 500,
    preset: PresetOption = Preset.default,
    function_words: FunctionWordsOption = None,
    save_svg: Annotated[Path | None, typer.Option(help="Save what is printed as a picture.")] = None,
    verbose: VerboseOption = False,
) -> None:
    """Ask the built-in model what it should know and what it cannot, and test its uncertainty.

    Prints a handful of answers shaded by uncertainty, then the AUROC (0.5: no better than chance, 1: perfect) of STC
    and of plain sequence probability at telling wrong answers from right ones, with 95 % bootstrap intervals.

    For example:

    - `semtoken demo`
    - `semtoken demo --questions 1000 --function-words whole-word`
    """
    from semtoken.almanac import load_questions

    if save_svg is not None and not save_svg.parent.is_dir():
        raise InvalidInput(f"{save_svg} cannot be written: the folder {save_svg.parent} does not exist.")
    start = time.perf_counter()
    choice = ModelChoice(ALMANAC, None, preset.value, value_of(function_words), "cpu", "float32", None, False, verbose)
    console = Console(record=True, width=100, highlight=False) if save_svg else out
    stc = choice.load()
    run(stc, load_questions("dev"), spread(load_questions("test"), questions), console)
    tell(f"{time.perf_counter() - start:.0f} seconds in all.", style="dim")
    if save_svg is not None:
        try:
            console.save_svg(str(save_svg), title="semtoken demo")
        except OSError as error:
            raise InvalidInput(f"{save_svg} cannot be written: {error.strerror}.") from error
        tell(f"Picture saved as {save_svg}.")


def run(stc: STC, shown: Sequence[Question], tested: Sequence[Question], console: Console) -> Comparison:
    """Print answers to a few of the questions `shown`, then the comparison on all of `tested`."""
    from semtoken.view import legend

    known, unknown = well_known(shown), never_seen(shown)
    console.print(Text("A small language model answers. The redder a word, the less sure it is of it.", style="bold"))
    console.print(legend())
    for title, chosen in (
        ("Facts it read often", known),
        ("Facts it never read: it has to guess", unknown),
    ):
        console.print()
        console.print(Text(title, style="bold"))
        console.print(answers_table(answer(stc, chosen)))
    with counting(f"answering {len(tested)} test questions", len(tested)) as progress:
        answered = answer(stc, tested, progress)
    comparison = compare(answered)
    console.print()
    console.print(Text(f"Telling wrong answers from right ones, {len(tested)} test questions", style="bold"))
    console.print(comparison_table(comparison))
    console.print(comparison.verdict, soft_wrap=False)
    console.print()
    console.print('Next: ask it yourself      semtoken ask --tokens "What is the capital of Peru?"')
    console.print('      use your own model   semtoken ask --model DIRECTORY_OR_HUB_ID "..."')
    return comparison


def well_known(questions: Sequence[Question], count: int = 5) -> list[Question]:
    """The most exposed question of each of `count` kinds."""
    return _one_of_a_kind(sorted(questions, key=lambda q: (-q.exposure, q.id)), count)


def never_seen(questions: Sequence[Question], count: int = 5) -> list[Question]:
    """Questions of `count` kinds whose facts were left out of the training; of each kind the least known one."""
    unseen = [q for q in questions if q.exposure == 0]
    return _one_of_a_kind(unseen[::-1], count)  # within a kind, the well-known come first


def _one_of_a_kind(questions: Sequence[Question], count: int) -> list[Question]:
    first: dict[str, Question] = {}
    for question in questions:
        first.setdefault(question.relation, question)
    return list(first.values())[:count]


def spread(questions: Sequence[Question], count: int) -> list[Question]:
    """`count` questions at even distances through the whole set, all of them if there are no more."""
    count = min(count, len(questions))
    return [questions[i * len(questions) // count] for i in range(count)]


def answer(stc: STC, questions: Sequence[Question], progress: object = None) -> list[Answered]:
    """Ask and mark."""
    from semtoken.almanac import is_correct

    def told(number: int, result: ScoredResponse) -> None:
        if callable(progress):
            progress(number + 1)

    results = stc.generate(
        [question.prompt() for question in questions],
        MAX_NEW_TOKENS,
        batch_size=BATCH_SIZE,
        stop_at_newline=True,
        on_result=told,
    )
    return [Answered(q, r, is_correct(r.text, q)) for q, r in zip(questions, results, strict=True)]


def compare(answered: Sequence[Answered]) -> Comparison:
    """AUROC of STC and of sequence probability on the same answers. Logs rank as the scores do, without rounding."""
    from semtoken.metrics import bootstrap, paired_difference

    correct = [float(a.correct) for a in answered]
    stc = [-a.result.log_score for a in answered]
    probability = [-a.result.log_probability for a in answered]
    return Comparison(
        stc=bootstrap("auroc", stc, correct),
        probability=bootstrap("auroc", probability, correct),
        difference=paired_difference("auroc", stc, probability, correct),
        accuracy=sum(correct) / len(correct),
    )


def answers_table(answered: Sequence[Answered]) -> Table:
    """Question, shaded answer, uncertainty, and whether it is right."""
    from semtoken.view import shaded_text

    table = Table(box=None, pad_edge=False, padding=(0, 2), show_header=True, header_style="dim")
    table.add_column("question", ratio=3)
    table.add_column("answer")
    table.add_column("uncertainty", justify="right")
    table.add_column("")
    for a in answered:
        mark = Text("right", style="green") if a.correct else Text(f"wrong: {a.question.answers[0]}", style="red")
        table.add_row(Text(a.question.question), shaded_text(a.result), f"{a.result.uncertainty:.2f}", mark)
    return table


def comparison_table(comparison: Comparison) -> Table:
    """The two AUROCs and their difference with intervals."""
    table = Table(box=None, pad_edge=False, padding=(0, 2), show_header=True, header_style="dim")
    table.add_column("uncertainty")
    table.add_column("AUROC", justify="right")
    table.add_column("95 % interval")
    for name, estimate in (
        ("Semantic Token Clustering", comparison.stc),
        ("sequence probability", comparison.probability),
    ):
        table.add_row(name, f"{estimate.value:.3f}", f"{estimate.low:.3f} to {estimate.high:.3f}")
    d = comparison.difference
    table.add_row("difference", f"{d.value:+.3f}", f"{d.low:+.3f} to {d.high:+.3f}")
    table.add_row(Text(f"{comparison.accuracy:.0%} of the answers are right", style="dim"), "", "")
    return table
