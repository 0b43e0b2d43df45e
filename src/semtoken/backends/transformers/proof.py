"""A model proves itself: which ways of reading it give the numbers of one plain pass over the text.

Batches, padding, caches, trees and transformers' own `generate` are ways to need fewer passes. Whether a model gives
the same numbers in each is no matter of its name or of its signature, so a few short passes (60 tokens at most) find
out; what differs is not used. The result is kept in the cache folder, by a hash of the weights.
"""

from __future__ import annotations

import copy
import hashlib
import json
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias, get_args
from weakref import WeakKeyDictionary

import numpy as np

from semtoken.backends.prompts import PaddedBatch, pad
from semtoken.backends.transformers.cache import SharedPrefix, is_repeatable, joined_caches, keeps_all
from semtoken.backends.transformers.inside import forward_hook, inner_model, weights_hash
from semtoken.backends.transformers.passes import ARGUMENTS, Passes
from semtoken.errors import ModelError, one_line_of
from semtoken.files.safe_files import replace_text
from semtoken.support.extras import require
from semtoken.support.installation import cache_root
from semtoken.tokens.vocabulary import Vocabulary

require("torch", extra="transformers")
require("transformers", extra="transformers")

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import LogitsProcessor  # noqa: E402

Generates: TypeAlias = Literal["padded", "equal", "alone", "never"]
"""In which batches `generate` gives the numbers of a plain pass: of any lengths, of one length, of one row, in none."""
VERSION = 2
"""The version of the passes below. Proofs that another version kept are made again."""
WINDOWS = ("sliding_window", "attention_window_size", "attention_chunk_size", "index_topk", "floor_scale")
"""Settings that say how many tokens a layer sees, or from which place on it weighs them otherwise."""
LENGTH = 7
"""Tokens of the text that is read in all ways."""


@dataclass(frozen=True)
class Proof:
    """Which ways of reading a model give the numbers of one plain pass over the text alone."""

    takes: tuple[str, ...] = ()
    """Arguments that its passes are given."""
    together: bool = False
    """Rows of one length in one pass."""
    padded: bool = False
    """Rows of different lengths, padded at the left, in one pass."""
    continued: bool = False
    """Further tokens behind a cache of those before, some at a time and one by one."""
    joined: bool = False
    """Rows of several caches, put together while they are being written."""
    trees: bool = False
    """Several texts as one tree of tokens."""
    generates: Generates = "never"
    """In which batches transformers' `generate` gives them."""
    resumes: bool = False
    """`generate` behind a cache that it is handed: several samples of a prompt, shared beginnings, smaller batches."""
    noise: float = 0.0
    """Relative difference between two ways that are equal: rounding."""
    tokens: int = 0
    """How many tokens were read to find out."""

    def lines(self) -> list[str]:
        """What holds and what does not, in words, for people."""
        ways = {
            "prompts of different lengths in one batch": self.padded,
            "replies that continue a cache": self.continued,
            "requests that join and leave a batch": self.joined,
            "prompts as a tree": self.trees,
            "samples that share a prompt": self.resumes,
        }
        how = {
            "padded": "in batches of any lengths",
            "equal": "in batches of one length",
            "alone": "one answer at a time",
            "never": "not used: each token is chosen after a pass over the whole text",
        }
        said = [f"{way}: {'as read alone' if holds else 'not equal, so not used'}" for way, holds in ways.items()]
        return [*said, f"transformers' generate: {how[self.generates]}"]


def proof_of(model: Any, vocabulary: Vocabulary, padding: int) -> Proof:
    """The proof of a model: known, kept from before, or made now.

    Raises
    ------
    ModelError
        Two equal passes differ, or what the model predicts depends on tokens that come later.
    """
    with suppress(KeyError, TypeError):
        return _KNOWN[model]
    key = _key(model)
    found = _kept(key)
    if found is None:
        with warnings.catch_warnings():  # about arguments that are only tried
            warnings.simplefilter("ignore")
            found = _Prover(model, vocabulary, padding).prove()
        _keep(key, found)
    with suppress(TypeError):
        _KNOWN[model] = found
    return found


