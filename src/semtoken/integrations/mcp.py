"""Tools by which agents see how sure a model is before they act: `semtoken serve --mcp` offers them over stdio."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from semtoken.core.results import ScoredAnswer
from semtoken.core.results.confidence import RANKS
from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.integrations.hosts import require_host
from semtoken.models.probing.p_true import p_true_log_probs
from semtoken.models.prompts import how_to_ask
from semtoken.scored_model import ScoredModel

require_host("mcp")

from mcp.server import MCPServer  # noqa: E402
from mcp.server.mcpserver.exceptions import ToolError  # noqa: E402
from pydantic import BaseModel, Field  # noqa: E402

MOST_TOKENS = 1024
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class ScoreResult(BaseModel):
    """An answer with its confidence."""

    text: str
    confidence: float = Field(description=f"0 to 1 (sure). {RANKS}")
    interval: tuple[float, float] = Field(description="An interval around the exact confidence")
    explanation: str = Field(description="What the confidence is")
    sequence_uncertainty: float = Field(description="0 (sure) to 1, of all tokens; next to 1 for any long answer")
    sequence_uncertainty_interval: tuple[float, float]
    new_word_confidence: float | None = Field(
        None, description="How sure the model was of a typical word that the answer adds, 0 to 1; for long answers"
    )
    probability_correct: float | None = Field(
        None, description="Probability of being right, from labeled answers, if there are some"
    )
    decision: str | None = Field(None, description="'answer' or 'abstain', if there is a calibrated threshold")


class CheckResult(BaseModel):
    """The result of asking the model whether an answer is true."""

    question: str
    answer: str
    probability_true: float = Field(description="P(True) against P(False), 0 to 1; not calibrated")


def server(stc: ScoredModel, name: str, calibrator: CalibratorInUse | None = None) -> MCPServer:
    """A server with the tools `ask`, `score` and `check`; a calibrator adds the probability and the decision.

    `name` is the one by which the model was loaded: the embedded model has a prompt format of its own.
    """
    asking = how_to_ask(name, stc.tokenizer, raw=False)
    app = MCPServer("semtoken", instructions=f"How sure the language model '{name}' is of an answer.")

    def prompt_of(question: str) -> Any:
        if not question.strip():
            raise InvalidInputError("The question is empty.")
        return asking.prompt(question)

    @app.tool()  # type: ignore[untyped-decorator]
    @_with_plain_errors
    def ask(question: str, max_tokens: int = 256) -> ScoreResult:
        """Ask the model; returns its answer and how sure it was."""
        if not 1 <= max_tokens <= MOST_TOKENS:
            raise InvalidInputError(f"max_tokens must be from 1 to {MOST_TOKENS}, got {max_tokens}.")
        [answer] = stc.generate([prompt_of(question)], max_tokens, stop_at_newline=asking.stop_at_newline)
        return _scored(answer, question, calibrator)

    @app.tool()  # type: ignore[untyped-decorator]
    @_with_plain_errors
    def score(question: str, answer: str) -> ScoreResult:
        """How sure the model would have been of an answer that somebody else gave to a question."""
        [scored] = stc.score([prompt_of(question)], [answer])
        return _scored(scored, question, calibrator)

    @app.tool()  # type: ignore[untyped-decorator]
    @_with_plain_errors
    def check(question: str, answer: str) -> CheckResult:
        """Ask the model whether an answer is true. It says what the model believes; it looks nothing up."""
        prompt_of(question)
        true, false = p_true_log_probs(stc, [question], [answer])[0].tolist()
        return CheckResult(
            question=question, answer=answer, probability_true=1.0 / (1.0 + math.exp(min(false - true, 700.0)))
        )

    return app


def _with_plain_errors(tool: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The tool, whose refusals reach the agent in their own words; of any other error it gets the tool's name alone."""

    @functools.wraps(tool)
    def called(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return tool(*args, **kwargs)
        except SemtokenError as error:
            raise ToolError(str(error)) from error

    return called


def _scored(answer: ScoredAnswer, question: str, calibrator: CalibratorInUse | None) -> ScoreResult:
    block = {} if calibrator is None else calibrator.block(answer)
    new_words = answer.new_word_confidence(question)
    return ScoreResult(
        text=answer.text,
        confidence=answer.confidence,
        interval=answer.confidence_interval,
        explanation=answer.explanation,
        sequence_uncertainty=answer.sequence_uncertainty,
        sequence_uncertainty_interval=answer.sequence_uncertainty_interval,
        new_word_confidence=new_words,
        probability_correct=block.get("probability_correct"),
        decision=block.get("decision"),
    )
