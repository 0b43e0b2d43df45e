"""A transformers model as a `Backend`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from inspect import signature
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.backends.base import Arrival, Decoding, Prompt, Response, require_readings
from semtoken.backends.prompts import (
    PaddedBatch,
    as_decodings,
    encode_prompts,
    encode_responses,
    end_ids,
    end_token_ids,
    in_batches_by_length,
    newline_ids,
    pad,
    padding_id,
)
from semtoken.backends.transformers.cache import (
    SHORTEST_PREFIX,
    SharedPrefix,
    is_repeatable,
    keeps_all,
    shared_beginning,
)
from semtoken.backends.transformers.draws import AnswerChoices, Sampling
from semtoken.backends.transformers.inside import Inside, gives_attention, layers_of, timed_passes, weights_hash
from semtoken.backends.transformers.joining import JoiningRows, only_usual
from semtoken.backends.transformers.observe import BatchRow, StepWatch
from semtoken.backends.transformers.trees import PromptTree
from semtoken.clusters import TokenClusters
from semtoken.clusters.cache import clusters_for_model
from semtoken.errors import (
    BackendError,
    InvalidInput,
    InvalidLogits,
    ModelError,
    SemtokenError,
    VocabularyMismatch,
    one_line_of,
)
from semtoken.observers.steps import Completion, Observer, Readable, Step, finish, show
from semtoken.results import Distribution
from semtoken.support.arrays import FloatArray, IdArray, as_rows
from semtoken.support.extras import require
from semtoken.support.inputs import flag, listed, whole
from semtoken.tokens.vocabulary import BoolArray, Vocabulary

require("torch", extra="transformers")
require("transformers", extra="transformers")

import torch  # noqa: E402

CHUNK = 32
"""For how many tokens of a reply the logits exist at one time: batch size x CHUNK x V numbers at most."""

COLDEST = 1e-30
"""The lowest temperature whose quotients with logits stay far from the largest float32."""
NOT_BEAMS = (
    "A beam's tokens are chosen among hypotheses that are reordered and dropped on the way, so there is no single "
    "next-token distribution that the answer was drawn from. Use greedy decoding (num_beams=1) or sampling."
)


class TransformersBackend:
    """A causal language model of transformers with its tokenizer; see `semtoken.backends.base.Backend`.

    Parameters
    ----------
    model
        A decoder-only model with an output head.
    tokenizer
        The tokenizer of the model.

    Raises
    ------
    ModelError
        The model is an encoder-decoder or has no output head.
    """

    name = "transformers"
    distribution: Distribution = "raw"

    def __init__(self, model: Any, tokenizer: Any) -> None:
        check_model(model)
        self.model = model
        self.tokenizer = tokenizer
        self._prefix: SharedPrefix | None = None
        self.last_prompt: SharedPrefix | None = None
        """The prompt that `generate_joining` read last, for those that begin like it."""
        self.last_trunk: SharedPrefix | None = None
        """What all prompts of the last `GrowingTree` begin with."""

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokens of the tokenizer.

        Raises
        ------
        VocabularyMismatch
            The model has fewer logits than the tokenizer has tokens.
        """
        vocabulary = Vocabulary.from_tokenizer(self.tokenizer)
        if self._columns < vocabulary.size:
            raise VocabularyMismatch(
                f"The model has {self._columns:,} logits, its tokenizer {vocabulary.size:,} tokens. Is this the "
                "model's own tokenizer?"
            )
        return vocabulary

    @property
    def max_length(self) -> int | None:
        """How many tokens of prompt and answer the model can read together; None if it does not say."""
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return None if limit is None else int(limit)

    @property
    def gives(self) -> frozenset[Readable]:
        """Rows of logits always; hidden states if the model's layers are found, and attention if they can compute it in
        the plain way, which shows the weights.
        """
        found: set[Readable] = {"log_probability", "entropy", "best", "row", "logits"}
        if gives_attention(self.model):
            found.add("attention")
        try:
            layers_of(self.model)
        except ModelError:
            return frozenset(found)
        return frozenset(found | {"states"})

    @cached_property
    def weights(self) -> str | None:
        """A hash that tells this model at this precision from all others; see `weights_hash`."""
        return weights_hash(self.model)

    def default_clusters(self, progress: Callable[..., None] | None = None) -> TokenClusters:
        """The clusters cached for this model, or computed and cached."""
        return clusters_for_model(self.model, self.tokenizer, progress=progress)

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise `VocabularyMismatch` unless these are the tokens of the tokenizer."""
        vocabulary.require_same(self.vocabulary)

    @property
    def _columns(self) -> int:
        return int(self.model.get_output_embeddings().weight.shape[0])

    # --- generating ----------------------------------------------------------------------------------------------

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding | Sequence[Decoding], observers: Sequence[Observer] = ()
    ) -> list[Completion]:
        """Answer each prompt; see `Backend.generate`.

        `Decoding.options` are keyword arguments of transformers' `generate`. An answer ends where the model reads no
        further (`max_length`).

        Raises
        ------
        InvalidInput
            An empty prompt, one that is longer than the model reads, chat messages without a template, or an option
            that transformers refuses.
        BackendError
            Beam search or assisted decoding was asked for.
        """
        require_readings(self, observers)
        decodings = as_decodings(decoding, len(prompts))
        if not prompts:
            return []
        encoded = self._encoded(prompts, decodings)
        n = decodings[0].n
        prefix = self._shared_prefix(encoded) if decodings[0].share_prefix else None
        shrinks = only_usual(self.model.generation_config) and not any(decoding.options for decoding in decodings)
        found: dict[int, Completion] = {}
        for batch in self._batches(encoded, decodings[0].batch_size, equal_lengths=prefix is not None):
            rows = [
                self._row(number * n + sample, decodings[number], encoded[number])
                for number in batch
                for sample in range(n)
            ]
            criteria = decodings[0].options.get("stopping_criteria") or ()
            watch = StepWatch(self.vocabulary, rows, observers, criteria, shrinks=shrinks)
            self._generate([encoded[i] for i in batch], [decodings[i] for i in batch], rows, watch, prefix)
            found |= watch.completions
        return [found[answer] for answer in range(len(prompts) * n)]

    @property
    def joins(self) -> bool:
        """Whether answers can begin and end one by one: the rows of the model's cache can be put together, and its
        settings for generation name nothing that only transformers' `generate` does.
        """
        return only_usual(self.model.generation_config) and self._has_rows

    @property
    def _has_rows(self) -> bool:
        return is_repeatable(self._cache_of_a_token)

    @cached_property
    def _cache_of_a_token(self) -> Any:
        """Shows of what kind the model's cache is."""
        batch = pad([[int(np.argmin(self.vocabulary.special))]], 0, left=True)
        with torch.inference_mode():
            return self.forward(batch, mask=batch.mask, cache=None, keep=1).past_key_values

    def generate_joining(self, arrivals: Callable[[], Sequence[Arrival]], observers: Sequence[Observer]) -> None:
        """Answer prompts as they come; see `JoiningBackend.generate_joining`.

        Raises
        ------
        InvalidInput
            A prompt that is longer than the model reads.
        """
        require_readings(self, observers)
        inside = Inside(observers)
        rows = JoiningRows(self, observers, inside)
        with inside.watching(self.model):
            while (newcomers := arrivals()) or rows:
                self._check_lengths([newcomer.prompt_ids for newcomer in newcomers])
                rows.advance([(self._row(one.answer, one.decoding, one.prompt_ids), one) for one in newcomers])

    def check(self, prompts: Sequence[Prompt], decoding: Decoding) -> None:
        """Raise the error that `generate` would raise before its first step; does nothing if it would raise none."""
        self._encoded(prompts, [decoding])

    def _encoded(self, prompts: Sequence[Prompt], decodings: Sequence[Decoding]) -> list[list[int]]:
        for decoding in decodings:
            self._check_options(decoding)
        encoded = encode_prompts(self.tokenizer, prompts)
        self._check_lengths(encoded)
        return encoded

    def read_prefix(self, prompts: Sequence[Prompt]) -> None:
        """Read the beginning that all prompts share before `generate` with `share_prefix`, to measure what that
        costs.
        """
        self._shared_prefix(encode_prompts(self.tokenizer, prompts))

    def timed_passes(self, clock: Callable[[], AbstractContextManager[None]]) -> AbstractContextManager[None]:
        """Enter `clock()` around every forward pass of the model, until the block ends."""
        return timed_passes(self.model, clock)

    def _shared_prefix(self, encoded: Sequence[Sequence[int]]) -> SharedPrefix | None:
        """The beginning of all prompts, read, if it is long enough and the model's cache can be repeated."""
        beginning = shared_beginning(encoded) if len(encoded) > 1 else ()
        if len(beginning) < SHORTEST_PREFIX:
            return None
        if self._prefix is None or self._prefix.token_ids != beginning:
            self._prefix = None  # two of them need not exist at one time
            batch = pad([beginning], 0, left=True)
            with torch.no_grad():
                output = self.forward(batch, mask=batch.mask, cache=None, keep=1)
            cache = getattr(output, "past_key_values", None)
            self._prefix = SharedPrefix(beginning, cache)
        return self._prefix if is_repeatable(self._prefix.cache) else None

    def _batches(
        self, encoded: Sequence[Sequence[int]], batch_size: int, *, equal_lengths: bool
    ) -> Iterator[list[int]]:
        """Numbers of prompts that are decoded together: in their order, or those of one length."""
        groups: dict[int, list[int]] = {}
        for number, ids in enumerate(encoded):
            groups.setdefault(len(ids) if equal_lengths else 0, []).append(number)
        for length in sorted(groups, reverse=True):
            members = groups[length]
            yield from (members[first : first + batch_size] for first in range(0, len(members), batch_size))

    def _row(self, answer: int, decoding: Decoding, prompt: Sequence[int]) -> BatchRow:
        limit = int(decoding.options.get("max_new_tokens", decoding.max_new_tokens))
        if self.max_length is not None:
            limit = min(limit, self.max_length - len(prompt) + 1)  # the last token need not be read
        return BatchRow(answer, limit, frozenset(self._stop_ids(decoding)), decoding.stop_strings)

    def _generate(
        self,
        prompts: list[list[int]],
        decodings: list[Decoding],
        rows: Sequence[BatchRow],
        watch: StepWatch,
        prefix: SharedPrefix | None,
    ) -> None:
        """Decode one batch. Complete answers leave it when they are half of it, if the model's cache allows that."""
        n = decodings[0].n
        answers = [AnswerChoices.of(d, ids, i) for ids, d in zip(prompts, decodings, strict=True) for i in range(n)]
        options = self._options(decodings[0], rows)
        processors = listed(options.pop("logits_processor", ()), "logits_processor")
        if not all(map(callable, processors)):
            raise InvalidInput("'logits_processor' must be a list of processors, each of which can be called.")
        inputs = self._inputs(prompts, options["pad_token_id"], n, prefix)
        with watch.watching(self.model):
            while True:
                drawing = [Sampling(answers, self.vocabulary.size)] * any(answer.settings for answer in answers)
                with _refused_options(watch):
                    sequences = self.model.generate(
                        **inputs, **options, logits_processor=[*processors, *drawing], stopping_criteria=[watch]
                    )
                if not (left := watch.smaller_batch()):
                    break
                inputs = inputs_to_continue(inputs, sequences, watch.cache, left)
                answers = [answers[row] for row in left]
                options["max_new_tokens"] = watch.tokens_left
        watch.close()

    def _inputs(self, prompts: list[list[int]], padding: int, n: int, prefix: SharedPrefix | None) -> dict[str, Any]:
        """What `generate` takes to answer each prompt `n` times in a row.

        With several answers, all of the prompt but its last token is read here, once.
        """
        batch = pad(prompts, padding, left=True)
        tensors = self._tensors(batch)
        inputs: dict[str, Any] = {name: tensor.repeat_interleave(n, dim=0) for name, tensor in tensors.items()}
        cache = None if prefix is None else prefix.repeated(len(prompts))
        known = 0 if prefix is None else len(prefix.token_ids)
        if n > 1 and batch.ids.shape[1] > known + 1:
            part = PaddedBatch(batch.ids[:, known:-1], batch.mask[:, known:-1])
            with torch.no_grad():
                output = self.forward(part, mask=batch.mask[:, :-1], cache=cache, keep=1)
            cache = getattr(output, "past_key_values", None)
        if cache is not None and is_repeatable(cache):
            if n > 1:
                cache.batch_repeat_interleave(n)
            inputs["past_key_values"] = cache
        return inputs

    def _check_options(self, decoding: Decoding) -> None:
        options, settings = decoding.options, self._settings(decoding)
        if (options.get("num_beams") or getattr(settings, "num_beams", 1) or 1) > 1:
            raise BackendError(f"Beam search is refused. {NOT_BEAMS}")
        if (options.get("num_return_sequences") or 1) > 1:
            raise InvalidInput(
                "Several answers to a prompt are asked for by `Decoding.n`, not by num_return_sequences."
            )
        if options.get("top_k") is not None:
            whole(options["top_k"], "top_k", low=0)
        temperature = options.get("temperature")
        if isinstance(temperature, float) and 0 < temperature < COLDEST:
            raise InvalidInput(
                f"Logits divided by a temperature of {temperature:g} are no float32 numbers. Give do_sample=False for "
                f"the best token at every step, or a temperature of at least {COLDEST:g}."
            )
        lookup = options.get("prompt_lookup_num_tokens") or getattr(settings, "prompt_lookup_num_tokens", None)
        if options.get("assistant_model") is not None or lookup:
            raise BackendError("Assisted decoding is refused: it proposes several tokens at a time. Decode one by one.")

    def _settings(self, decoding: Decoding) -> Any:
        """The settings for generation that hold where `options` say nothing: those in the options, or the model's."""
        return decoding.options.get("generation_config") or self.model.generation_config

    def _options(self, decoding: Decoding, rows: Sequence[BatchRow]) -> dict[str, Any]:
        """Keyword arguments of transformers' `generate`."""
        given = {name: value for name, value in decoding.options.items() if name != "stopping_criteria"}
        options: dict[str, Any] = {"do_sample": False} | given
        if options["do_sample"] is not None:
            flag(options["do_sample"], "do_sample")
        if not options["do_sample"]:  # unset the model's own sampling defaults, about which transformers would warn
            options = {"temperature": None, "top_p": None, "top_k": None} | options
        options["max_new_tokens"] = max(row.max_new_tokens for row in rows)
        stop_ids = frozenset.intersection(*(row.stop_ids for row in rows))
        options["eos_token_id"] = sorted(stop_ids) or None
        options.setdefault("pad_token_id", padding_id(self.tokenizer, stop_ids or rows[0].stop_ids))
        padded = range(self.vocabulary.size, self._columns)
        if padded:  # columns of a padded lm_head are no tokens
            options["suppress_tokens"] = [*(options.get("suppress_tokens") or ()), *padded]
        return options

    def _stop_ids(self, decoding: Decoding) -> set[int]:
        given = decoding.options.get("eos_token_id")
        if given is None:
            given = getattr(decoding.options.get("generation_config"), "eos_token_id", None)
        if given is None:
            given = end_ids(self.model, self.tokenizer)
        found = set(end_token_ids(given))
        return found | self._newlines if decoding.stop_at_newline else found

    @cached_property
    def _newlines(self) -> frozenset[int]:
        return frozenset(newline_ids(self.vocabulary))

    # --- reading -------------------------------------------------------------------------------------------------

    def read(
        self,
        prompts: Sequence[Prompt],
        replies: Sequence[Response],
        observers: Sequence[Observer],
        *,
        batch_size: int = 8,
        chunk_size: int = CHUNK,
    ) -> None:
        """Read replies in teacher-forced passes; see `Backend.read`.

        `chunk_size` is the number of reply tokens whose logits exist at one time.
        """
        require_readings(self, observers)
        encoded = encode_prompts(self.tokenizer, prompts)
        answers = encode_responses(self.tokenizer, self.vocabulary, prompts, encoded, replies)
        self._check_lengths([prompt + reply for prompt, reply in zip(encoded, answers, strict=True)])
        inside = Inside(observers)
        for first in range(0, len(encoded), batch_size):
            batch = range(first, min(first + batch_size, len(encoded)))
            with inside.watching(self.model):
                for step in self._reply_steps(batch, encoded, answers, chunk_size, inside):
                    show(step, observers)
            for number in batch:
                finish(number, Completion(answers[number], truncated=None), observers)

    def _reply_steps(
        self, batch: Sequence[int], prompts: list[list[int]], replies: list[list[int]], chunk: int, inside: Inside
    ) -> Iterator[Step]:
        """The steps of a generation that chose these replies."""
        mine = [replies[number] for number in batch]
        step = 0
        for logits in self._reply_logits([prompts[number] for number in batch], mine, chunk):
            width = logits.shape[1]
            for i in range(width):
                rows = [row for row, ids in enumerate(mine) if len(ids) > step]
                yield Step(
                    answers=[batch[row] for row in rows],
                    tokens=[mine[row][step] for row in rows],
                    size=self.vocabulary.size,
                    logits=as_rows(logits[:, i]),
                    rows=rows,
                    **inside.at(i - width),
                )
                step += 1

    @torch.no_grad()
    def _reply_logits(self, prompts: list[list[int]], replies: list[list[int]], chunk: int) -> Iterator[torch.Tensor]:
        """Logits from which the tokens of the replies are drawn, in order: [B, steps, columns], `chunk` at most.

        The prompts are read once; then the replies follow chunk by chunk on the model's cache.
        """
        if not any(replies):
            return
        padding = padding_id(self.tokenizer, self._stop_ids(Decoding()))
        prompt, reply = pad(prompts, padding, left=True), pad(replies, padding, left=False)
        output = self.forward(prompt, mask=prompt.mask, cache=None, keep=1)
        if getattr(output, "past_key_values", None) is None:
            raise ModelError(
                f"{type(self.model).__name__} gives no cache of what it has read (past_key_values), so replies that "
                "are already written cannot be scored with it. Its own generations can."
            )
        yield output.logits[:, -1:]
        mask = prompt.mask
        width = reply.ids.shape[1] - 1  # nothing is drawn after the last token
        for first in range(0, width, chunk):
            columns = slice(first, min(first + chunk, width))
            part = PaddedBatch(reply.ids[:, columns], np.ones_like(reply.mask[:, columns]))
            mask = np.concatenate([mask, part.mask], axis=1)
            output = self.forward(part, mask=mask, cache=output.past_key_values, keep=part.ids.shape[1])
            yield output.logits[:, -part.ids.shape[1] :]

    def next_log_probs(
        self, prompts: Sequence[Prompt], continuations: Sequence[Sequence[int]], *, batch_size: int = 8
    ) -> FloatArray:
        """Log-probability of each continuation after each prompt, in as few forward passes as possible."""
        encoded = encode_prompts(self.tokenizer, prompts)
        self._check_lengths(encoded, more=max(map(len, continuations), default=1) - 1)
        found = np.empty((len(prompts), len(continuations)))
        for beginning, members in shared_beginnings(continuations):
            for batch in in_batches_by_length([len(ids) for ids in encoded], batch_size):
                rows = self._last_log_probs([[*encoded[i], *beginning] for i in batch], len(beginning) + 1)
                for number in members:
                    ids = list(continuations[number])
                    found[batch, number] = rows[:, np.arange(len(ids)), ids].sum(axis=1, dtype=np.float64)
        return found

    @torch.inference_mode()
    def _last_log_probs(self, sequences: list[list[int]], keep: int) -> npt.NDArray[np.float32]:
        """Log-probabilities of what follows each of the last `keep` tokens, [B, keep, V]."""
        batch = pad(sequences, padding_id(self.tokenizer, [0]), left=True)
        output = self.forward(batch, mask=batch.mask, cache=None, keep=keep)
        logits = output.logits[:, -keep:, : self.vocabulary.size]
        if not torch.isfinite(logits.max(dim=-1).values).all():  # a NaN is the greatest of its row
            raise InvalidLogits("The model gives NaN or no finite logit after a prompt.")
        return np.asarray(logits.float().log_softmax(-1).cpu().numpy())

    # --- the model -----------------------------------------------------------------------------------------------

    def forward(self, part: PaddedBatch, *, mask: npt.NDArray[np.int64], cache: Any, keep: int) -> Any:
        """Run the model once over some columns of a batch of sequences.

        Parameters
        ----------
        part
            The tokens to read.
        mask
            Of all tokens so far, those of the part included.
        cache
            `past_key_values` of the tokens before; None at the beginning.
        keep
            Positions at the end whose logits are wanted; a model that cannot leave out the others gives all.
        """
        positions = np.maximum(mask.cumsum(axis=1) - 1, 0)[:, -part.ids.shape[1] :]
        return self._pass(part.ids, torch.from_numpy(mask), positions, cache, keep)

    @cached_property
    def reads_trees(self) -> bool:
        """Whether `forward_tree` works: all layers follow the attention mask, and none has a window of its own."""
        return (
            keeps_all(self._cache_of_a_token)
            and getattr(self.model, "_supports_attention_backend", False)
            and self.model.config._attn_implementation in ("eager", "sdpa")
            and {"position_ids", "logits_to_keep"} <= set(signature(self.model.forward).parameters)
        )

    def forward_tree(self, tree: PromptTree, cache: Any) -> Any:
        """One pass of the model over the tokens of several prompts, whose logits [1, B, columns] are the last ones.

        Parameters
        ----------
        tree
            The prompts.
        cache
            `past_key_values` of the tokens that they begin with, one row; None where nothing is known.
        """
        return self.forward_nodes(tree.ids, tree.seen, tree.positions, cache, tree.last)

    def forward_nodes(self, ids: IdArray, seen: BoolArray, positions: IdArray, cache: Any, keep: IdArray) -> Any:
        """Run the model once over tokens each of which sees only some of the tokens before it, as in a tree.

        Parameters
        ----------
        ids, positions
            [N] tokens, and their places in their texts.
        seen
            [N, K + N] which of the tokens of the cache, and of these, each of them sees.
        cache
            `past_key_values` of the K tokens before; None where K is 0.
        keep
            Of the N, those whose logits are wanted.
        """
        hidden = torch.from_numpy(~seen)[None, None]
        mask = torch.zeros(hidden.shape, dtype=self.model.dtype).masked_fill_(hidden, torch.finfo(self.model.dtype).min)
        return self._pass(ids[None], mask, positions[None], cache, torch.from_numpy(keep))

    def _pass(self, ids: IdArray, mask: torch.Tensor, positions: IdArray, cache: Any, keep: int | torch.Tensor) -> Any:
        accepted = signature(self.model.forward).parameters
        optional = {
            "position_ids": torch.from_numpy(positions).to(self._device),
            "logits_to_keep": keep if isinstance(keep, int) else keep.to(self._device),
        }
        options = {name: value for name, value in optional.items() if name in accepted}
        tensors = {"input_ids": torch.from_numpy(ids).to(self._device), "attention_mask": mask.to(self._device)}
        return self.model(**tensors, **options, past_key_values=cache, use_cache=True)

    @property
    def _device(self) -> Any:
        return self.model.get_input_embeddings().weight.device

    def _tensors(self, batch: PaddedBatch) -> dict[str, torch.Tensor]:
        return {
            "input_ids": torch.from_numpy(batch.ids).to(self._device),
            "attention_mask": torch.from_numpy(batch.mask).to(self._device),
        }

    def _check_lengths(self, sequences: Sequence[Sequence[int]], more: int = 0) -> None:
        """Check that sequences can be read, with so many tokens `more`."""
        limit = self.max_length
        for number, ids in enumerate(sequences):
            if limit is not None and len(ids) + more > limit:
                raise InvalidInput(
                    f"Prompt {number} has {len(ids) + more:,} tokens; the model reads {limit:,} at most."
                )


