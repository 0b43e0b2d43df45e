"""A transformers model as a `Backend`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch

from semtoken.clustering.cache import clusters_for_model
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core.results import Distribution
from semtoken.errors import (
    BackendError,
    InvalidInputError,
    ModelError,
    VocabularyMismatch,
)
from semtoken.methods.observers.steps import Completion, Observer, Readable
from semtoken.models.base import Arrival, Decoding, OwnTokens, Prompt, Response, require_readings
from semtoken.models.prompt_ids import (
    Place,
    as_decodings,
    check_lengths,
    check_prompt_ids,
    encode_prompt,
    encode_responses,
    end_ids,
    is_ids,
    pad,
    padding_id,
)
from semtoken.models.transformers.anatomy import (
    check_model,
    columns_of,
    gives_attention,
    layers_of,
    max_length_of,
    vocabulary_within,
    waits_for_tokens,
    without_runner,
)
from semtoken.models.transformers.caches import SHORTEST_PREFIX, ReadBefore, SharedPrefix, shared_beginning
from semtoken.models.transformers.choosing import AnswerChoices, Sampling
from semtoken.models.transformers.generate_settings import (
    answering_once,
    check_decoding,
    generate_arguments,
    generate_inputs,
    only_usual,
    refused_options,
    stop_ids_of,
)
from semtoken.models.transformers.given_texts import GivenTexts
from semtoken.models.transformers.identity import state_key, weights_hash
from semtoken.models.transformers.images import ImagePasses, ImagePrompt, encode_messages
from semtoken.models.transformers.inside import Inside, timed_passes
from semtoken.models.transformers.joining import JoiningRows
from semtoken.models.transformers.passes import Passes
from semtoken.models.transformers.proof import Proof
from semtoken.models.transformers.proving import proof_of
from semtoken.models.transformers.together import RowWriter
from semtoken.models.transformers.trees import ReadTexts, read_ends, read_trunk
from semtoken.models.transformers.writing import BatchRow, StepWatch
from semtoken.support.files.images import has_images
from semtoken.support.inputs import listed, whole

_Asked: TypeAlias = tuple[list[int], list[BatchRow]]
"""The token ids of a prompt, and the answers that it gets."""


class TransformersBackend(OwnTokens):
    """A causal language model of transformers with its tokenizer; see `semtoken.models.base.Backend`.

    With `prove`, the ways of reading the model are tried when it is first used (`Proof`). Otherwise nothing is known
    of it: every token is read in a pass over its whole text alone, which is slow. The `processor` of a model that reads
    images too turns messages with images into its inputs; `without_images` says why there is none.
    """

    name = "transformers"
    distribution: Distribution = "raw"
    """The model's own, at temperature 1, before any processor."""

    def __init__(
        self, model: Any, tokenizer: Any, *, prove: bool = True, processor: Any = None, without_images: str = ""
    ) -> None:
        self.model = model = without_runner(model)
        check_model(model)
        self.tokenizer = tokenizer
        self.processor = processor
        self._without_images = without_images or "it reads text only"
        self._prove = prove
        self._state = ""
        self.read_before = ReadBefore()

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokens of the tokenizer, without special ones beyond the model's last logit, which it can never write.

        `VocabularyMismatch` if the model has no logit for another token.
        """
        vocabulary = Vocabulary.from_tokenizer(self.tokenizer)
        written = vocabulary_within(vocabulary, self._columns)
        if written is None:
            raise VocabularyMismatch(
                f"The model has {self._columns:,} logits, its tokenizer {vocabulary.size:,} tokens. Is this the "
                "model's own tokenizer?"
            )
        return written

    @cached_property
    def proof(self) -> Proof:
        """The ways of reading this model that are equal to a plain pass."""
        self._end_training_mode()
        proves = self._prove and not waits_for_tokens(self.model)
        return proof_of(self.model, self.vocabulary, self._padding) if proves else Proof()

    @property
    def passes(self) -> Passes:
        """The passes of the model, with the arguments that it takes."""
        return Passes(self.model, frozenset(self.proof.takes))

    def _tried(self, prompts: Sequence[list[int]] = ()) -> Proof:
        """The proof of the model, which is in evaluation mode. Prompts with images are tried in their own way."""
        self._end_training_mode()
        self._forget_another_state()
        # Image prompts are read whole and alone, whatever holds for texts.
        if prompts and all(isinstance(ids, ImagePrompt) for ids in prompts):
            return Proof(generates="alone")
        return self.proof

    def _forget_another_state(self) -> None:
        """Drop what was read or found out before the weights, the adapter, the settings or the code changed."""
        if not self._state:
            self._settle()
        key = state_key(self.model)
        if key != self._state:
            self._state = key
            self.read_before.forget()
            for name in ("proof", "weights", "_image_passes"):
                self.__dict__.pop(name, None)

    def _settle(self) -> None:
        """Read one token: some models (Rwkv) rescale their own weights in the first pass after training mode, which is
        no change that somebody made. What cannot be read is for the proof to say.
        """
        with suppress(Exception), torch.inference_mode():
            self.model(input_ids=torch.zeros(1, 1, dtype=torch.long, device=next(self.model.parameters()).device))

    def _end_training_mode(self) -> None:
        """Dropout would make every number another one."""
        if any(module.training for module in self.model.modules()):
            self.model.eval()
            warnings.warn(
                f"{type(self.model).__name__} was in training mode, in which each pass gives other numbers. It is in "
                "evaluation mode now (model.eval()).",
                stacklevel=5,
            )

    @cached_property
    def _padding(self) -> int:
        return padding_id(self.tokenizer, end_ids(self.model, self.tokenizer) or [0])

    @property
    def max_length(self) -> int | None:
        """The number of tokens of prompt and answer that the model can read together; None if it does not say."""
        return max_length_of(self.model)

    @property
    def _columns(self) -> int:
        return columns_of(self.model)

    @property
    def gives(self) -> frozenset[Readable]:
        """Rows of logits always; hidden states if the model's layers are found, and attention if they can compute it in
        the plain way, which shows the weights.
        """
        readings: set[Readable] = {"log_probability", "entropy", "best", "row", "logits"}
        if gives_attention(self.model):
            readings.add("attention")
        try:
            layers_of(self.model)
        except ModelError:
            return frozenset(readings)
        return frozenset(readings | {"states"})

    @cached_property
    def weights(self) -> str | None:
        """A hash that tells this model at this precision from all others; see `weights_hash`."""
        return weights_hash(self.model)

    def default_clusters(self, progress: Callable[..., None] | None = None) -> TokenClusters:
        """The clusters cached for this model, or computed and cached."""
        return clusters_for_model(self.model, self.vocabulary, progress=progress)

    # --- generating ----------------------------------------------------------------------------------------------

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding | Sequence[Decoding], observers: Sequence[Observer] = ()
    ) -> list[Completion]:
        """Answer each prompt; see `Backend.generate`.

        `Decoding.options` are keyword arguments of transformers' `generate`. An answer ends where the model reads no
        further (`max_length`).
        """
        require_readings(self, observers)
        decodings = as_decodings(decoding, len(prompts))
        if not prompts:
            return []
        encoded = self._encoded(prompts, decodings)
        asked = [
            (ids, [self._row(number * each.n + sample, each, ids, sample) for sample in range(each.n)])
            for number, (ids, each) in enumerate(zip(encoded, decodings, strict=True))
        ]
        proof, options = self._tried(encoded), decodings[0].options
        images = any(isinstance(ids, ImagePrompt) for ids in encoded)
        if proof.generates == "never":
            self._write(asked, decodings[0], observers, together=False)
        elif proof.joined and only_usual(self.model.generation_config) and not options and not images:
            self._write(asked, decodings[0], observers, together=True)
        else:
            cells = [(ids, row) for ids, rows in asked for row in rows]
            alone = proof.generates == "alone" or images
            lengths = [len(ids) if proof.generates == "equal" else 0 for ids, _ in cells]
            for batch in _batches(lengths, 1 if alone else decodings[0].batch_size * decodings[0].n):
                self._generate([cells[number] for number in batch], decodings[0], observers)
        return [row.completion for _, rows in asked for row in rows if row.completion is not None]

    def _write(
        self, asked: Sequence[_Asked], decoding: Decoding, observers: Sequence[Observer], *, together: bool
    ) -> None:
        """Answer prompts without transformers' `generate`: in batches, which complete answers leave, or each alone.
        `BackendError` if options are given, or the model's settings name some, that only `generate` follows.
        """
        self._check_plain(decoding.options)
        known = self._shared_prefix([ids for ids, _ in asked]) if together and decoding.share_prefix else None
        inside = Inside(observers)
        writer = RowWriter(self.passes, self.vocabulary, observers, inside)
        with inside.watching(self.model):
            if together:
                for first in range(0, len(asked), decoding.batch_size):
                    writer.write(asked[first : first + decoding.batch_size], known)
            else:
                for ids, rows in asked:
                    for row in rows:
                        writer.write_alone(ids, row)

    def _check_plain(self, options: Mapping[str, Any]) -> None:
        unusual = set(options) - {"max_new_tokens", "eos_token_id", "pad_token_id"}
        if options.get("do_sample") is False:
            unusual.discard("do_sample")
        if unusual or not only_usual(self.model.generation_config):
            raise BackendError(
                f"transformers' generate fails with {type(self.model).__name__} and its settings, or gives other "
                "numbers than one pass over the text, so it is not used, and its settings cannot be followed"
                f"{': ' if unusual else ''}{', '.join(sorted(unusual))}. Leave them out."
            )

    @property
    def joins(self) -> bool:
        """True if answers can begin and end one by one: rows of the model's cache that are put together go on as they
        would alone, and its settings for generation name nothing that only transformers' `generate` does.
        """
        usual = only_usual(self.model.generation_config) and self.processor is None  # images do not join
        return usual and self._tried().joined

    def generate_joining(self, arrivals: Callable[[], Sequence[Arrival]], observers: Sequence[Observer]) -> None:
        """Answer prompts as they come; see `JoiningBackend.generate_joining`."""
        require_readings(self, observers)
        self._tried()  # before observers look
        inside = Inside(observers)
        rows = JoiningRows(RowWriter(self.passes, self.vocabulary, observers, inside), self.read_before)
        with inside.watching(self.model):
            # The hooks of the block are part of the state, if it has any. It takes milliseconds to work out, which are
            # spent for those who join only.
            state = state_key(self.model) if inside.wanted else self._state
            newcomers = arrivals()
            while newcomers or rows:
                check_lengths([len(newcomer.prompt_ids) for newcomer in newcomers], self.max_length)
                rows.advance(
                    [
                        (self._row(arrival.answer, arrival.decoding, arrival.prompt_ids), arrival)
                        for arrival in newcomers
                    ]
                )
                if newcomers := arrivals():
                    before, state = state, state_key(self.model)
                    if before != state:
                        rows.forget()

    def check(self, prompts: Sequence[Prompt], decoding: Decoding) -> None:
        """Raise the error that `generate` would raise before its first step; does nothing if it would raise none."""
        self._encoded(prompts, [decoding])

    def _encoded(self, prompts: Sequence[Prompt], decodings: Sequence[Decoding]) -> list[list[int]]:
        for decoding in decodings:
            check_decoding(self.model, decoding)
        encoded = self.encode(prompts)
        check_lengths(map(len, encoded), self.max_length)
        return encoded

    def encode(self, prompts: Sequence[Prompt], *, files: bool = True) -> list[list[int]]:
        """Token ids of each prompt; those of messages with images carry them along.

        Images may be data URLs, and with `files` also files of this machine.
        """
        return [self._encode(prompt, number, files) for number, prompt in enumerate(prompts)]

    def _encode(self, prompt: Prompt, number: int, files: bool) -> list[int]:
        if isinstance(prompt, ImagePrompt):
            return prompt
        if self.processor is None and has_images(prompt):
            raise InvalidInputError(
                f"Prompt {number} has an image, and {type(self.model).__name__} reads none: {self._without_images}."
            )
        if self.processor is None or isinstance(prompt, str) or is_ids(prompt):
            ids = encode_prompt(self.tokenizer, prompt, number)
            check_prompt_ids(ids, len(self.model.get_input_embeddings().weight), number)
            return ids
        return encode_messages(self.processor, prompt, number, files=files)

    @cached_property
    def _image_passes(self) -> ImagePasses:
        token = int(np.argmin(self.vocabulary.special))
        return ImagePasses(self.model, Passes(self.model).device, token, self._padding)

    def read_prefix(self, prompts: Sequence[Prompt]) -> None:
        """Read the beginning that all prompts share before `generate` with `share_prefix`, to measure what that
        costs.
        """
        self._shared_prefix(self.encode(prompts))

    def timed_passes(self, clock: Callable[[], AbstractContextManager[None]]) -> AbstractContextManager[None]:
        """Enter `clock()` around every forward pass of the model, until the block ends."""
        return timed_passes(self.model, clock)

    def _shared_prefix(self, encoded: Sequence[Sequence[int]]) -> SharedPrefix | None:
        """The beginning of all prompts, read, if it is long enough and the model's cache can be repeated."""
        beginning = shared_beginning(encoded) if len(encoded) > 1 else ()
        if len(beginning) < SHORTEST_PREFIX:
            return None
        for _ in read_trunk(self.passes, self.read_before, beginning):
            pass
        trunk = self.read_before.trunk
        return trunk if trunk is not None and trunk.is_whole else None

    def _row(self, answer: int, decoding: Decoding, prompt: Sequence[int], sample: int = 0) -> BatchRow:
        limit = int(decoding.options.get("max_new_tokens", decoding.max_new_tokens))
        if self.max_length is not None:
            limit = min(limit, self.max_length - len(prompt) + 1)  # the last token need not be read
        stop_ids = stop_ids_of(self.model, self.tokenizer, decoding)
        if decoding.stop_at_newline:
            stop_ids |= self.newlines
        choices = AnswerChoices.of(decoding, prompt, sample)
        return BatchRow(answer, limit, frozenset(stop_ids), decoding.stop_strings, choices=choices)

    def _generate(
        self, cells: Sequence[tuple[list[int], BatchRow]], decoding: Decoding, observers: Sequence[Observer]
    ) -> None:
        """Answer the prompt of each row of a batch by one call of transformers' `generate`."""
        rows, prompt = [row for _, row in cells], cells[0][0]
        padded = range(self.vocabulary.size, self._columns)  # columns of a padded lm_head are no tokens
        options = generate_arguments(self.model, self.tokenizer, decoding, rows, padded)
        processors = listed(options.pop("logits_processor", ()), "logits_processor")
        if not all(map(callable, processors)):
            raise InvalidInputError("'logits_processor' must be a list of processors, each of which can be called.")
        choices = [row.choices for row in rows]
        drawing = [Sampling(choices, self.vocabulary.size)] * any(choice.settings for choice in choices)
        if isinstance(prompt, ImagePrompt):  # one with images is alone
            inputs = self._image_passes.inputs(prompt)
        else:
            inputs = generate_inputs(self.passes, pad([ids for ids, _ in cells], self._padding, left=True))
        watch = StepWatch(self.vocabulary, rows, observers, decoding.options.get("stopping_criteria") or ())
        with watch.watching(self.model), refused_options(watch):
            answering_once(self.model).generate(  # there is a row for each answer
                **inputs, **options, logits_processor=[*processors, *drawing], stopping_criteria=[watch]
            )
        watch.close()

    # --- reading -------------------------------------------------------------------------------------------------

    def read(
        self,
        prompts: Sequence[Prompt],
        replies: Sequence[Response],
        observers: Sequence[Observer],
        *,
        batch_size: int = 8,
        chunk_size: int | None = None,
    ) -> None:
        """Read replies in teacher-forced passes; see `Backend.read`.

        `chunk_size` is the number of reply tokens whose logits exist at one time, by default as many as have up to
        `MOST_LOGITS` numbers.
        """
        require_readings(self, observers)
        if chunk_size is not None:
            whole(chunk_size, "chunk_size", low=1)
        encoded = self.encode(prompts)
        asked = [  # the ids of messages by a processor are not those of the tokenizer
            ids if self.processor is not None and not isinstance(prompt, str) else prompt
            for prompt, ids in zip(prompts, encoded, strict=True)
        ]
        answers = encode_responses(self.tokenizer, self.vocabulary, asked, encoded, replies)
        # The last token of a reply need not be read.
        texts = [prompt + reply[:-1] for prompt, reply in zip(encoded, answers, strict=True)]
        check_lengths(map(len, texts), self.max_length, "and its response, without the last token, have")
        self._given_texts(encoded).show(encoded, answers, observers, batch_size, chunk_size)

    def _given_texts(self, prompts: Sequence[list[int]]) -> GivenTexts:
        """Reads texts behind these prompts, in the ways that the model has proved."""
        proof = self._tried(prompts)
        passes = Passes(self.model, frozenset(proof.takes))
        return GivenTexts(passes, proof, self.vocabulary, self._columns, self._padding, self._image_passes)

    @property
    def reads_trees(self) -> bool:
        """True if the model reads several prompts in one pass as a tree of tokens."""
        return self._tried().trees

    def read_ends(
        self,
        prompts: Sequence[tuple[int, ...]],
        places: Sequence[Place],
        take: Callable[[int, torch.Tensor], None],
        behind: ReadTexts | None = None,
    ) -> Generator[int, int | None, ReadTexts]:
        """Read texts together, as a model does that reads trees; see `semtoken.models.transformers.trees.read_ends`."""
        return read_ends(self.passes, self.read_before, prompts, places, take, behind)


def _batches(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Numbers of the rows that are written together, all of prompts of one length, in their order."""
    groups: dict[int, list[int]] = {}
    for number, length in enumerate(lengths):
        groups.setdefault(length, []).append(number)
    # The longest first, so that a lack of memory shows at once.
    for length in sorted(groups, reverse=True):
        members = groups[length]
        yield from (members[first : first + batch_size] for first in range(0, len(members), batch_size))
