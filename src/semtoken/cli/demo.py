"""`semtoken demo`: what the uncertainty looks like, on the embedded model or a real one."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from semtoken.cli.console import counting, dispute_line, out, plain_table, tell, waiting
from semtoken.cli.options import ForceOption, ModelChoice, ModelOption
from semtoken.errors import InvalidInput
from semtoken.support.almanac import ALMANAC, Question, is_correct, load_questions
from semtoken.support.extras import installed_first
from semtoken.support.files.safe_files import replace_text
from semtoken.support.text import number

if TYPE_CHECKING:
    from semtoken import STC
    from semtoken.core.results import ScoredResponse
    from semtoken.methods.metrics import Difference, Estimate


MAX_NEW_TOKENS = 24
MAX_STEPS = 3  # doubtful steps that are followed up, at a few short continuations each
INSTRUCTION = "Answer in a few words."


REAL_QUESTIONS = {
    "What is the capital of Australia?": "Canberra",
    "What is the chemical symbol for gold?": "Au",
    "What is the capital of Turkey?": "Ankara",
    "Which element has the atomic number 6?": "carbon",
}
"""What a right answer holds, by its question: some that a small model knows, some that it gets wrong but doubts."""


def demo_real(
    stc: STC, name: str, console: Console, questions: Mapping[str, str] = REAL_QUESTIONS
) -> list[ScoredResponse]:
    """Ask a model the questions of the demo, mark its answers, and show what else it considered."""
    from semtoken.core.results.headlines import RANKS
    from semtoken.display import shaded_text

    beginning = f"{name} is told to answer in a few words. The redder a word, the less sure the model is of it."
    console.print(Text(beginning, style="bold"))
    answers = []
    for question, accepted in questions.items():
        prompt = [{"role": "user", "content": f"{INSTRUCTION} {question}"}]
        if not getattr(stc.tokenizer, "chat_template", None):
            prompt = f"Question: {question}\nAnswer:"  # type: ignore[assignment]
        console.print()
        console.print(Text(question, style="dim"))
        with waiting("the model answers"):
            [answer] = stc.generate([prompt], MAX_NEW_TOKENS, stop_at_newline=True)
        console.print(Text("  ") + shaded_text(answer))
        console.print(Text(f"  {answer.headline.line} ·") + _mark(accepted.lower() in answer.text.lower(), accepted))
        with waiting("following up what else it could have said"):
            disputes = stc.disputed(prompt, answer, max_steps=MAX_STEPS)
        if disputes:
            console.print(Text(f"  {dispute_line(disputes[0])}"))
        answers.append(answer)
    console.print()
    console.print(f"{RANKS} A wrong answer that the model is sure of gets a high one, too.", soft_wrap=True)
    page = f"{installed_first('serve')}semtoken serve --model {quote(name)}"
    _print_next(console, f'semtoken ask --model {quote(name)} "..."', "on a page    ", page)
    return answers


def _print_next(console: Console, ask: str, what: str, then: str) -> None:
    """What to try after the demo."""
    console.print()
    console.print(f"Next: ask it yourself      {ask}", soft_wrap=True)
    console.print(f"      {what}        {then}", markup=False, soft_wrap=True)
    console.print(
        '      your own model       semtoken ask --model DIRECTORY_OR_HUB_ID_OR_FILE.gguf "..."', soft_wrap=True
    )


def _mark(right: bool, accepted: str) -> Text:
    return Text(" right", style="green") if right else Text(f" wrong: {accepted}", style="red")


BATCH_SIZE = 32
LEAST_SHOWN = 0.02
SHOWN = (
    "In what country is the city of Qingdao?",
    "Berlin lies in what country?",
    "The currency of India is what?",
    "The capital of Lebanon is what city?",
    "Which continent is Isle of Man on?",
    "Which language do people speak in Peru?",
)
"""Dev questions for the idea and its limits: known, spread over names of one meaning, guessed, sure but wrong."""
EXPLANATION = (
    "“Uncertainty” (preset default) counts other spellings of the same word as the same answer. The paper's also "
    "counts words whose embeddings are close: it sees that Germany means Deutschland, but it lets Europe vouch for "
    "Africa. Neither helps where the model is sure and wrong, as in the last line. Rank answers with it, and check "
    "the doubtful ones."
)


@dataclass(frozen=True)
class MarkedAnswer:
    """A question of the embedded set with the model's answer and whether it is right."""

    question: Question
    result: ScoredResponse
    correct: bool


