"""The prefix sets of an answer: the tokens that spell the beginning of the text from a step on.

The prefix set of step i holds every token whose normalized text is not empty and is a beginning of
`norm(text(y_i..y_n))`. The published code decodes each suffix whole, which is quadratic in the length of the
answer. Normalized vocabulary strings are short, so a suffix is decoded only until no longer string can match.
There are no probabilities and no clusters here.
"""

from __future__ import annotations

import codecs
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from os.path import commonprefix

import numpy as np

from semtoken.clustering.tokenizers import REPLACEMENT
from semtoken.clustering.vocabulary import Vocabulary, clean_up_spaces, normalize
from semtoken.support.arrays import BoolArray, IdArray

FIRST_WINDOW = 4  # tokens decoded at first; doubled until the prefix set is decided
EAGER_LOOKS = 16  # tokens behind a step of an answer in progress at each of which it is looked at again
CLEAN_UP_REACH = 8  # characters at the end that a later token may still change by cleaning up blanks
LAST_CHARACTER = chr(0x10FFFF)  # sorts behind whatever a text goes on with
NO_IDS: IdArray = np.empty(0, dtype=np.int64)


def next_look(waited: int) -> int:
    """The number of tokens from a step on at which its undecided suffix is looked at again.

    It is looked at after each token at first, and later whenever their number has doubled.
    """
    # Each look decodes what has come since, so looking after every token would take the square of the answer's length.
    return waited + 1 if waited < EAGER_LOOKS else 2 * waited