_KNOWN: WeakKeyDictionary[Any, Proof] = WeakKeyDictionary()


def _key(model: Any) -> str | None:
    """What a proof is kept by; None where the weights are not all in memory."""
    if (weights := weights_hash(model)) is None:
        return None
    config = getattr(model, "config", None)
    about = [
        *(VERSION, transformers.__version__, torch.__version__, weights, type(model).__qualname__),
        *(str(getattr(config, "_attn_implementation", "")), str(next(model.parameters()).device)),
        str(config),
        str(getattr(model, "peft_config", "")),
    ]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32]


def _kept(key: str | None) -> Proof | None:
    if key is None:
        return None
    try:
        given = json.loads((cache_root() / "proofs" / f"{key}.json").read_text(encoding="utf-8"))
        found = Proof(**(given | {"takes": tuple(given["takes"])}))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    whole = set(found.takes) <= ARGUMENTS and found.generates in get_args(Generates)
    flags = [getattr(found, one.name) for one in fields(Proof) if one.type == "bool"]
    return found if whole and all(type(flag) is bool for flag in flags) else None


def _keep(key: str | None, proof: Proof) -> None:
    if key is not None:
        with suppress(OSError):  # a folder that cannot be written: the model is asked again next time
            path = cache_root() / "proofs" / f"{key}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_text(path, json.dumps(asdict(proof)))


