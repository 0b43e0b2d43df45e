"""`semtoken ask`: questions in, answers with their confidence out."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from semtoken.choices import PartKind
from semtoken.cli.console import out, print_json, print_scores, say
from semtoken.cli.loading import load_calibrator
from semtoken.cli.model import ModelChoice, ModelOptions, name_built_in
from semtoken.cli.parameters import Calibrator, Json, MaxTokens, NoChatTemplate, Parts, ShowTokens
from semtoken.cli.settings import Read, Settings, SettingsInUse
from semtoken.cli.statuses import UsageError
from semtoken.errors import BudgetExceededError, InvalidInputError
from semtoken.support.almanac import ALMANAC

if TYPE_CHECKING:
    from semtoken import ScoredModel
    from semtoken.core.results import ScoredAnswer
    from semtoken.guarantees.apply import CalibratorInUse
    from semtoken.models.probing import Dispute

LEAST_DISAGREEMENT = 0.01
"""A dispute with less disagreement than this gets no line."""
EXAMPLES = (
    "What is the capital of Australia?",
    "What is the chemical symbol for gold?",
    "Which element has the atomic number 6?",
)
"""Without a question these are asked: some that a small model knows, some that it gets wrong but doubts."""
EXAMPLES_OF_ALMANAC = (
    "In what country is the city of Qingdao?",
    "The currency of India is what?",
    "Which continent is Isle of Man on?",
)


def ask(
    *questions: Annotated[str, Parameter(metavar="QUESTION")],
    choice: ModelOptions = ModelOptions(),  # noqa: B008
    tokens: ShowTokens = False,
    alternatives: bool = False,
    parts: Parts = None,
    calibrator: Calibrator = None,
    image: tuple[Path, ...] = (),
    max_tokens: MaxTokens = 256,
    no_chat_template: NoChatTemplate = False,
    as_json: Json = False,
    in_use: Read[SettingsInUse],
) -> None:
    """Ask a model, and see how confident each answer is.

    Shows the answer, its confidence and its least certain part. Nothing is sampled: all numbers come from the one
    generation.

    Example: `semtoken ask --model smollm2 "What is the capital of Norway?"`

    Parameters
    ----------
    questions
        Questions to ask; - reads them from standard input. Without one, a few examples are asked.
    alternatives
        Show what the model would have said instead; needs further passes.
    image
        Ask about an image; may be repeated.
    """
    if as_json and (alternatives or tokens):
        raise UsageError("--alternatives and --tokens have no effect with --json, which holds all tokens.")
    if image and (alternatives or no_chat_template):
        raise UsageError("--alternatives and --no-chat-template read text only: leave them out with --image.")
    if missing := [path for path in image if not path.is_file()]:
        raise InvalidInputError(f"There is no image {missing[0]}.")
    from semtoken.guarantees.apply import plain_record
    from semtoken.models.prompts import about_images, how_to_ask

    settings = in_use.settings
    model = choice.with_settings(settings)
    asked = _read(questions) or list(EXAMPLES_OF_ALMANAC if model.name == ALMANAC else EXAMPLES)
    stc = model.load(calibrator=calibrator) if calibrator is not None else _loaded(model)
    named = in_use.sources.get("calibration.abstain_text") == "command line"  # that of a file may be meant for servers
    abstain_text = settings.calibration.abstain_text if named or calibrator is not None else None
    applied = load_calibrator(calibrator, stc.scorer.clusters, stc.fingerprint(model.name), abstain_text)
    asking = how_to_ask(model.name, stc.tokenizer, raw=no_chat_template)

    def show(number: int, result: ScoredAnswer) -> None:
        if as_json:
            record = plain_record(asked[number], result, applied, parts)
            if image:
                record["messages"] = prompts[number]
            print_json(record)
        else:
            _print(asked[number], result, applied, tokens=tokens, parts=parts)

    if not as_json:
        name_built_in(model)
    prompts: list[Any] = [about_images(question, image) if image else asking.prompt(question) for question in asked]
    answers = stc.generate(
        prompts,
        max_tokens,
        batch_size=settings.model.batch_size,
        stop_at_newline=asking.stop_at_newline and not image,
        on_result=None if alternatives else show,
    )
    for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True) if alternatives else ()):
        disputes = stc.disputed(prompt, answer, max_steps=4)
        _print(asked[number], answer, applied, tokens=tokens, parts=parts, disputes=disputes)
    if not as_json:
        from semtoken.core.results.confidence import RANKS
        from semtoken.display import legend

        out().print(legend())
        if applied is None:
            say(RANKS, "dim")
        if applied is not None and applied.calibrator.threshold is not None:
            say(applied.calibrator.threshold.statement)


def _loaded(choice: ModelChoice) -> ScoredModel:
    """The model; the embedded one without torch, which takes longer to import than this one to answer."""
    default = ModelOptions().with_settings(Settings())
    if (choice.settings, choice.loading) != (default.settings, default.loading):
        return choice.load()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # several would spend more time on waiting than on work
    from semtoken import ScoredModel
    from semtoken.models.small import SmallBackend

    return ScoredModel(SmallBackend())


def _read(questions: Sequence[str]) -> list[str]:
    """The questions of the command line; for '-' those of standard input, one a line."""
    from semtoken.support.files.safe_files import bounded_lines, reading_errors

    given = list(questions)
    if given == ["-"]:
        try:
            with reading_errors(Path("standard input")):
                # A mark of some editors at the beginning of a file is no part of the first question.
                lines = [line.removeprefix("\ufeff").strip() for line in bounded_lines(sys.stdin)]
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"Standard input is no text in {error.encoding}: save it as UTF-8.") from error
        given = list(filter(None, lines))
        if not given:
            raise InvalidInputError("Standard input holds no question.")
    for number, question in enumerate(given, start=1):
        if not question.strip():
            raise InvalidInputError(f"Question {number} is empty.")
    return given


def _print(
    question: str,
    result: ScoredAnswer,
    applied: CalibratorInUse | None,
    *,
    tokens: bool,
    parts: PartKind | None,
    disputes: Sequence[Dispute] | None = None,
) -> None:
    """The question; the number and the probability; the answer; what was asked for besides."""
    from rich.padding import Padding
    from rich.text import Text

    from semtoken.display import parts_table, shaded_text, summary_line, token_table

    out().print(Text(question, style="bold"))
    hidden = applied is not None and applied.shown(result) != result.text
    first, colon, rest = summary_line(result, hidden=hidden).partition(":")
    out().print(Text("  ").append(first, style="bold").append(f"{colon}{rest}", style="dim"), soft_wrap=True)
    if applied is not None:
        say(f"  {applied.sentence(result)}")
        for flag in applied.calibrator.flags(result, applied.known):
            say(f"  ! {flag.message}", "yellow")
    shown = Text(applied.shown(result)) if applied is not None and hidden else shaded_text(result)
    out().print(Text("  ").append_text(shown))
    if hidden:
        tokens, parts, disputes = False, None, None
    print_scores(result)
    if disputes is not None:
        lines = [dispute.sentence for dispute in disputes if dispute.disagreement >= LEAST_DISAGREEMENT]
        for line in lines or ["what else the model considered says the same"]:
            say(f"  {line}")
    if tokens:
        out().print(Padding(token_table(result), (0, 0, 0, 2)))
    if parts is not None:
        try:
            out().print(Padding(parts_table(result.parts(parts)), (0, 0, 0, 2)))
        except BudgetExceededError as error:
            say(f"  without its parts: {error}", "dim")
    out().print()