@dataclass(frozen=True)
class PresetFigures:
    """The AUROCs of several uncertainties of the same answers."""

    estimates: Mapping[str, Estimate]
    """AUROC of "probability", "default" and "paper"."""
    differences: Mapping[str, Difference]
    """How much better both presets are than sequence probability, paired."""
    accuracy: float

    @property
    def verdict(self) -> str:
        """The result as a sentence that claims no more than the figures support."""
        return " ".join(verdict(f"Preset {name}", difference) for name, difference in self.differences.items())


def verdict(name: str, difference: Difference) -> str:
    """A sentence on a difference to sequence probability."""
    if math.isnan(difference.value):
        return f"{name}: no comparison ({difference.reason})."
    if difference.low > 0:
        return f"{name} is better than probability here: the interval lies above 0."
    if difference.high < 0:
        return f"{name} is worse than probability here: the interval lies below 0."
    return f"{name} is neither better nor worse than probability here: the interval includes 0."


def demo(
    model: ModelOption = ALMANAC,
    questions: Annotated[int, typer.Option(min=20, help="Test questions for the AUROC.")] = 500,
    save_svg: Annotated[
        Path | None, typer.Option(help="Save the output as a picture.", dir_okay=False, writable=True)
    ] = None,
    force: ForceOption = False,
) -> None:
    """See a small model answer: what it is sure of, what it doubts, and what else it considered.

    The built-in model answers a few chosen questions, right and wrong, and then test questions for the AUROC (0.5: no
    better than chance, 1: perfect) of plain probability and of both presets at telling wrong answers from right ones,
    with 95% bootstrap intervals. With --model, a chat model answers a few questions of its own.

    For example:

    - `semtoken demo`
    - `semtoken demo --model smollm2`, after `semtoken fetch smollm2`
    """
    if save_svg is not None and not save_svg.parent.is_dir():
        raise InvalidInput(f"{save_svg} cannot be written: the folder {save_svg.parent} does not exist.")
    start = time.perf_counter()
    clusters = ALMANAC if model == ALMANAC else None  # the embedded model is also scored by the paper's rules
    choice = ModelChoice(model, clusters=clusters, device="cpu", dtype="float32")
    console = Console(record=True, width=100, highlight=False, emoji=False) if save_svg else out
    stc = choice.load()
    if model == ALMANAC:
        run(stc, demo_set(load_questions("dev")), spread(load_questions("test"), questions), console)
    else:
        demo_real(stc, model, console)
    tell(f"{time.perf_counter() - start:.0f} seconds in all.", style="dim")
    if save_svg is not None:
        # The fonts that rich names are on somebody's server; a picture asks for nothing.
        picture = re.sub(r"@font-face\s*\{.*?\}", "", console.export_svg(title="semtoken demo"), flags=re.DOTALL)
        replace_text(save_svg, picture)
        tell(f"Picture saved as {save_svg}.")


def run(stc: STC, shown: Sequence[Question], tested: Sequence[Question], console: Console) -> PresetFigures:
    """Print answers to the questions `shown`, then the comparison on all of `tested`."""
    console.print(Text("A small language model answers. The redder a word, the less sure it is of it.", style="bold"))
    console.print()
    for marked in answer(stc, shown):
        console.print(show(marked))
    console.print()
    console.print(EXPLANATION, soft_wrap=False)
    with counting(f"answering {len(tested)} test questions", len(tested)) as progress:
        answered = answer(stc, tested, progress)
    comparison = compare(answered)
    console.print()
    console.print(Text(f"Telling wrong answers from right ones, {len(tested)} test questions", style="bold"))
    console.print(comparison_table(comparison))
    console.print(comparison.verdict, soft_wrap=False)
    then = "semtoken fetch smollm2, then semtoken demo --model smollm2"
    _print_next(console, 'semtoken ask --tokens "What is the capital of Peru?"', "a real model ", then)
    return comparison