@dataclass
class _Prover:
    model: Any
    vocabulary: Vocabulary
    padding: int
    ids: list[int] = field(init=False)
    expected: torch.Tensor = field(init=False)
    """[LENGTH, V] log-probabilities behind each token, of a plain pass."""
    tolerance: float = 0.0
    read: int = 0

    @torch.inference_mode()
    def prove(self) -> Proof:
        ordinary = np.flatnonzero(~(self.vocabulary.special | self.vocabulary.blank))
        places = np.random.default_rng(0).choice(len(ordinary), LENGTH, replace=len(ordinary) < LENGTH)
        self.ids = ordinary[places].tolist()
        try:
            self.expected = self._log_probs(self._whole(LENGTH))
        except Exception as error:  # of a model of others
            raise ModelError(f"{self._name} cannot read {LENGTH} ordinary tokens: {one_line_of(error)}") from error
        if not torch.isfinite(self.expected).any(dim=-1).all():
            return Proof(tokens=self.read)  # NaN: the first answer says at which step
        floor = torch.finfo(self.model.dtype).eps ** 0.75
        self.tolerance = 4 * floor
        passes, output, differences = self._first_pass()
        proof = Proof(takes=tuple(sorted(passes.takes)))
        if differences[1] > self.tolerance:
            self._require_causal()
            proof = replace(proof, **self._alone(passes))
        else:
            noise = float(differences[1])
            self.tolerance = min(max(floor, 8 * noise), 4 * floor)
            proof = replace(proof, noise=noise, **self._together(passes, output, differences))
        follows, pads = self._beyond_windows(passes, getattr(output, "past_key_values", None))
        if not pads:
            proof = replace(proof, padded=False, joined=False)
        if not follows:
            return replace(proof, continued=False, joined=False, trees=False, tokens=self.read)
        proof = self._generating(proof, pads)
        return replace(proof, tokens=self.read)

    def _beyond_windows(self, passes: Passes, cache: Any) -> tuple[bool, bool]:
        """What holds of texts that are longer than what a layer sees of them, asked with windows of 3 tokens.

        Returns whether a plain pass sees no more than the model's cache keeps, and whether padding changes nothing.
        """
        config = self.model.config.get_text_config()
        wide = {name: value for name in WINDOWS if type(value := getattr(config, name, None)) is int and value > LENGTH}
        if not wide:
            return True, True
        kept = {getattr(layer, "sliding_window", None) for layer in getattr(cache, "layers", ())}
        parts = [(one, name) for one in (config, *self.model.modules()) for name in wide if name in vars(one)]
        before = [getattr(one, name) for one, name in parts]
        row = pad([self.ids[:5], self.ids[:6]], self.padding, left=True)
        try:
            for one, name in parts:
                setattr(one, name, 3)
            short = self._log_probs(self._whole(5))
            follows = difference(short[4], self.expected[4]) > self.tolerance or not kept & set(wide.values())
            self.read += 6
            part = PaddedBatch(row.ids[:1], row.mask[:1])
            logits = self._log_probs(passes.rows(part, mask=part.mask, cache=None, keep=1).logits[0, -1])
            return follows, difference(logits, short[4]) <= self.tolerance
        except Exception:  # as in `_first_pass`: an attention that cannot be asked
            return True, True
        finally:
            for (one, name), value in zip(parts, before, strict=True):
                setattr(one, name, value)

    @property
    def _name(self) -> str:
        return type(inner_model(self.model)).__name__

    def _log_probs(self, logits: torch.Tensor) -> torch.Tensor:
        return logits[..., : self.vocabulary.size].double().log_softmax(-1)

    def _whole(self, length: int) -> torch.Tensor:
        self.read += length
        return Passes(self.model).whole(self.ids[:length], length)

    def _differences(self, logits: torch.Tensor, places: Sequence[int]) -> list[float]:
        """How far rows of logits [n, columns] are from those behind some places, in units of their spread."""
        rows = zip(self._log_probs(logits), self.expected[list(places)], strict=True)
        return [difference(row, expected) for row, expected in rows]

    def _equal(self, logits: torch.Tensor, places: Sequence[int]) -> bool:
        return max(self._differences(logits, places)) <= self.tolerance

    def _first_pass(self) -> tuple[Passes, Any, list[float]]:
        """Two and four tokens in one padded batch, with the arguments that the model follows."""
        batch = pad([self.ids[:2], self.ids[:4]], self.padding, left=True)
        best: tuple[Passes, Any, list[float]] | None = None
        runs = 0
        for takes in (ARGUMENTS, frozenset({"position_ids"}), frozenset({"logits_to_keep"}), frozenset[str]()):
            if runs == 1 and takes:
                continue  # it ran: once more without anything is enough
            passes = Passes(self.model, takes)
            try:
                output = passes.rows(batch, mask=batch.mask, cache=None, keep=1)
                differences = self._differences(output.logits[:, -1], (1, 3))
            except Exception:  # noqa: S112 - a model of others raises what it likes at an argument it does not know
                continue
            self.read += batch.ids.size
            runs += 1
            if best is None or sum(one <= self.tolerance for one in differences) > sum(
                one <= self.tolerance for one in best[2]
            ):
                best = (passes, output, differences)
            if max(differences) <= self.tolerance or runs == 2:
                break
        return best or (Passes(self.model), None, [float("inf")] * 2)

    def _require_causal(self) -> None:
        name = self._name
        if not self._equal(self._whole(4), range(4)):
            if not self._equal(self._whole(LENGTH), range(LENGTH)):
                raise ModelError(f"{name} gives other numbers when it reads the same text again, so none can be right.")
            raise ModelError(
                f"What {name} predicts behind a token changes with the tokens that follow, so it gives no probability "
                "for an answer that is written token by token. Load it as a decoder (is_decoder=True), and without "
                "dynamic quantisation."
            )

    def _alone(self, passes: Passes) -> dict[str, Any]:
        """What holds of a single row, where two rows in one pass are not equal."""
        first = np.array([self.ids[:4]])
        part = np.array([self.ids[4:6]])

        def continues() -> bool:
            self.read += 6
            output = passes.rows(PaddedBatch(first, np.ones_like(first)), mask=np.ones_like(first), cache=None, keep=1)
            further = PaddedBatch(part, np.ones_like(part))
            mask = np.ones((1, 6), dtype=np.int64)
            output = passes.rows(further, mask=mask, cache=output.past_key_values, keep=2)
            return self._equal(output.logits[0, -2:], (4, 5))

        return {"continued": _holds(continues)}

    def _together(self, passes: Passes, output: Any, differences: Sequence[float]) -> dict[str, Any]:
        """What holds of several rows, given the output of `_first_pass`."""
        padded = differences[0] <= self.tolerance
        cache = getattr(output, "past_key_values", None)
        before = SharedPrefix((), cache).copied() if is_repeatable(cache) else None
        mask = np.array([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
        found: dict[str, Any] = {"together": True, "padded": padded, "continued": False}
        chunk = np.array([self.ids[2:4], self.ids[4:6]])

        def continues() -> bool:
            nonlocal cache
            if cache is None:
                return False
            self.read += chunk.size
            further = passes.rows(PaddedBatch(chunk, np.ones_like(chunk)), mask=mask, cache=cache, keep=2)
            cache = further.past_key_values
            if padded and not self._equal(further.logits[0, -2:], (2, 3)):
                found["padded"] = False
            return cache is not None and self._equal(further.logits[1, -2:], (4, 5))

        def joins() -> bool:
            parts = [(cache, [0, 1]), (SharedPrefix((), before).copied(), [0])]
            ids = np.array([[self.ids[4]], [self.ids[6]], [self.ids[2]]])
            seen = np.array([[0, 0, 1, 1, 1, 1, 1], [1] * 7, [0, 0, 0, 0, 1, 1, 1]])
            self.read += ids.size
            one = PaddedBatch(ids, np.ones_like(ids))
            return self._equal(
                passes.rows(one, mask=seen, cache=joined_caches(parts, 6), keep=1).logits[:, -1], (4, 6, 2)
            )

        def reads_trees() -> bool:
            known = SharedPrefix((), joined_caches([(SharedPrefix((), before).copied(), [1])], 4)).cut(2)
            ids = np.array([self.ids[2], self.ids[6], self.ids[3]])  # the second and the third follow the first
            seen = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 0, 1]], dtype=bool)
            self.read += ids.size
            logits = passes.nodes(ids, seen, np.array([2, 3, 3]), known, np.array([0, 2])).logits[0]
            return len(logits) == 2 and self._equal(logits, (2, 3))

        found["continued"] = _holds(continues)
        if found["continued"] and found["padded"] and before is not None:
            found["joined"] = is_repeatable(cache) and _holds(joins)
            plain = (
                keeps_all(before)
                and bool(getattr(inner_model(self.model), "_supports_attention_backend", False))
                and getattr(self.model.config, "_attn_implementation", None) in ("eager", "sdpa")
                and passes.takes == ARGUMENTS
            )  # a layer may have a window that seven tokens do not fill
            found["trees"] = plain and _holds(reads_trees)
        return found

    # --- transformers' own generate ------------------------------------------------------------------------------

    def _generating(self, proof: Proof, pads: bool) -> Proof:
        """Add how transformers' `generate` may be used, with prompts of one length where padding changes long texts."""
        generates: Generates = "never"
        if proof.together:
            differences = self._generated([2, 4], steps=2)
            if max(differences[1::2]) <= self.tolerance:
                generates = "padded" if pads and max(differences) <= self.tolerance else "equal"
        if generates == "never" and max(self._generated([4], steps=2)) <= self.tolerance:
            generates = "alone"
        proof = replace(proof, generates=generates)
        if not proof.continued or generates not in ("padded", "equal"):
            return proof
        lengths = [2, 4] if generates == "padded" and proof.padded else [4]
        differences = self._generated(lengths, steps=2, samples=2, proof=proof)
        return replace(proof, resumes=max(differences) <= self.tolerance)

    def _generated(
        self, lengths: Sequence[int], *, steps: int, samples: int = 1, proof: Proof | None = None
    ) -> list[float]:
        """Differences step by step and row by row of what `generate` reads when its choices are those of the text."""
        seen: list[torch.Tensor] = []
        starts = [length for length in lengths for _ in range(samples)]
        try:
            inputs = self._inputs(lengths, samples, proof)
            self.read += len(starts) * (inputs["input_ids"].shape[1] if proof is None else 1) + len(starts) * (
                steps - 1
            )
            with forward_hook(inner_model(self.model), lambda module, args, output: seen.append(output.logits[:, -1])):
                self.model.generate(
                    **inputs,
                    **PLAIN,
                    **one_answer_each(getattr(self.model, "generation_config", None)),
                    max_new_tokens=steps,
                    pad_token_id=self.padding,
                    logits_processor=[ForcedTokens([self.ids[start:] for start in starts])],
                )
            found = [
                self._differences(logits, [start - 1 + step for start in starts]) for step, logits in enumerate(seen)
            ]
        except Exception:  # as in `_first_pass`
            return [float("inf")] * len(starts)
        if len(seen) != steps:
            return [float("inf")] * len(starts)
        return [one for step in found for one in step]

    def _inputs(self, lengths: Sequence[int], samples: int, proof: Proof | None) -> dict[str, Any]:
        batch = pad([self.ids[:length] for length in lengths], self.padding, left=True)
        each = [self.ids[:length] for length in lengths for _ in range(samples)]
        inputs = generate_inputs(Passes(self.model), pad(each, self.padding, left=True))
        if proof is None:
            return inputs
        self.read += batch.ids[:, :-1].size
        passes = Passes(self.model, frozenset(proof.takes))
        part = PaddedBatch(batch.ids[:, :-1], batch.mask[:, :-1])
        cache = passes.rows(part, mask=part.mask, cache=None, keep=1).past_key_values
        if not is_repeatable(cache):
            raise ModelError("The cache cannot be repeated.")
        cache.batch_repeat_interleave(samples)
        return inputs | {"past_key_values": cache}