@dataclass(frozen=True, eq=False)
class PrefixIndex:
    """The normalized token strings of a vocabulary, sorted, with the ids that spell each."""

    vocabulary: Vocabulary

    @cached_property
    def _sorted_ids(self) -> IdArray:
        texts = self.vocabulary.normalized
        ids = sorted((i for i, text in enumerate(texts) if text), key=lambda i: (texts[i], i))
        return np.array(ids, dtype=np.int64)

    @cached_property
    def _strings(self) -> list[str]:
        """Distinct normalized strings in code point order."""
        texts = self.vocabulary.normalized
        return list(dict.fromkeys(texts[i] for i in self._sorted_ids))

    @cached_property
    def _starts(self) -> IdArray:
        """The place in `_sorted_ids` at which each string's ids begin (one more entry than strings)."""
        texts = [self.vocabulary.normalized[i] for i in self._sorted_ids]
        firsts = [k for k, text in enumerate(texts) if k == 0 or text != texts[k - 1]]
        return np.array([*firsts, len(texts)], dtype=np.int64)

    @cached_property
    def _beginnings(self) -> tuple[list[int], IdArray, IdArray]:
        """For each string the longest other one that begins it (-1 for none), and all ids that begin it.

        The ids are rows of a sparse table: where each begins (one more entry than strings), and ascending ids.
        """
        strings, starts = self._strings, self._starts.tolist()
        ids = self._sorted_ids.tolist()
        parents: list[int] = []
        rows: list[list[int]] = []
        for k, string in enumerate(strings):  # in order, what begins a string comes before it
            parent = k - 1
            while parent >= 0 and not string.startswith(strings[parent]):
                parent = parents[parent]
            parents.append(parent)
            own = ids[starts[k] : starts[k + 1]]
            rows.append(sorted(rows[parent] + own) if parent >= 0 else own)
        places = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return parents, places, np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(places[-1]))

    @cached_property
    def decides(self) -> BoolArray:
        """For each token, True if it alone decides what the normalized text from there on begins with (bool [V]).

        Blanks, pieces of characters and texts whose end a later token may still change do not, and no token does where
        decoding removes blanks before punctuation.
        """
        vocabulary = self.vocabulary
        if vocabulary.clean_up:
            return np.zeros(vocabulary.size, dtype=bool)
        whole = ~(vocabulary.broken | vocabulary.byte_tokens)
        pairs = zip(vocabulary.texts, vocabulary.normalized, strict=True)
        return np.asarray(whole & np.array([text and self._stable(own) == text for own, text in pairs], dtype=bool))

    @cached_property
    def lengths(self) -> IdArray:
        """The number of characters of each token's normalized text (int64 [V])."""
        return np.array([len(text) for text in self.vocabulary.normalized], dtype=np.int64)

    def beginnings(self, head: str) -> IdArray:
        """Ascending ids of the tokens whose normalized text is a beginning of `head`, or `head` itself."""
        parents, places, ids = self._beginnings
        k = bisect_right(self._strings, head) - 1
        while k >= 0 and not head.startswith(self._strings[k]):
            k = parents[k]
        return ids[places[k] : places[k + 1]] if k >= 0 else NO_IDS

    def continuations(self, head: str) -> IdArray:
        """Ids of the tokens whose normalized text is longer than `head` and begins with it."""
        low = self._first_beyond(head)
        high = bisect_left(self._strings, head + LAST_CHARACTER, lo=low)
        return self._sorted_ids[self._starts[low] : self._starts[high]]

    def candidates(self, heads: Sequence[str]) -> IdArray:
        """Ascending ids of the tokens that may be in the prefix set of a text that begins with one of these."""
        lists = [ids for head in heads for ids in (self.beginnings(head), self.continuations(head))]
        return np.unique(np.concatenate([NO_IDS, *lists]))

    def can_continue(self, head: str) -> bool:
        """Return True if some token's normalized text is longer than `head` and begins with it."""
        first = self._first_beyond(head)
        return first < len(self._strings) and self._strings[first].startswith(head)

    def _first_beyond(self, head: str) -> int:
        """The place of the first text that stands behind `head`."""
        place = bisect_left(self._strings, head)
        return place + (place < len(self._strings) and self._strings[place] == head)

    def prefix_sets(self, token_ids: Sequence[int]) -> list[IdArray]:
        """The prefix set of every step of a complete answer, in time linear in its length."""
        return [self.prefix_set(token_ids, step) for step in range(len(token_ids))]

    def prefix_set(self, token_ids: Sequence[int], step: int) -> IdArray:
        """Ascending ids of the tokens whose normalized text is a beginning of `norm(text(y_step..y_n))`."""
        heads, _ = self.look(token_ids, step, complete=True)
        return self.beginnings(heads[0])

    def look(self, token_ids: Sequence[int], step: int, *, complete: bool) -> tuple[tuple[str, ...], bool]:
        """The possible beginnings of the suffix from a step on, and whether its prefix set is decided.

        Tokens are decoded in growing windows until it is decided. If `complete`, the ids are the whole answer.
        """
        window = FIRST_WINDOW
        while True:
            last = step + window >= len(token_ids)
            heads = self.heads(token_ids[step : step + window], complete=complete and last)
            decided = self.is_decided(heads, complete=complete and last)
            if decided or last:
                return heads, decided
            # Few suffixes need more, such as those that begin with a run of blanks.
            window *= 2

    def is_decided(self, heads: Sequence[str], *, complete: bool) -> bool:
        """Return True if later tokens cannot change the prefix set of a suffix that is known up to `heads`."""
        # Nothing is decided by an empty head: blanks are stripped, so that any text may still follow.
        return complete or (len(heads) == 1 and bool(heads[0]) and not self.can_continue(heads[0]))

    def heads(self, token_ids: Sequence[int], *, complete: bool) -> tuple[str, ...]:
        """The possible beginnings of a suffix's normalized text, given its first tokens.

        One string, or two while it is open whether a run of byte tokens will turn out to be text or broken.
        A head is empty while nothing is sure; blanks at its end count as sure, although the end of an answer
        would strip them, since no normalized token ends in one. If `complete`, the ids are the whole suffix.
        """
        vocabulary = self.vocabulary
        parts = vocabulary.parts(token_ids)
        if complete:
            return (normalize(self._cleaned(vocabulary._join(parts))),)
        if vocabulary.byte_errors == "run" and parts and vocabulary.byte_tokens[parts[-1]]:
            return self._heads_of_open_run(parts)
        return (self._stable(self._without_open_character(parts)),)

    def _cleaned(self, text: str) -> str:
        # The first token of a text brings no blank with it, which cleaning would take for one between words.
        return clean_up_spaces(text.removeprefix(" ")) if self.vocabulary.clean_up else text

    def _without_open_character(self, parts: list[int]) -> str:
        """Text of ids whose last character may still lack bytes: those bytes are left out."""
        vocabulary = self.vocabulary
        if not parts or not vocabulary.broken[parts[-1]]:
            return vocabulary._join(parts)
        errors = "semtoken.each" if vocabulary.byte_errors == "each" else "replace"
        decoder = codecs.getincrementaldecoder("utf-8")(errors)
        return decoder.decode(b"".join(vocabulary._contributions(parts)))

    def _heads_of_open_run(self, parts: list[int]) -> tuple[str, ...]:
        """Both readings of an unfinished run of byte tokens: good so far, or broken by a later byte."""
        vocabulary = self.vocabulary
        first = len(parts)
        while first and vocabulary.byte_tokens[parts[first - 1]]:
            first -= 1
        before = vocabulary._join(parts[:first])
        run = b"".join(vocabulary.pieces[i] for i in parts[first:])
        good = before + run.decode("utf-8", "replace").rstrip(REPLACEMENT)
        broken = before + REPLACEMENT * len(run)
        return tuple(dict.fromkeys((self._stable(good), self._stable(broken))))

    def _stable(self, text: str) -> str:
        """The part of a normalized text that no later token can change."""
        if self.vocabulary.clean_up:
            text = self._cleaned(text)[:-CLEAN_UP_REACH]
        text = text.lstrip()
        lowered, longer = text.lower(), (text + "a").lower()
        # Subtle: a final sigma lowers to another letter once more letters follow.
        return lowered if longer.startswith(lowered) else commonprefix([lowered, longer])  # noqa: RUF071
