"""The passes that find out which ways of reading a model give the numbers of one plain pass.

Batches, padding, caches and transformers' own `generate` are ways to need fewer passes. Whether a model gives
the same numbers in each is no matter of its name or of its signature, so a few short passes (60 tokens at most) find
out when it is first used; what differs is not used.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.errors import ModelError, one_line_of
from semtoken.models.prompt_ids import pad
from semtoken.models.transformers.anatomy import inner_model
from semtoken.models.transformers.caches import SharedPrefix, copied, is_repeatable, joined_caches, keeps_all
from semtoken.models.transformers.generate_settings import PLAIN, answering_once, generate_inputs
from semtoken.models.transformers.passes import ARGUMENTS, Passes, cache_of
from semtoken.models.transformers.proof import Generates, Proof, kept_proof
from semtoken.models.transformers.trees import TokenTree

WINDOWS = ("sliding_window", "attention_window_size", "attention_chunk_size", "index_topk", "floor_scale")
"""Settings that say how many tokens a layer sees, or from which place on it weighs them otherwise."""
LENGTH = 7
"""Tokens of the text that is read in all ways."""
STEPS = 2
"""Passes of `generate` that are compared."""


@dataclass(frozen=True, eq=False)
class _ReadRows:
    """Rows of a batch that were read, each the beginning of the text."""

    passes: Passes
    cache: Any
    """Keys and values of all rows; whoever goes on from a repeatable one takes a copy."""
    gaps: list[float]
    """The distance of each row from the plain pass, at the tokens that were looked at."""


def proof_of(model: Any, vocabulary: Vocabulary, padding: int) -> Proof:
    """The proof of a model, which is made if none was kept; nothing may watch the model meanwhile.

    `ModelError` if two equal passes differ, or if what the model predicts depends on tokens that come later.
    """

    def make() -> Proof:
        with warnings.catch_warnings(), torch.inference_mode():  # about arguments that are only tried
            warnings.simplefilter("ignore")
            return _Prover(model, vocabulary, padding).proof()

    return kept_proof(model, make)


@dataclass
class _Prover:
    """The passes over a model."""

    model: Any
    vocabulary: Vocabulary
    padding: int
    read: int = 0
    """The number of tokens that were read."""

    def proof(self) -> Proof:
        """The proof, each way only where those that it rests on hold."""
        if not bool(torch.isfinite(self.expected).any(dim=-1).all()):
            return Proof(tokens=self.read)  # the first answer says at which step there are no numbers
        first, (follows, pads) = self.first, self._windows()
        proof = Proof(tuple(sorted(first.passes.takes)))
        if first.gaps[1] > self.tolerance:  # rows of one length in one pass are not equal
            self._require_causal()
        else:
            further = self._further()
            padded = pads and max(first.gaps[0], further.gaps[0]) <= self.tolerance
            continued = follows and further.cache is not None and further.gaps[1] <= self.tolerance
            joins = continued and padded and is_repeatable(further.cache)
            proof = replace(
                proof,
                padded=padded,
                continued=continued,
                joined=joins and _holds(lambda: self._joins(further)),
                trees=continued and self._reads_trees(),
            )
        return replace(proof, generates=self._generates(follows=follows, pads=pads), tokens=self.read)

    @cached_property
    def ids(self) -> list[int]:
        """The text that is read in all ways. What the model takes for padding is in it if the tokenizer does not."""
        ordinary = np.flatnonzero(~(self.vocabulary.special | self.vocabulary.blank))
        places = np.random.default_rng(0).choice(len(ordinary), LENGTH, replace=len(ordinary) < LENGTH)
        text_ids = [int(token) for token in ordinary[places]]
        own = getattr(self.model.config.get_text_config(), "pad_token_id", None)
        if type(own) is int and own != self.padding and 0 <= own < self.vocabulary.size:
            text_ids[1] = own
        return text_ids

    @cached_property
    def expected(self) -> torch.Tensor:
        """[LENGTH, V] log-probabilities behind each token, of a plain pass."""
        try:
            return self._log_probs(self._whole(LENGTH))
        except Exception as error:  # of a model of others
            raise ModelError(f"{self._name} cannot read {LENGTH} ordinary tokens: {one_line_of(error)}") from error

    def _rounding(self, noise: float) -> float:
        """The largest relative difference that is rounding, given that of a row that is read as in a plain pass."""
        least = least_rounding(self.model.dtype)
        return min(max(least, 8 * noise), 4 * least)

    @cached_property
    def tolerance(self) -> float:
        """The largest difference of what is equal, by the row without padding of the first pass."""
        return self._rounding(self.first.gaps[1])

    def _windows(self) -> tuple[bool, bool]:
        """Find out whether a plain pass over a long text sees no more of it than the cache keeps, and whether padding
        changes nothing in one, asked with windows of 3 tokens in a copy of the model.
        """
        config = self.model.config.get_text_config()
        wide = {name: value for name in WINDOWS if type(value := getattr(config, name, None)) is int and value > LENGTH}
        if not wide:
            return True, True
        kept = {getattr(layer, "sliding_window", None) for layer in getattr(self.first.cache, "layers", ())}
        try:
            narrow = with_shared_weights(self.model)
        except Exception:  # as in `_first_with`: then nothing is known of long texts
            return False, False
        for holder in (narrow.config.get_text_config(), *narrow.modules()):
            for name in wide:
                if name in vars(holder):
                    setattr(holder, name, 3)
        row = pad([self.ids[:5], self.ids[:6]], self.padding, left=True)
        self.read += 11
        try:
            short = self._log_probs(Passes(narrow).whole(self.ids[:5], 5))
            follows = difference(short[4], self.expected[4]) > self.tolerance or not kept & set(wide.values())
            passes = Passes(narrow, self.first.passes.takes)
            logits = self._log_probs(passes.rows(row.ids[:1], mask=row.mask[:1]).logits[0, -1])
            return follows, difference(logits, short[4]) <= self.tolerance
        except Exception:  # as in `_first_with`: an attention that cannot be asked
            return True, True

    @property
    def _name(self) -> str:
        return type(inner_model(self.model)).__name__

    def _log_probs(self, logits: torch.Tensor) -> torch.Tensor:
        return logits[..., : self.vocabulary.size].double().log_softmax(-1)

    def _whole(self, length: int) -> torch.Tensor:
        self.read += length
        return Passes(self.model).whole(self.ids[:length], length)

    def _differences(self, logits: torch.Tensor, places: Sequence[int]) -> list[float]:
        """The distances of rows of logits [n, columns] from those behind some places, in units of their spread."""
        rows = zip(self._log_probs(logits), self.expected[list(places)], strict=True)
        return [difference(row, expected) for row, expected in rows]

    def _equal(self, logits: torch.Tensor, places: Sequence[int]) -> bool:
        return max(self._differences(logits, places)) <= self.tolerance

    def _read(self, passes: Passes, lengths: Sequence[int], new: int, keep: int, cache: Any = None) -> _ReadRows:
        """Read the `new` last columns of rows of the text in one pass, and look at the last `keep` tokens of each."""
        batch = pad([self.ids[:length] for length in lengths], self.padding, left=True)
        output = passes.rows(batch.ids[:, -new:], mask=batch.mask, cache=cache, keep=keep)
        self.read += len(lengths) * new
        each = zip(output.logits[:, -keep:], lengths, strict=True)
        gaps = [max(self._differences(logits, range(length - keep, length))) for logits, length in each]
        return _ReadRows(passes, cache_of(output), gaps)

    @cached_property
    def first(self) -> _ReadRows:
        """Two and four tokens in one padded batch: with the arguments that the model takes, without any if more rows
        are equal then.
        """
        loosest = self._rounding(float("inf"))

        def equal(rows: _ReadRows) -> int:
            return sum(gap <= loosest for gap in rows.gaps)

        failed = _ReadRows(Passes(self.model), None, [float("inf")] * 2)
        taken = (ARGUMENTS, frozenset({"position_ids"}), frozenset({"logits_to_keep"}))
        given = next(filter(None, map(self._first_with, taken)), failed)
        return given if equal(given) == 2 else max(given, self._first_with(frozenset()) or failed, key=equal)

    def _first_with(self, takes: frozenset[str]) -> _ReadRows | None:
        try:
            return self._read(Passes(self.model, takes), (2, 4), new=4, keep=1)
        except Exception:  # a model of others raises what it likes at an argument it does not know
            return None

    def _require_causal(self) -> None:
        name = self._name
        if not self._equal(self._whole(4), range(4)):
            if not self._equal(self._whole(LENGTH), range(LENGTH)):
                raise ModelError(f"{name} gives other numbers when it reads the same text again, so none can be right.")
            raise ModelError(
                f"What {name} predicts after a token changes with the tokens that follow, so it gives no probability "
                "for an answer that is written token by token. Some such models can be loaded as a decoder "
                "(is_decoder=True), or without dynamic quantization."
            )

    def _further(self) -> _ReadRows:
        """Two tokens more for both rows; without a cache where the model gives none, or cannot go on from it."""
        first = self.first
        if first.cache is not None:
            cache = copied(first.cache) if is_repeatable(first.cache) else first.cache
            with suppress(Exception):  # as in `_first_with`
                return self._read(first.passes, (4, 6), new=2, keep=2, cache=cache)
        return _ReadRows(first.passes, None, [first.gaps[0], float("inf")])

    def _joins(self, further: _ReadRows) -> bool:
        """Return True if rows of the caches of both passes go on together."""
        cache = joined_caches([(further.cache, [0, 1]), (copied(self.first.cache), [0])], 6)
        together = self._read(further.passes, (5, 7, 3), new=1, keep=1, cache=cache)
        return max(together.gaps) <= self.tolerance

    def _reads_trees(self) -> bool:
        """Return True if a tree of tokens is read as its texts are: two tokens behind the same three."""
        usable = (
            self.first.passes.takes == ARGUMENTS
            and bool(getattr(inner_model(self.model), "_supports_attention_backend", False))
            and getattr(self.model.config, "_attn_implementation", None) in ("eager", "sdpa")
            and self.first.gaps[0] <= self.tolerance
        )

        def reads() -> bool:
            known = SharedPrefix((), joined_caches([(copied(self.first.cache), [1])], 4)).cut(2)
            tree = TokenTree.of([[self.ids[2], self.ids[6]], [self.ids[2], self.ids[3]]])
            self.read += len(tree.ids)
            logits = tree.read(self.first.passes, 2, range(3), np.array([0, 2]), known).logits[0]
            return len(logits) == 2 and self._equal(logits, (2, 3))

        # a layer may have a window that seven tokens do not fill: its cache does not keep all
        return usable and keeps_all(self.first.cache) and _holds(reads)

    # --- transformers' own generate ------------------------------------------------------------------------------

    def _generates(self, *, follows: bool, pads: bool) -> Generates:
        """The batches in which `generate` may be used: of one length where padding changes long texts."""
        if not follows:
            return "never"
        differences = self._generated([2, 4])
        tolerance = self._rounding(differences[1])
        if max(differences[1::2]) <= tolerance:
            return "padded" if pads and max(differences) <= tolerance else "equal"
        return "alone" if max(self._generated([4])) <= self.tolerance else "never"

    def _generated(self, starts: Sequence[int]) -> list[float]:
        """Differences step by step and row by row of what `generate` reads when its choices are those of the text.
        The prompts are beginnings of the text.
        """
        batch = pad([self.ids[:start] for start in starts], self.padding, left=True)
        self.read += batch.ids.size + len(starts) * (STEPS - 1)
        texts = [self.ids[start : start + STEPS] for start in starts]
        places = [[start - 1 + step for start in starts] for step in range(STEPS)]
        try:
            written = forced_logits(self.model, generate_inputs(Passes(self.model), batch), texts, self.padding)
            return [gap for logits, at in zip(written, places, strict=True) for gap in self._differences(logits, at)]
        except Exception:  # as in `_first_with`
            return [float("inf")] * len(starts)


def with_shared_weights(model: Any) -> Any:
    """A copy of a model with settings of its own and the same tensors, for passes beside those of other threads."""
    maps = (getattr(getattr(module, "_hf_hook", None), "weights_map", None) for module in model.modules())
    kept = (*model.parameters(), *model.buffers(), *(weights for weights in maps if weights is not None))
    return copy.deepcopy(model, {id(tensor): tensor for tensor in kept})


def least_rounding(dtype: torch.dtype) -> float:
    """The `difference` that is rounding in any case: 6e-6 in float32, 0.006 in float16 and 0.026 in bfloat16."""
    return float(torch.finfo(dtype).eps ** 0.75)


def difference(row: torch.Tensor, expected: torch.Tensor) -> float:
    """The distance of log-probabilities [V] from others, in units of their spread."""
    finite = torch.isfinite(expected)
    if not torch.equal(finite, torch.isfinite(row)):
        return float("inf")
    error = (row - expected)[finite]
    return float(error.square().mean().sqrt() / expected[finite].std().clamp(min=1e-12))


class ForcedTokens(LogitsProcessor):  # type: ignore[misc]
    """Leaves only one token possible in each row: the next one of a text."""

    def __init__(self, texts: Sequence[Sequence[int]]) -> None:
        self._texts = [list(text) for text in texts]

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.Tensor:
        """Scores of 0 for the token of each row, and -inf for all others."""
        forced = torch.full_like(scores, -torch.inf)
        forced[range(len(self._texts)), [text.pop(0) for text in self._texts]] = 0.0
        return forced


def forced_logits(
    model: Any, inputs: Mapping[str, Any], texts: Sequence[Sequence[int]], padding: int
) -> list[torch.Tensor]:
    """The model's own logits [B, columns] of each step of transformers' `generate`, which is made to write texts of one
    length behind the prompts in `inputs`.
    """
    output = answering_once(model).generate(
        **inputs,
        **PLAIN,
        max_new_tokens=len(texts[0]),
        pad_token_id=padding,
        logits_processor=[ForcedTokens(texts)],
        output_logits=True,
        return_dict_in_generate=True,
    )
    return list(output.logits)


def _holds(try_it: Callable[[], bool]) -> bool:
    """Return True if something holds; what raises does not."""
    try:
        return try_it()
    except Exception:  # as in `_Prover._first_with`
        return False
