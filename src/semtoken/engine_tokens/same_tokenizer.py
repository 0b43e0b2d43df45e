"""Whether a model behind an API has the tokenizer of some clusters, as far as the tokens in its replies can tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from semtoken.engine_tokens.token_names import is_markup, token_names
from semtoken.engine_tokens.top_steps import TopStep, TopToken
from semtoken.errors import VocabularyMismatch
from semtoken.tokens.vocabulary import Vocabulary

ENOUGH = 20  # distinct tokens; any two tokenizers share the short ones
LONG = 5  # bytes from which on a token says something about a tokenizer


@dataclass(frozen=True)
class SharedVocabulary:
    """How the tokens of some replies compare with a vocabulary, by their bytes."""

    n_tokens: int
    """Distinct tokens whose bytes (or clear strings) are known, special ones apart."""
    n_fitting: int
    """Those of them that the vocabulary has."""
    n_long: int
    """Tokens of five bytes and more among the fitting ones: those that other tokenizers often lack."""
    misfits: tuple[str, ...]
    """The others, at most ten of them."""

    @property
    def fits(self) -> bool:
        """No token speaks against the vocabulary."""
        return self.n_fitting == self.n_tokens

    @property
    def enough(self) -> bool:
        """Tokens enough, and long ones among them, to call it the same tokenizer."""
        return self.fits and self.n_tokens >= ENOUGH and self.n_long * 4 >= self.n_tokens

    def require(self, model: str) -> None:
        """Raise `VocabularyMismatch` if a token speaks against the vocabulary."""
        if self.fits:
            return
        raise VocabularyMismatch(
            f"{self.n_tokens - self.n_fitting} of {self.n_tokens} tokens of {model} are not in the vocabulary of the "
            f"clusters ({', '.join(self.misfits)}): it has another tokenizer, and these clusters cannot score it."
        )


def check_shared_vocabulary(steps: Iterable[TopStep], vocabulary: Vocabulary) -> SharedVocabulary:
    """Compare every token that some replies name with a vocabulary.

    Parameters
    ----------
    steps
        Of one reply or of several; the alternatives count, too.
    vocabulary
        That of the clusters.
    """
    tokens = {spelled: token for step in steps for token in (step.chosen, *step.top) if (spelled := _spelled(token))}
    names = token_names(vocabulary)
    misfits = [token.name for spelled, token in tokens.items() if not names.candidates(None, None, spelled)]
    return SharedVocabulary(
        n_tokens=len(tokens),
        n_fitting=len(tokens) - len(misfits),
        n_long=sum(len(spelled) >= LONG for spelled in tokens) - sum(len(m) - 2 >= LONG for m in misfits),
        misfits=tuple(misfits[:10]),
    )


def _spelled(token: TopToken) -> bytes | None:
    """Bytes of a token that both names can be compared by; None for special tokens and pieces without bytes."""
    if is_markup(token.bytes or token.text):
        return None
    if token.bytes is not None:
        return token.bytes or None
    if token.text is None or "\N{REPLACEMENT CHARACTER}" in token.text:
        return None
    return token.text.encode("utf-8", "surrogatepass") or None
