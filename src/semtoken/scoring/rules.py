"""Presets, ablations and function-word rules: what counts as consistent with a token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from semtoken.errors import InvalidInput
from semtoken.vocabulary import BoolArray, Vocabulary

Preset = Literal["paper", "default"]
FunctionWords = Literal["paper", "whole-word", "off"]


@dataclass(frozen=True)
class ScoringRules:
    """The switches of one scoring run."""

    preset: Preset = "default"
    """`paper` reproduces the published code; `default` does not call an answer of neutral tokens certain."""
    function_words: FunctionWords = "paper"
    """`paper`: stopwords and blank tokens are neutral wherever they stand. `whole-word`: stopwords only where the
    token starts a word and does not open the answer. `off`: no token is neutral."""
    clustering: bool = True
    """Count the mass of the chosen token's cluster."""
    prefix_matching: bool = True
    """Count the mass of tokens that spell the beginning of what follows."""

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("preset", self.preset, get_args(Preset)),
            ("function_words", self.function_words, get_args(FunctionWords)),
        ):
            if value not in allowed:
                raise InvalidInput(f"{name} must be one of {', '.join(map(repr, allowed))}. Got {value!r} instead.")

    @property
    def effective_function_words(self) -> FunctionWords:
        """Without clusters and prefixes the score is the sequence probability, so nothing is neutral either."""
        return self.function_words if self.clustering or self.prefix_matching else "off"

    @property
    def signature(self) -> str:
        """The switches in one line."""
        switches = {"clustering": self.clustering, "prefix": self.prefix_matching}
        off = "".join(f"|{name}:off" for name, on in switches.items() if not on)
        return f"preset:{self.preset}|words:{self.effective_function_words}{off}"

    def neutral_masks(self, vocabulary: Vocabulary) -> tuple[BoolArray, BoolArray]:
        """Which tokens are neutral where they open an answer, and elsewhere (two bool [V])."""
        neutral = vocabulary.neutral
        match self.effective_function_words:
            case "paper":
                return neutral, neutral
            case "whole-word":
                return vocabulary.blank, vocabulary.blank | (neutral & vocabulary.word_start)
            case _:
                return neutral & False, neutral & False
