"""A transformers model as a `Backend`."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers.generation.configuration_utils import GenerationMode

from semtoken.clustering.cache import clusters_for_model
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core.results import Distribution
from semtoken.errors import (
    BackendError,
    InvalidInputError,
    InvalidLogits,
    ModelError,
    SemtokenError,
    VocabularyMismatch,
    one_line_of,
)
from semtoken.methods.observers.steps import Completion, Observer, Readable, Step, finish, show
from semtoken.models.base import Arrival, Decoding, OwnTokens, Prompt, Response, require_readings
from semtoken.models.prompt_ids import (
    as_decodings,
    encode_prompt,
    encode_responses,
    end_ids,
    end_token_ids,
    in_batches_by_length,
    is_ids,
    pad,
    padding_id,
)
from semtoken.models.transformers.identity import state_key, weights_hash, weights_key
from semtoken.models.transformers.images import ImagePasses, ImagePrompt, encode_messages
from semtoken.models.transformers.inside import (
    Inside,
    gives_attention,
    layers_of,
    timed_passes,
    without_runner,
)
from semtoken.models.transformers.joining import JoiningRows, only_usual
from semtoken.models.transformers.passes import (
    CACHE,
    SHORTEST_PREFIX,
    Passes,
    SharedPrefix,
    cache_of,
    shared_beginning,
)
from semtoken.models.transformers.proof import Proof, generate_inputs, one_answer_each
from semtoken.models.transformers.writing import AnswerChoices, BatchRow, Sampling, StepWatch, write_plainly
from semtoken.support.arrays import FloatArray, as_rows
from semtoken.support.files.images import has_images
from semtoken.support.inputs import flag, listed, whole

MOST_LOGITS = 2**25
"""How many logits exist at one time when replies are read, unless those of one token of each reply are more."""

COLDEST = 1e-30
"""The lowest temperature whose quotients with logits stay far from the largest float32."""
NOT_BEAMS = (
    "A beam's tokens are chosen among hypotheses that are reordered and dropped on the way, so there is no single "
    "next-token distribution that the answer was drawn from. Use greedy decoding (num_beams=1) or sampling."
)


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
        self._weights_key = ""
        self._prefix: SharedPrefix | None = None
        self.last_prompt: SharedPrefix | None = None
        """The prompt that `generate_joining` read last, for those that begin like it."""
        self.last_trunk: SharedPrefix | None = None
        """What all prompts of the last `GrowingTree` begin with."""

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokens of the tokenizer, without special ones beyond the model's last logit, which it can never write.

        `VocabularyMismatch` if the model has no logit for another token.
        """
        vocabulary = Vocabulary.from_tokenizer(self.tokenizer)
        if self._columns < vocabulary.size and not any(vocabulary.texts[self._columns :]):
            return vocabulary.first(self._columns)
        if self._columns < vocabulary.size:
            raise VocabularyMismatch(
                f"The model has {self._columns:,} logits, its tokenizer {vocabulary.size:,} tokens. Is this the "
                "model's own tokenizer?"
            )
        return vocabulary

    @cached_property
    def proof(self) -> Proof:
        """Which ways of reading this model are equal to a plain pass."""
        self._end_training_mode()
        proves = self._prove and not waits_for_tokens(self.model)
        return Proof.of(self.model, self.vocabulary, self._padding) if proves else Proof()

    @property
    def passes(self) -> Passes:
        """How the model is called."""
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
            self.forget_prompts()
            for name in ("proof", "weights", "_image_passes"):
                self.__dict__.pop(name, None)

    def forget_prompts(self) -> None:
        """Drop what was read of prompts."""
        self._weights_key = weights_key(self.model)
        self._prefix = self.last_prompt = self.last_trunk = None

    def has_other_weights(self) -> bool:
        """Whether the weights were changed since prompts were read."""
        return weights_key(self.model) != self._weights_key

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
        """How many tokens of prompt and answer the model can read together; None if it does not say."""
        try:
            limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        except NotImplementedError:  # some say that they have no limit in this way
            return None
        return None if limit is None or int(limit) < 1 else int(limit)

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

    @property
    def _columns(self) -> int:
        head = self.model.get_output_embeddings()
        return int(getattr(head, "out_features", None) or head.weight.shape[0])

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
        proof, n = self._tried(encoded), decodings[0].n
        images = any(isinstance(ids, ImagePrompt) for ids in encoded)
        if proof.generates == "never":
            return self._write_plainly(encoded, decodings, observers)
        caches = not (self._settings(decodings[0]).use_cache is False or decodings[0].options.get("use_cache") is False)
        several = n > 1 or (len(encoded) > 1 and (decodings[0].share_prefix or decodings[0].batch_size > 1))
        resumes = several and caches and not images and proof.resumes
        prefix = self._shared_prefix(encoded) if decodings[0].share_prefix and resumes and proof.continued else None
        shrinks = (
            resumes and only_usual(self.model.generation_config) and not any(settings.options for settings in decodings)
        )
        completions: dict[int, Completion] = {}
        equal = prefix is not None or proof.generates == "equal"
        alone = proof.generates == "alone" or images
        for batch in self._batches(encoded, 1 if images else decodings[0].batch_size, equal_lengths=equal):
            cells = [(number, sample) for number in batch for sample in range(n)]
            for some in [[cell] for cell in cells] if alone else [cells]:
                rows = [self._row(number * n + sample, decodings[number], encoded[number]) for number, sample in some]
                choices = [AnswerChoices.of(decodings[number], encoded[number], sample) for number, sample in some]
                criteria = decodings[0].options.get("stopping_criteria") or ()
                watch = StepWatch(self.vocabulary, rows, observers, criteria, shrinks=shrinks)
                inputs = self._inputs([encoded[number] for number, _ in some])
                if resumes and (n > 1 or prefix is not None):
                    inputs |= self._read_before([encoded[number] for number in batch], n, prefix)
                self._generate(inputs, self._options(decodings[0], rows), choices, watch)
                completions |= watch.completions
        return [completions[answer] for answer in range(len(prompts) * n)]

    def _inputs(self, prompts: Sequence[list[int]]) -> dict[str, Any]:
        """What `generate` takes to answer these prompts; one with images is alone."""
        if isinstance(first := prompts[0], ImagePrompt):
            self._settled(first)
            return first.inputs([], 0, self._image_passes.device)
        return generate_inputs(self.passes, pad(prompts, self._padding, left=True))

    def _write_plainly(
        self, prompts: Sequence[list[int]], decodings: Sequence[Decoding], observers: Sequence[Observer]
    ) -> list[Completion]:
        """Answer each prompt without transformers' `generate`.
        `BackendError` if options are given, or the model's settings name some, that only `generate` follows.
        """
        unusual = set(decodings[0].options) - {"max_new_tokens", "eos_token_id", "pad_token_id"}
        if decodings[0].options.get("do_sample") is False:
            unusual.discard("do_sample")
        if unusual or not only_usual(self.model.generation_config):
            raise BackendError(
                f"transformers' generate fails with {type(self.model).__name__} and its settings, or gives other "
                "numbers than one pass over the text, so it is not used, and its settings cannot be followed"
                f"{': ' if unusual else ''}{', '.join(sorted(unusual))}. Leave them out."
            )
        completions = []
        for number, (ids, decoding) in enumerate(zip(prompts, decodings, strict=True)):
            for sample in range(decoding.n):
                row = self._row(number * decoding.n + sample, decoding, ids)
                choices = AnswerChoices.of(decoding, ids, sample)
                completions.append(write_plainly(self.passes, self.vocabulary, ids, row, choices, observers))
        return completions

    @property
    def joins(self) -> bool:
        """Whether answers can begin and end one by one: rows of the model's cache that are put together go on as they
        would alone, and its settings for generation name nothing that only transformers' `generate` does.
        """
        usual = only_usual(self.model.generation_config) and self.processor is None  # images do not join
        return usual and self._tried().joined

    def generate_joining(self, arrivals: Callable[[], Sequence[Arrival]], observers: Sequence[Observer]) -> None:
        """Answer prompts as they come; see `JoiningBackend.generate_joining`."""
        require_readings(self, observers)
        self._tried()  # before observers look
        inside = Inside(observers)
        rows = JoiningRows(self, observers, inside)
        with inside.watching(self.model):
            while (newcomers := arrivals()) or rows:
                self._check_lengths([newcomer.prompt_ids for newcomer in newcomers])
                rows.advance(
                    [
                        (self._row(arrival.answer, arrival.decoding, arrival.prompt_ids), arrival)
                        for arrival in newcomers
                    ]
                )

    def check(self, prompts: Sequence[Prompt], decoding: Decoding) -> None:
        """Raise the error that `generate` would raise before its first step; does nothing if it would raise none."""
        self._encoded(prompts, [decoding])

    def _encoded(self, prompts: Sequence[Prompt], decodings: Sequence[Decoding]) -> list[list[int]]:
        for decoding in decodings:
            self._check_options(decoding)
        encoded = self.encode(prompts)
        self._check_lengths(encoded)
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
            return encode_prompt(self.tokenizer, prompt, number)
        return encode_messages(self.processor, prompt, number, files=files)

    @cached_property
    def _image_passes(self) -> ImagePasses:
        return ImagePasses(self.model, Passes(self.model).device)

    def _settled(self, prompt: ImagePrompt) -> ImagePasses:
        """Passes over a prompt with images, once it is known how replies to such prompts are read."""
        self._image_passes.settle(prompt, int(np.argmin(self.vocabulary.special)), self._padding)
        return self._image_passes

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
        if self._prefix is None or self._prefix.token_ids != beginning:
            self._prefix = None  # two of them need not exist at one time
            batch = pad([beginning], 0, left=True)
            with torch.no_grad():
                output = self.passes.rows(batch.ids, mask=batch.mask)
            self._prefix = SharedPrefix(beginning, cache_of(output))
        return self._prefix

    def _batches(
        self, encoded: Sequence[Sequence[int]], batch_size: int, *, equal_lengths: bool
    ) -> Iterator[list[int]]:
        """Numbers of prompts that are decoded together: in their order, or those of one length."""
        groups: dict[int, list[int]] = {}
        for number, ids in enumerate(encoded):
            groups.setdefault(len(ids) if equal_lengths else 0, []).append(number)
        # The longest first, so that a lack of memory shows at once.
        for length in sorted(groups, reverse=True):
            members = groups[length]
            yield from (members[first : first + batch_size] for first in range(0, len(members), batch_size))

    def _row(self, answer: int, decoding: Decoding, prompt: Sequence[int]) -> BatchRow:
        limit = int(decoding.options.get("max_new_tokens", decoding.max_new_tokens))
        if self.max_length is not None:
            limit = min(limit, self.max_length - len(prompt) + 1)  # the last token need not be read
        return BatchRow(answer, limit, frozenset(self._stop_ids(decoding)), decoding.stop_strings)

    def _generate(
        self, inputs: dict[str, Any], options: dict[str, Any], choices: list[AnswerChoices], watch: StepWatch
    ) -> None:
        """Decode one batch. Complete answers leave it when they are half of it, if `generate` goes on from a cache."""
        processors = listed(options.pop("logits_processor", ()), "logits_processor")
        if not all(map(callable, processors)):
            raise InvalidInputError("'logits_processor' must be a list of processors, each of which can be called.")
        with watch.watching(self.model):
            while True:
                drawing = [Sampling(choices, self.vocabulary.size)] * any(choice.settings for choice in choices)
                with _refused_options(watch), one_answer_each(self.model):  # all rows are there
                    sequences = self.model.generate(
                        **inputs, **options, logits_processor=[*processors, *drawing], stopping_criteria=[watch]
                    )
                if not (left := watch.smaller_batch()):
                    break
                inputs = inputs_to_continue(inputs, sequences, watch.cache, left)
                choices = [choices[row] for row in left]
                options["max_new_tokens"] = watch.tokens_left
        watch.close()

    def _read_before(self, prompts: list[list[int]], n: int, prefix: SharedPrefix | None) -> dict[str, Any]:
        """The cache of each prompt, once for all of its `n` answers, or of what all of them begin with.
        With several answers, all of a prompt but its last token is read here.
        """
        cache = None if prefix is None else prefix.repeated(len(prompts))
        known = 0 if prefix is None else len(prefix.token_ids)
        batch = pad(prompts, self._padding, left=True)
        if n > 1 and batch.ids.shape[1] > known + 1:
            with torch.no_grad():
                output = self.passes.rows(batch.ids[:, known:-1], mask=batch.mask[:, :-1], cache=cache)
            cache = cache_of(output)
        if cache is None:
            return {}
        if n > 1:
            # Row i becomes rows i * n to i * n + n - 1, in the order of the answers.
            cache.batch_repeat_interleave(n)
        return {CACHE: cache}

    def _check_options(self, decoding: Decoding) -> None:
        options, mode = decoding.options, self._mode(decoding)
        if "beam" in mode:
            raise BackendError(f"Beam search is refused. {NOT_BEAMS}")
        if mode == GenerationMode.ASSISTED_GENERATION:
            raise BackendError("Assisted decoding is refused: it proposes several tokens at a time. Decode one by one.")
        if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
            raise BackendError(
                f"Decoding by {mode} is refused: its tokens are not chosen from the model's logits alone."
            )
        if (options.get("num_return_sequences") or 1) > 1:
            raise InvalidInputError(
                "Several answers to a prompt are asked for by `Decoding.n`, not by num_return_sequences."
            )
        if options.get("top_k") is not None:
            whole(options["top_k"], "top_k", low=0)
        temperature = options.get("temperature")
        if isinstance(temperature, float) and 0 < temperature < COLDEST:
            raise InvalidInputError(
                f"Logits divided by a temperature of {temperature:g} are no float32 numbers. Give do_sample=False for "
                f"the best token at every step, or a temperature of at least {COLDEST:g}."
            )

    def _mode(self, decoding: Decoding) -> str:
        """How transformers' `generate` would choose tokens, by its own name for it."""
        settings = copy.deepcopy(self._settings(decoding))
        for name, value in decoding.options.items():
            if hasattr(settings, name):
                setattr(settings, name, value)
        return str(settings.get_generation_mode(decoding.options.get("assistant_model")).value)

    def _settings(self, decoding: Decoding) -> Any:
        """The settings for generation that hold where `options` say nothing: those in the options, or the model's."""
        return decoding.options.get("generation_config") or self.model.generation_config

    def _options(self, decoding: Decoding, rows: Sequence[BatchRow]) -> dict[str, Any]:
        """Keyword arguments of transformers' `generate`."""
        given = dict(decoding.options)
        given.pop("stopping_criteria", None)
        options: dict[str, Any] = {"do_sample": False} | as_arguments(given.pop("generation_config", None)) | given
        if options["do_sample"] is not None:
            flag(options["do_sample"], "do_sample")
        if not options["do_sample"]:  # unset the model's own sampling defaults, about which transformers would warn
            options = {"temperature": None, "top_p": None, "top_k": None} | options
        options["max_new_tokens"] = max(row.max_new_tokens for row in rows)
        stop_ids = frozenset.intersection(*(row.stop_ids for row in rows))
        # `generate` ends a row only at a token that ends all of them; what ends one answer earlier is known to
        # `StepWatch`.
        options["eos_token_id"] = sorted(stop_ids) or None
        options.setdefault("pad_token_id", padding_id(self.tokenizer, stop_ids or rows[0].stop_ids))
        padded = range(self.vocabulary.size, self._columns)
        if padded:  # columns of a padded lm_head are no tokens
            own = getattr(self.model.generation_config, "suppress_tokens", None)
            options["suppress_tokens"] = [*(options.get("suppress_tokens") or own or ()), *padded]
        return options

    def _stop_ids(self, decoding: Decoding) -> set[int]:
        given = decoding.options.get("eos_token_id")
        if given is None:
            given = getattr(decoding.options.get("generation_config"), "eos_token_id", None)
        if given is None:
            given = end_ids(self.model, self.tokenizer)
        stop_ids = set(end_token_ids(given))
        return stop_ids | self.newlines if decoding.stop_at_newline else stop_ids

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
        encoded = self.encode(prompts)
        asked = [  # the ids of messages by a processor are not those of the tokenizer
            ids if self.processor is not None and not isinstance(prompt, str) else prompt
            for prompt, ids in zip(prompts, encoded, strict=True)
        ]
        answers = encode_responses(self.tokenizer, self.vocabulary, asked, encoded, replies)
        self._check_lengths([prompt + reply for prompt, reply in zip(encoded, answers, strict=True)])
        inside = Inside(observers)
        proof = self._tried(encoded)
        images = any(isinstance(ids, ImagePrompt) for ids in encoded)
        if images or not (proof.padded and proof.continued):
            batch_size = 1
        for first in range(0, len(encoded), batch_size):
            batch = range(first, min(first + batch_size, len(encoded)))
            chunk = chunk_size or max(1, MOST_LOGITS // (len(batch) * self._columns))
            with inside.watching(self.model):
                for step in self._reply_steps(batch, encoded, answers, chunk, inside):
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
        """Logits from which the tokens of the replies are drawn, in order: [B, steps, columns], `chunk` steps at most.
        Prompts are read with the first chunk of the replies; others follow on the cache.
        """
        # Blank replies have no steps, and nothing needs to be read.
        if not any(replies):
            return
        if isinstance(prompts[0], ImagePrompt):
            yield self._settled(prompts[0]).whole(prompts[0], replies[0][:-1], len(replies[0]))[None]
            return
        if not self.proof.continued:
            [prompt_ids], [reply_ids] = prompts, replies
            yield self.passes.whole([*prompt_ids, *reply_ids[:-1]], len(reply_ids))[None]
            return
        prompt, reply = pad(prompts, self._padding, left=True), pad(replies, self._padding, left=False)
        ids = np.concatenate([prompt.ids, reply.ids[:, :-1]], axis=1)  # nothing is drawn after the last token
        mask = np.concatenate([prompt.mask, np.ones_like(reply.ids[:, :-1])], axis=1)
        # The first token of a reply is drawn behind the last token of its prompt.
        begin, first, cache = 0, prompt.ids.shape[1] - 1, None
        while begin < ids.shape[1]:
            stop = min(first + chunk, ids.shape[1])
            output = self.passes.rows(ids[:, begin:stop], mask=mask[:, :stop], cache=cache, keep=stop - first)
            yield output.logits[:, first - stop :]
            begin = first = stop
            cache = cache_of(output)

    def next_log_probs(
        self, prompts: Sequence[Prompt], continuations: Sequence[Sequence[int]], *, batch_size: int = 8
    ) -> FloatArray:
        """Log-probability of each continuation after each prompt, in as few forward passes as possible."""
        encoded = self.encode(prompts)
        if any(isinstance(ids, ImagePrompt) for ids in encoded):
            return self._after_images(encoded, continuations)
        self._check_lengths(encoded, more=max(map(len, continuations), default=1) - 1)
        if not self._tried().padded:
            batch_size = 1
        sums = np.empty((len(prompts), len(continuations)))
        for beginning, members in shared_beginnings(continuations):
            for batch in in_batches_by_length([len(ids) for ids in encoded], batch_size):
                rows = self._last_log_probs([[*encoded[i], *beginning] for i in batch], len(beginning) + 1)
                for number in members:
                    ids = list(continuations[number])
                    sums[batch, number] = rows[:, np.arange(len(ids)), ids].sum(axis=1, dtype=np.float64)
        return sums

    @torch.inference_mode()
    def _after_images(self, prompts: Sequence[list[int]], continuations: Sequence[Sequence[int]]) -> FloatArray:
        """As `next_log_probs`, one continuation of one prompt at a time."""
        sums = np.zeros((len(prompts), len(continuations)))
        for row, prompt in enumerate(prompts):
            for column, ids in enumerate(map(list, continuations)):
                logits = (
                    self._settled(prompt).whole(prompt, ids[:-1], len(ids))
                    if isinstance(prompt, ImagePrompt)
                    else self.passes.whole([*prompt, *ids[:-1]], len(ids))
                )
                log_probs = logits[:, : self.vocabulary.size].double().log_softmax(-1)
                sums[row, column] = float(log_probs[range(len(ids)), ids].sum())
        return sums

    @torch.inference_mode()
    def _last_log_probs(self, sequences: list[list[int]], keep: int) -> npt.NDArray[np.float32]:
        """Log-probabilities of what follows each of the last `keep` tokens, [B, keep, V]."""
        if len(sequences) == 1:
            logits = self.passes.whole(sequences[0], keep)[None]
        else:
            batch = pad(sequences, self._padding, left=True)
            logits = self.passes.rows(batch.ids, mask=batch.mask, keep=keep).logits[:, -keep:]
        logits = logits[..., : self.vocabulary.size]
        if not torch.isfinite(logits.max(dim=-1).values).all():  # a NaN is the greatest of its row
            raise InvalidLogits("The model gives NaN or no finite logit after a prompt.")
        return np.asarray(logits.float().log_softmax(-1).cpu().numpy())

    @property
    def reads_trees(self) -> bool:
        """Whether the model reads several prompts in one pass as a tree of tokens."""
        return self._tried().trees

    def _check_lengths(self, sequences: Sequence[Sequence[int]], more: int = 0) -> None:
        """Check that sequences can be read, with so many tokens `more`."""
        limit = self.max_length
        for number, ids in enumerate(sequences):
            if limit is not None and len(ids) + more > limit:
                raise InvalidInputError(
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
    return {"input_ids": ids, "attention_mask": mask, CACHE: cache}


def as_arguments(settings: Any) -> dict[str, Any]:
    """What a generation config sets, as arguments of transformers' `generate`, which is not to be given both."""
    own = {"max_length", "num_return_sequences", "transformers_version", "_from_model_config"}
    return {} if settings is None else {name: getattr(settings, name) for name in {*settings.to_diff_dict()} - own}


def shared_beginnings(continuations: Sequence[Sequence[int]]) -> list[tuple[tuple[int, ...], list[int]]]:
    """The smallest set of beginnings that serves all continuations, each with the numbers of its continuations.

    A continuation needs a pass that ends with all its tokens but the last, or goes on from there.

    >>> shared_beginnings([(5, 6), (7,), (8, 9)])
    [((5,), [0, 1]), ((8,), [2])]
    """
    left = dict(enumerate(map(tuple, continuations)))
    groups = []
    while left:
        # The longest one serves all that it begins with.
        beginning = max(left.values(), key=len)[:-1]
        members = [number for number, ids in left.items() if beginning[: len(ids) - 1] == ids[:-1]]
        groups.append((beginning, members))
        left = {number: ids for number, ids in left.items() if number not in members}
    return groups


def waits_for_tokens(model: Any) -> bool:
    """Whether an adapter of the model acts only behind certain tokens (activated LoRA), which passes over other texts
    show nothing of.
    """
    configs = getattr(model, "peft_config", None)
    return any(getattr(one, "alora_invocation_tokens", None) for one in dict(configs or {}).values())


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
    except (ValueError, TypeError, AttributeError, KeyError, ImportError, AssertionError) as error:
        # The model has run, so that it was no option that failed.
        if watch.logits is not None:
            raise
        raise InvalidInputError(f"transformers' generate refuses these options: {one_line_of(error)}") from error
