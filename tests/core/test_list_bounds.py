"""The mass that may agree with the last token of an answer, by hand: at least, at most, and the flags of the answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from semtoken import TokenClusters, Vocabulary, score_logprobs
from semtoken.core import ScoringRules
from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.core.engine_tokens.top_steps import NOT_GIVEN
from tests.core.lists import CITIES, EXACT, HALVES, agreeing, codes, in_bytes, step, token, words
from tests.core.test_top_logprobs import clusters as television

BOTH = (CITIES, None)
"""With a vocabulary and without one."""
Tokens = TokenClusters | Vocabulary | None
DEFAULT = ScoringRules()
NAMED_BY_NOTHING = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Case:
    """The lists of an answer's steps, and what is known of the last one with each of the tokens in `within`."""

    bounds: tuple[float, float]
    steps: list[Any]
    within: tuple[Tokens, ...] = (CITIES,)
    rules: ScoringRules = DEFAULT
    flags: tuple[str, ...] = ()
    text: str | None = None


def clusters(*texts: str, labels: tuple[int, ...] = ()) -> TokenClusters:
    """Tokens each of which means something else, unless they have the same label."""
    return TokenClusters(np.array(labels or range(len(texts))), words(*texts))


MEANING = ScoringRules(equality="meaning", function_words="off")
OSLO, ROME = in_bytes(0.6, "Oslo"), in_bytes(0.3, "Rome")
NO_NUMBER = -9999.0
TWO_OSLOS = words("Oslo", "oslo", "oslo", "Rome")
"""In a list by texts the lost "oslo" may have all of what is missing, whatever is the smallest in the list."""
BYTE_TOKENS = words("x", "y", "x", "y", byte_tokens=(2, 3))
THREE_XS = words(" x", "x", "x", "Rome", byte_tokens=(2,))
ID_AND_X = (token(0.5, id=0), token(0.2, spelled=b"x", id=1))
TINY = in_bytes(1.0, "Oslo")._replace(log_prob=-800.0)
RARE = token(0.001, id=1)
UNKNOWN = in_bytes(1.0, " Oslo")._replace(log_prob=NO_NUMBER)
IDS_ALONE = TopStep(token(0.6, "Rome", id=5), (token(0.3, id=7),))
WITH_WORDS = ScoringRules(equality="meaning")
TELEVISION = (television(),)
ONE_END, TWO_ENDS = (clusters("x", "", "y"),), (clusters("x", "", ""),)
END = token(0.6, "<|end|>")
ALONE = ("no_alternatives", "special_names")
END_BEHIND = (0, {0: token(0.6).log_prob})
PIECE = step(token(0.9, NAMED_BY_NOTHING))