def difference(row: torch.Tensor, expected: torch.Tensor) -> float:
    """How far log-probabilities [V] are from others, in units of their spread."""
    finite = torch.isfinite(expected)
    if not torch.equal(finite, torch.isfinite(row)):
        return float("inf")
    error = (row - expected)[finite]
    return float(error.square().mean().sqrt() / expected[finite].std().clamp(min=1e-12))


PLAIN = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None, "num_beams": 1} | {
    "eos_token_id": None,
    "suppress_tokens": None,
}


class ForcedTokens(LogitsProcessor):  # type: ignore[misc]
    """Leaves only one token possible in each row: the next one of a text."""

    def __init__(self, texts: Sequence[Sequence[int]]) -> None:
        self._texts = [list(text) for text in texts]

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.Tensor:
        """Scores of 0 for the token of each row, and -inf for all others."""
        found = torch.full_like(scores, -torch.inf)
        found[range(len(self._texts)), [text.pop(0) for text in self._texts]] = 0.0
        return found


def one_answer_each(settings: Any) -> dict[str, Any]:
    """The argument that has `generate` write one answer for each row, though a model's settings ask for several."""
    if getattr(settings, "num_return_sequences", None) in (None, 1):
        return {}
    settings = copy.deepcopy(settings)
    settings.num_return_sequences = 1
    return {"generation_config": settings}


def generate_inputs(passes: Passes, batch: PaddedBatch) -> dict[str, Any]:
    """What `generate` takes to answer each prompt of a batch."""
    tensors = {"input_ids": batch.ids, "attention_mask": batch.mask}
    return {name: torch.from_numpy(array).to(passes.device) for name, array in tensors.items()}


def _holds(try_it: Callable[[], bool]) -> bool:
    """Whether something holds; what raises does not."""
    try:
        return try_it()
    except Exception:  # as in `_Prover._first_pass`
        return False