def demo_set(questions: Sequence[Question]) -> list[Question]:
    """The questions of `SHOWN`, in that order."""
    by_text = {question.question: question for question in questions}
    return [by_text[text] for text in SHOWN if text in by_text]


def spread(questions: Sequence[Question], count: int) -> list[Question]:
    """`count` questions at equal distances through the whole set, or all if there are no more."""
    count = min(count, len(questions))
    return [questions[i * len(questions) // count] for i in range(count)]


def answer(
    stc: STC, questions: Sequence[Question], progress: Callable[[int], None] = lambda done: None
) -> list[MarkedAnswer]:
    """Ask the questions and mark the answers."""
    results = stc.generate(
        [question.prompt() for question in questions],
        MAX_NEW_TOKENS,
        batch_size=BATCH_SIZE,
        stop_at_newline=True,
        on_result=lambda number, result: progress(number + 1),
    )
    return [MarkedAnswer(q, r, is_correct(r.text, q)) for q, r in zip(questions, results, strict=True)]


def paper_log_score(result: ScoredResponse) -> float:
    """The log of the confidence under the paper's rules: the same tokens, compared by meaning."""
    return math.fsum(token.log_probability_under("meaning") for token in result.tokens)


def compare(answered: Sequence[MarkedAnswer]) -> PresetFigures:
    """AUROC of both presets and of sequence probability on the same answers. Logs rank as the scores do."""
    from semtoken.methods.metrics import bootstrap, paired_difference

    correct = [float(a.correct) for a in answered]
    scores = {
        "default": [-a.result.log_score for a in answered],
        "paper": [-paper_log_score(a.result) for a in answered],
        "probability": [-a.result.log_probability for a in answered],
    }
    return PresetFigures(
        estimates={name: bootstrap("auroc", values, correct) for name, values in scores.items()},
        differences={
            name: paired_difference("auroc", scores[name], scores["probability"], correct)
            for name in ("default", "paper")
        },
        accuracy=sum(correct) / len(correct),
    )


def show(answered: MarkedAnswer) -> Text:
    """Question, shaded answer, its mark, its uncertainty by both presets, and what else was considered."""
    from semtoken.display import shaded_text

    result = answered.result
    paper = number(-math.expm1(paper_log_score(result)) + 0.0, 2)
    others = considered(result)
    return Text("\n").join(
        [
            Text(answered.question.question, style="dim"),
            Text("  ") + shaded_text(result) + Text(" ") + _mark(answered.correct, answered.question.answers[0]),
            Text(f"  uncertainty {number(result.uncertainty, 2)} · paper's {paper}")
            + Text(f" · also considered {others}" if others else ""),
        ]
    )


def considered(result: ScoredResponse) -> str:
    """The two most probable other tokens where the answer is least sure: "Germany 24%, DEU 18%"."""
    if not result.tokens:
        return ""
    token = min(result.tokens, key=lambda t: t.log_probability)
    others = [a for a in token.alternatives if a.text.strip() and a.probability >= LEAST_SHOWN]
    return ", ".join(f"{a.text.strip()} {a.probability:.0%}" for a in others[:2])


def comparison_table(comparison: PresetFigures) -> Table:
    """The AUROCs with intervals, and the differences to sequence probability."""
    table = plain_table("uncertainty", "AUROC", "95% interval", "minus probability", numbers=("AUROC",))
    names = {"probability": "sequence probability", "default": "preset default", "paper": "preset paper"}
    for name, title in names.items():
        estimate, difference = comparison.estimates[name], comparison.differences.get(name)
        told = "" if difference is None else f"{difference.value:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"
        table.add_row(title, f"{estimate.value:.3f}", f"{estimate.low:.3f} to {estimate.high:.3f}", told)
    table.add_row(Text(f"{comparison.accuracy:.0%} of the answers are right", style="dim"), "", "", "")
    return table