CASES = {
    "a text that two tokens share hides what one of them has": Case(
        (0.3, 0.95),
        [TopStep(token(0.2, id=0), (token(0.1, "oslo"), token(0.05, "Rome")))],
        within=(TWO_OSLOS,),
        flags=("ambiguous_names",),
    ),
    "so does a letter beside its byte token": Case(
        (0.1, 0.95), [step(token(0.1, "x"), token(0.05, "y"))], within=(BYTE_TOKENS,)
    ),
    "a list by bytes hides neither": Case(
        (0.1, 0.15), [TopStep(token(0.1, "x"), (in_bytes(0.05, "y"),))], within=(BYTE_TOKENS,)
    ),
    "the second entry of a letter is its byte token": Case(
        (0.8, 0.9), [step(*ID_AND_X, token(0.1, spelled=b"x"))], within=(THREE_XS,), flags=("ambiguous_names",)
    ),
    "with the same number it is the letter again": Case(
        (0.7, 0.9), [step(*ID_AND_X, token(0.2, spelled=b"x"))], within=(THREE_XS,)
    ),
    "older servers give the number of the chosen token in the list alone": Case(
        (0.6, 0.6), [TopStep(OSLO._replace(log_prob=NO_NUMBER), (OSLO, ROME))], within=BOTH, rules=EXACT
    ),
    "a text without a number is the only token of this text": Case(
        (0.6, 0.7), [TopStep(token(0.6, "Oslo")._replace(log_prob=NO_NUMBER), (token(0.6, "Oslo"), token(0.3, "Rome")))]
    ),
    "without a vocabulary it may be another token than the same text in the list": Case(
        (0.0, 0.7),
        [TopStep(token(0.6, "Oslo")._replace(log_prob=NO_NUMBER), (token(0.6, "Oslo"), token(0.3, "Rome")))],
        within=(None,),
        flags=("missing_log_probability", "ambiguous_names"),
    ),
    "an entry without a number may have all of the missing 0.4": Case(
        (0.5, 0.9), [step(in_bytes(0.5, "Oslo"), in_bytes(0.1, "Rome"), UNKNOWN)], within=BOTH
    ),
    "it is no alternative": Case(
        (0.5, 1.0), [step(in_bytes(0.5, "Oslo"), UNKNOWN)], within=BOTH, flags=("no_alternatives",)
    ),
    "an entry of probability zero is known": Case(
        (0.5, 0.5), [step(token(0.5, id=0), token(0.1, id=1), token(0, id=2))]
    ),
    "a probability too small for a float is zero": Case(
        (0.0, 0.4), [TopStep(TINY, (in_bytes(0.6, "Rome"), TINY))], within=BOTH, flags=("missing_log_probability",)
    ),
    "also where it is listed twice": Case(
        (0.0, 0.4),
        [TopStep(TINY, (in_bytes(0.6, "Rome"), TINY, TINY))],
        within=BOTH,
        flags=("missing_log_probability",),
    ),
    "ids alone may be spelled in any way beside a name": Case(
        (0.6, 1.0), [IDS_ALONE], within=(None,), flags=("unmapped_names",)
    ),
    "the very token is another than the ids of others": Case((0.6, 0.6), [IDS_ALONE], within=(None,), rules=EXACT),
    "a list of ids": Case(
        (0.6, 1.0),
        [{17: token(0.6).log_prob, 4: token(0.3).log_prob}],
        within=(None,),
        flags=("unnamed_pieces", "unmapped_names"),
    ),
    "a list of ids, of which the very one counts": Case(
        (0.6, 0.6),
        [{17: token(0.6).log_prob, 4: token(0.3).log_prob}],
        within=(None,),
        rules=EXACT,
        flags=("unnamed_pieces",),
    ),
    "two pieces of characters without names are other tokens than a word": Case(
        (0.6, 0.7),
        [step(token(0.6, "Rome"), token(0.2, NAMED_BY_NOTHING), token(0.1, NAMED_BY_NOTHING))],
        within=(None,),
    ),
    "and so is a word beside such a piece": Case(
        (0.6, 0.6), [step(token(0.6, NAMED_BY_NOTHING), token(0.3, "a"))], within=(None,), flags=("unnamed_pieces",)
    ),
    "a second number of a text that cannot agree is not known to be another token's": Case(
        (0.6, 0.8), [step(token(0.6, "Oslo"), token(0.2, "Rome"), token(0.1, "Rome"))], within=(None,)
    ),
    "another token of the chosen one's text is spelled alike": Case(
        (0.6, 0.7),
        [TopStep(token(0.4, "Oslo"), (token(0.3, "b"), token(0.2, "Oslo")))],
        (None,),
        flags=("two_numbers",),
    ),
    "but a line break agrees with no other one": Case(
        (0.4, 0.6),
        [step(token(0.9, "a"), token(0.1, "b")), TopStep(token(0.4, "\n"), (token(0.3, "b"), token(0.2, "\n")))],
        within=(None, words("a", "b", "\n")),
        flags=("two_numbers",),
    ),
    "nor does a special token": Case(
        (0.4, 0.7),
        [step(token(0.9, "a"), token(0.1, "b")), TopStep(token(0.4, "</s>"), (token(0.3, "b"), token(0.2, "</s>")))],
        within=(None,),
        flags=("two_numbers",),
    ),
    "another token that is listed twice counts once": Case(
        (0.6, 0.8), [step(OSLO, in_bytes(0.2, "Rome"), in_bytes(0.2, "Rome"))], within=BOTH
    ),
    "also in a list without the chosen one": Case(
        (0.6, 0.8), [TopStep(OSLO, (in_bytes(0.2, "Rome"), in_bytes(0.2, "Rome")))], within=BOTH
    ),
    "names of more than everything leave nothing open": Case(
        (0.6, 0.6), [step(in_bytes(0.6, " Rome"), in_bytes(0.44, " Lima"))], within=(None,), flags=("overfull",)
    ),
    "a line break agrees with itself alone": Case(
        (0.5, 0.5),
        [step(in_bytes(0.9, " Paris")), step(in_bytes(0.5, "\n"), in_bytes(0.3, "\n\n"))],
        within=(None,),
        flags=("no_alternatives",),
    ),
    "a name as in files may be the blank word or one that begins with that letter": Case(
        (0.6, 1.0), [step(token(0.6, "ĠParis"), token(0.3, "Paris"))], within=(None,), flags=("ambiguous_names",)
    ),
    "no file has a name with a blank": Case(
        (0.9, 0.9), [step(token(0.6, " Paris"), token(0.3, "Paris"), token(0.1, "ĠParis"))], within=(None,)
    ),
    "markup in the text": Case(
        (0.8, 1.0),
        [step(in_bytes(0.9, "a")), step(in_bytes(0.8, "</div>"), in_bytes(0.1, "</DIV>"))],
        within=(None,),
        text="a</div>",
        flags=("no_alternatives", "ambiguous_names"),
    ),
    "markup at the end": Case(
        (0.8, 1.0),
        [step(in_bytes(0.9, "a")), step(in_bytes(0.8, "</div>"), in_bytes(0.1, "</DIV>"))],
        within=(None,),
        text="a",
        flags=("no_alternatives", "ambiguous_names"),
    ),
    "a name after a piece of a character may be the token's own, or that of the whole character": Case(
        (0.3, 0.8),
        [PIECE, step(token(0.3, " \u00df"), token(0.4, "\u00df"), token(0.2, " h"))],
        within=(None,),
        flags=("no_alternatives", "ambiguous_names", "unnamed_pieces"),
    ),
    "also where the list has bytes": Case(
        (0.6, 1.0),
        [PIECE, step(in_bytes(0.6, "İst"), in_bytes(0.1, " İst"))],
        within=(None,),
        flags=("no_alternatives", "ambiguous_names"),
    ),
    "the only special token is meant by its name": Case(
        (0.6, 0.6), [END_BEHIND, step(END, token(0.2, id=2))], within=ONE_END, rules=MEANING, flags=("no_alternatives",)
    ),
    "the name of one of two may be either": Case(
        (0.6, 0.6), [END_BEHIND, step(END)], within=TWO_ENDS, rules=MEANING, flags=ALONE
    ),
    "two special tokens with names of their own are two": Case(
        (0.6, 0.6),
        [END_BEHIND, step(END, token(0.3, "<|pad|>"))],
        within=TWO_ENDS,
        rules=MEANING,
        flags=ALONE,
    ),
    "which of them does not matter beside a word": Case(
        (0.6, 0.6), [step(token(0.6, id=0), token(0.3, "<|end|>"))], within=TWO_ENDS, rules=MEANING
    ),
    "beside the id of one of them it matters": Case(
        (0.6, 0.9),
        [step(token(0.6, id=1), token(0.3, "<|end|>"))],
        within=TWO_ENDS,
        rules=MEANING,
        flags=("ambiguous_names",),
    ),
    "if the end is the first of two the word of its cluster agrees with it": Case(
        (0.3, 0.8),
        [
            step(token(0.2, id=3), token(0.5, id=0)),
            TopStep(token(0.3, "<|end|>"), (token(0.5, id=0), token(0.3, "<|end|>"), token(0.2, id=3))),
        ],
        within=(clusters("x", "", "", "y", labels=(0, 0, 1, 2)),),
        rules=MEANING,
        flags=("special_names", "rivals_counted"),
    ),
    "a chosen token behind the best says nothing of the others": Case(
        (0.001, 0.2), [TopStep(RARE, (token(0.6, id=6), token(0.2, id=5), RARE))], TELEVISION, WITH_WORDS
    ),
    "it is found there by its id though the list has bytes": Case(
        (0.001, 0.4), [TopStep(RARE, (in_bytes(0.6, " Paris"), in_bytes(0.001, " TV")))], TELEVISION, WITH_WORDS
    ),
    "a half of a character is known by its bytes": Case(
        (0.5, 0.5), [step(token(0.5, spelled=b"\xc3"))], within=(HALVES,), flags=("no_alternatives",)
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bounds_and_flags_of_a_list(name: str) -> None:
    one = CASES[name]
    for vocabulary in one.within:
        scored = score_logprobs(one.steps, vocabulary, one.rules, text=one.text)
        assert scored.tokens[-1].agreeing_bounds == pytest.approx(one.bounds, abs=1e-4)
        assert scored.empty or len(one.steps) > 1 or agreeing(scored) == pytest.approx(one.bounds, abs=1e-4)
        assert codes(scored) == list(one.flags)
        assert one.text in (None, scored.text)


@pytest.mark.parametrize("rules", [DEFAULT, EXACT], ids=["default", "exact"])
@pytest.mark.parametrize("unknown", [-math.inf, NOT_GIVEN])
def test_entries_named_as_a_chosen_token_without_a_number_give_it_none(unknown: float, rules: ScoringRules) -> None:
    """Any of them may be that token, or none, so that they count for the upper end."""
    listed = [token(0.2, "x"), token(0.1, "x"), token(0.3, "y")]
    scored = score_logprobs([TopStep(TopToken(unknown, None, "x"), listed)], preset=rules)
    assert scored.log_confidence == -math.inf and agreeing(scored)[0] == 0
    assert agreeing(scored)[1] >= 0.2 + 0.1 and codes(scored)[0] == "missing_log_probability"