def inputs_to_continue(
    inputs: dict[str, Any], sequences: torch.Tensor, cache: Any, rows: Sequence[int]
) -> dict[str, Any]:
    """The arguments with which `generate` goes on with some rows of a batch, whose `inputs` have become `sequences`."""
    places = torch.tensor(rows)
    ids, mask = sequences[places], inputs["attention_mask"][places]
    cache.batch_select_indices(places)
    mask = torch.nn.functional.pad(mask, (0, ids.shape[1] - mask.shape[1]), value=1)
    return {"input_ids": ids, "attention_mask": mask, "past_key_values": cache}


def shared_beginnings(continuations: Sequence[Sequence[int]]) -> list[tuple[tuple[int, ...], list[int]]]:
    """The smallest set of beginnings that serves all continuations, each with the numbers of its continuations.

    A continuation needs a pass that ends with all its tokens but the last, or goes on from there.

    >>> shared_beginnings([(5, 6), (7,), (8, 9)])
    [((5,), [0, 1]), ((8,), [2])]
    """
    left = dict(enumerate(map(tuple, continuations)))
    found = []
    while left:
        beginning = max(left.values(), key=len)[:-1]
        members = [number for number, ids in left.items() if beginning[: len(ids) - 1] == ids[:-1]]
        found.append((beginning, members))
        left = {number: ids for number, ids in left.items() if number not in members}
    return found


def check_model(model: Any) -> None:
    """Raise `ModelError` unless the model is a decoder with an output head."""
    name = type(model).__name__
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise ModelError(f"{name} is an encoder-decoder; semtoken scores decoder-only language models.")
    if not hasattr(model, "get_output_embeddings") or model.get_output_embeddings() is None:
        raise ModelError(
            f"{name} has no output head (lm_head), so it gives no next-token distribution. "
            "Load it with AutoModelForCausalLM."
        )


@contextmanager
def _refused_options(watch: StepWatch) -> Iterator[None]:
    """What transformers raises for an option before the model's first pass, as an error of ours."""
    try:
        yield
    except SemtokenError:
        raise
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        if watch.logits is not None:
            raise
        raise InvalidInput(f"transformers' generate refuses these options: {one_line_of(error)}") from error
