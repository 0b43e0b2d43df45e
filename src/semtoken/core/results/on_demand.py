"""Fields of a scored answer that are found when somebody reads them: its tokens, and the signature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from semtoken.core.results.confidence import Confidence
from semtoken.core.scored_token import Alternative, ScoredToken, TokenMark
from semtoken.errors import InvalidInputError


@dataclass(frozen=True)
class TokensLater:
    """The tokens of an answer, made only when somebody asks for them."""

    n_tokens: int
    """The number of tokens."""
    make: Callable[[], tuple[ScoredToken, ...]]
    """Makes the records of the tokens."""
    marks: Callable[[], Sequence[TokenMark]] | None = None
    """Gives `ScoredAnswer.marks` without making the records; None where that would cost as much."""
    confidence: Confidence | None = None
    """The confidence of the answer, kept where there are no tokens to compute it from; else None."""
    by_spelling: bool = False
    """True if tokens of the same spelling are what agrees, so that the marks say all that parts of prose need."""
    alternatives: Callable[[Sequence[int]], Sequence[tuple[Alternative, ...]]] | None = None
    """Gives the alternatives of the tokens at some places without making the records of all."""

    @classmethod
    def missing(cls, n_tokens: int, confidence: Confidence, why: str) -> TokensLater:
        """Tokens that are not at hand: reading them raises `InvalidInputError`, which says why."""

        def refuse() -> NoReturn:
            raise InvalidInputError(f"There are no tokens: {why}.")

        return cls(n_tokens, refuse, confidence=confidence)


class TokensField:
    """The field `tokens` of a scored answer, which may be made with `TokensLater` instead."""

    def __get__(self, response: Any, owner: type | None = None) -> tuple[ScoredToken, ...]:
        tokens: tuple[ScoredToken, ...] | TokensLater = vars(response)["tokens"]
        if isinstance(tokens, TokensLater):
            # Kept from here on: who reads one token reads most of them.
            tokens = tokens.make()
            vars(response)["tokens"] = tokens
        return tokens

    def __set__(self, response: Any, tokens: tuple[ScoredToken, ...] | TokensLater) -> None:
        vars(response)["tokens"] = tokens


QUESTION_UNKNOWN = "question:unknown"
"""Ends the signature of an answer whose question is not known: its confidence is another number than with it."""


def without_question(signature: str) -> str:
    """A signature as far as it does not say that the question was not known."""
    return signature.removesuffix(f"|{QUESTION_UNKNOWN}")


class SignatureField:
    """The field `signature` of a scored answer: it follows the field `question`, whichever of them was given first."""

    def __get__(self, response: Any, owner: type | None = None) -> str:
        rules: str = vars(response)["signature"]
        return rules if response.question is not None else f"{rules}|{QUESTION_UNKNOWN}"

    def __set__(self, response: Any, signature: str) -> None:
        vars(response)["signature"] = without_question(signature)
