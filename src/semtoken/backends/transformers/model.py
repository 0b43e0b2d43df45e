"""Hugging Face transformers: generate answers with their uncertainty, or score text that already exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from semtoken._arrays import Rows, as_rows, log_normalizers
from semtoken._extras import require
from semtoken.backends.prompts import (
    PaddedBatch,
    Prompt,
    Response,
    answer_length,
    as_prompts,
    encode_prompt,
    encode_response,
    newline_ids,
    pad,
    padding_id,
)
from semtoken.backends.transformers.recorder import NOT_BEAMS, ClusterRecorder
from semtoken.cluster_cache import clusters_for_model
from semtoken.clusters import TokenClusters
from semtoken.errors import BackendError, InvalidInput, ModelError, VocabularyMismatch
from semtoken.models.gguf import load_tokenizer
from semtoken.models.sources import resolve
from semtoken.results import ScoredResponse
from semtoken.scoring import LogitsAnswer, add_step, scorer_for
from semtoken.scoring.rules import FunctionWords, Preset, ScoringRules

__all__ = ["STC", "ClusterRecorder"]

require("torch", extra="transformers")
require("transformers", extra="transformers")

import torch  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

OnResult = Callable[[int, ScoredResponse], None]


@dataclass(frozen=True, eq=False)
class ReplyStep:
    """One step of several replies that are read, not generated."""

    logits: Rows
    """[n, columns] of the replies that go on."""
    answers: list[int]
    """[n] their numbers."""
    tokens: list[int]
    """[n] their next tokens."""


class STC:
    """A transformers model whose answers come with an uncertainty, from the one generation made anyway.

    Parameters
    ----------
    model
        A causal language model of transformers, with an output head.
    tokenizer
        Its tokenizer.
    clusters
        `TokenClusters`, or a directory or hub id of some. None: those cached for this model, or computed
        (minutes for a vocabulary of 150k) and cached.
    preset, function_words, clustering, prefix_matching
        As in `score_logits`.
    progress
        Called with the progress of clustering; see `semtoken.clustering`.

    Raises
    ------
    ModelError
        The model is an encoder-decoder or has no output head.
    VocabularyMismatch
        The clusters are those of another tokenizer, or the model has fewer logits than the tokenizer has tokens.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        clusters: TokenClusters | str | None = None,
        *,
        preset: Preset = "default",
        function_words: FunctionWords = "paper",
        clustering: bool = True,
        prefix_matching: bool = True,
        progress: Callable[..., None] | None = None,
    ) -> None:
        check_model(model)
        self.model = model
        self.tokenizer = tokenizer
        self.clusters = load_clusters(clusters, model, tokenizer, progress)
        self.rules = ScoringRules(preset, function_words, clustering, prefix_matching)
        head = model.get_output_embeddings()
        if head.weight.shape[0] < self.clusters.vocabulary.size:
            raise VocabularyMismatch(
                f"The model has {head.weight.shape[0]:,} logits, its tokenizer {self.clusters.vocabulary.size:,} "
                "tokens. Is this the model's own tokenizer?"
            )

    @classmethod
    def from_pretrained(
        cls,
        model_or_path: str = "almanac",
        *,
        device: str | None = None,
        dtype: Any = "auto",
        clusters: TokenClusters | str | None = None,
        revision: str | None = None,
        trust_remote_code: bool = False,
        **rules: Any,
    ) -> STC:
        """Load a model and its tokenizer: "almanac" (the embedded one), a name that `semtoken fetch` has got, a
        GGUF file, a directory or a hub id.

        `device` is a torch device ("cuda:0"); by default the model stays where transformers puts it, and a first
        CUDA device is used if there is one. Further keyword arguments are those of `STC`.
        """
        source = resolve(model_or_path)
        if clusters is None and source.clusters is not None:
            clusters = str(source.clusters)
        name, gguf_file = source.pretrained
        if gguf_file:
            for package in ("gguf", "accelerate"):
                require(package, extra="gguf")
        options: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code, **gguf_file}
        tokenizer, model = load_model(name, dtype, options)
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        return cls(model.to(device).eval(), tokenizer, clusters, **rules)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        max_new_tokens: int = 256,
        *,
        batch_size: int = 8,
        stop_at_newline: bool = False,
        stop_strings: str | Sequence[str] = (),
        on_result: OnResult | None = None,
        **generation_kwargs: Any,
    ) -> list[ScoredResponse]:
        """Generate one answer a prompt and score it on the way, keeping a few numbers a token.

        Parameters
        ----------
        prompts
            A string, a list of chat messages (rendered by the tokenizer's template), or a list of either.
        max_new_tokens
            Tokens an answer may have.
        batch_size
            Prompts decoded together (padded on the left).
        stop_at_newline
            End an answer at the first token with a newline, as the paper's prompts ask for.
        stop_strings
            End an answer where one of these is complete. The token that completes it belongs to the answer.
        on_result
            Called with (number of the answer, answer) as soon as it is there.
        **generation_kwargs
            Anything of transformers' `generate`. Decoding is greedy unless `do_sample=True`; the distribution
            scored is the model's own at temperature 1, before any processor, either way.

        Returns
        -------
        list of ScoredResponse
            In the order of the prompts; with `num_return_sequences=k`, k in a row for each.

        Raises
        ------
        InvalidInput
            An empty prompt, chat messages without a template, or no room for an answer.
        BackendError
            Beam search or assisted decoding was asked for.
        """
        if max_new_tokens < 1 or batch_size < 1:
            raise InvalidInput(
                f"max_new_tokens and batch_size must be positive, got {max_new_tokens} and {batch_size}."
            )
        listed = as_prompts(prompts)
        encoded = [encode_prompt(self.tokenizer, prompt, number) for number, prompt in enumerate(listed)]
        self._check_lengths(encoded)
        options = self.generation_options(generation_kwargs, max_new_tokens, stop_at_newline, stop_strings)
        results: list[ScoredResponse] = []
        for first in range(0, len(encoded), batch_size):
            for result in self._generate_batch(encoded[first : first + batch_size], options):
                if on_result is not None:
                    on_result(len(results), result)
                results.append(result)
        return results

    def generation_options(
        self, given: dict[str, Any], max_new_tokens: int, stop_at_newline: bool, stop_strings: str | Sequence[str]
    ) -> dict[str, Any]:
        """Keyword arguments of transformers' `generate` for an answer that can be scored; see `generate`."""
        options = {"do_sample": False, "max_new_tokens": max_new_tokens} | given
        if not options["do_sample"]:  # unset the model's own sampling defaults, about which transformers would warn
            options = {"temperature": None, "top_p": None, "top_k": None} | options
        default_beams = getattr(self.model.generation_config, "num_beams", 1) or 1
        if (options.get("num_beams") or default_beams) > 1:
            raise BackendError(f"Beam search is refused. {NOT_BEAMS}")
        if options.get("assistant_model") is not None or options.get("prompt_lookup_num_tokens"):
            raise BackendError("Assisted decoding is refused: it proposes several tokens at a time. Decode one by one.")
        stop_ids = self._stop_ids(options.get("eos_token_id"))
        if stop_at_newline:
            stop_ids |= set(newline_ids(self.clusters.vocabulary))
        options["eos_token_id"] = sorted(stop_ids) or None
        options.setdefault("pad_token_id", padding_id(self.tokenizer, stop_ids))
        padded = range(self.clusters.vocabulary.size, self.model.get_output_embeddings().weight.shape[0])
        if padded:  # columns of a padded lm_head are no tokens
            options["suppress_tokens"] = [*(options.get("suppress_tokens") or ()), *padded]
        strings = [stop_strings] if isinstance(stop_strings, str) else list(stop_strings)
        if strings:
            options |= {"stop_strings": strings, "tokenizer": self.tokenizer}
        return options

    def _stop_ids(self, given: int | Sequence[int] | None) -> set[int]:
        if given is None:
            given = self.model.generation_config.eos_token_id
        if given is None:
            given = self.tokenizer.eos_token_id
        if given is None:
            return set()
        return {given} if isinstance(given, int) else set(given)

    def _generate_batch(self, prompts: list[list[int]], options: dict[str, Any]) -> list[ScoredResponse]:
        stop_ids = options["eos_token_id"] or ()
        recorder = ClusterRecorder(
            self.clusters,
            self.rules.preset,
            function_words=self.rules.function_words,
            clustering=self.rules.clustering,
            prefix_matching=self.rules.prefix_matching,
            eos_token_id=stop_ids,
        )
        batch = self._tensors(pad(prompts, options["pad_token_id"], left=True))
        processors = [*options.get("logits_processor", ()), recorder]
        with recorder.watching(self.model):
            output = self.model.generate(**batch, **(options | {"logits_processor": processors}))
        sequences = getattr(output, "sequences", output)
        strings = options.get("stop_strings", ())
        lengths = [
            answer_length(ids, set(stop_ids), strings, self.clusters.vocabulary)
            for ids in sequences[:, batch["input_ids"].shape[1] :].tolist()
        ]
        return recorder.results(sequences, lengths=lengths)

    def score(
        self,
        prompts: Prompt | Sequence[Prompt],
        responses: Response | Sequence[Response],
        *,
        batch_size: int = 8,
        chunk_size: int = 32,
        on_result: OnResult | None = None,
    ) -> list[ScoredResponse]:
        """Score text that already exists, in one teacher-forced pass a response.

        Parameters
        ----------
        prompts
            As in `generate`.
        responses
            One text, or list of token ids, for each prompt. Text is scored as it stands: no terminator is added.
        batch_size
            Responses scored together.
        chunk_size
            Response tokens whose logits exist at one time: batch_size x chunk_size x V numbers at most.
        on_result
            Called with (number of the response, result) as soon as it is there.

        Returns
        -------
        list of ScoredResponse
            In the order of the prompts. An empty response has uncertainty 1.

        Raises
        ------
        InvalidInput
            Numbers of prompts and responses differ, or one of them cannot be used.
        """
        listed = as_prompts(prompts)
        answers = [responses] if isinstance(responses, str) or _is_ids(responses) else list(responses)
        if len(listed) != len(answers):
            raise InvalidInput(f"There are {len(listed)} prompts and {len(answers)} responses; each prompt needs one.")
        encoded = [encode_prompt(self.tokenizer, prompt, number) for number, prompt in enumerate(listed)]
        replies = [
            encode_response(self.tokenizer, prompt, ids, answer, number)  # type: ignore[arg-type]
            for number, (prompt, ids, answer) in enumerate(zip(listed, encoded, answers, strict=True))
        ]
        for ids in replies:
            self.clusters.vocabulary.check_ids(ids)
        self._check_lengths([prompt + reply for prompt, reply in zip(encoded, replies, strict=True)])
        results: list[ScoredResponse] = []
        for first in range(0, len(encoded), batch_size):
            batch = slice(first, first + batch_size)
            for result in self._score_batch(encoded[batch], replies[batch], chunk_size):
                if on_result is not None:
                    on_result(len(results), result)
                results.append(result)
        return results

    def _score_batch(self, prompts: list[list[int]], replies: list[list[int]], chunk: int) -> list[ScoredResponse]:
        scorer = scorer_for(self.clusters, self.rules)
        answers = [LogitsAnswer(scorer) for _ in prompts]
        for step in self.reply_steps(prompts, replies, chunk):
            normalizers = log_normalizers(step.logits, scorer.vocabulary.size)
            add_step(
                [answers[i] for i in step.answers], step.logits, range(len(step.answers)), step.tokens, normalizers
            )
        return [answer.finish("raw") for answer in answers]

    def reply_steps(self, prompts: list[list[int]], replies: list[list[int]], chunk: int = 32) -> Iterator[ReplyStep]:
        """One teacher-forced pass over prompts and replies, as the steps of a generation that chose these replies.

        Parameters
        ----------
        prompts, replies
            Token ids, one reply for each prompt.
        chunk
            Reply tokens whose logits exist at one time.
        """
        step = 0
        for logits in self._reply_logits(prompts, replies, chunk):
            for i in range(logits.shape[1]):
                running = [row for row, ids in enumerate(replies) if len(ids) > step]
                rows = logits[:, i] if len(running) == len(replies) else logits[running, i]
                yield ReplyStep(as_rows(rows), running, [replies[row][step] for row in running])
                step += 1

    @torch.no_grad()
    def _reply_logits(self, prompts: list[list[int]], replies: list[list[int]], chunk: int) -> Iterator[torch.Tensor]:
        """Logits from which the tokens of the replies are drawn, in order: [B, steps, columns], `chunk` at most.

        The prompts are read once; then the replies follow chunk by chunk on the model's cache.
        """
        if not any(replies):
            return
        padding = padding_id(self.tokenizer, self._stop_ids(None))
        prompt, reply = pad(prompts, padding, left=True), pad(replies, padding, left=False)
        output = self.forward(prompt, mask=prompt.mask, cache=None, keep=1)
        yield output.logits[:, -1:]
        mask = prompt.mask
        width = reply.ids.shape[1] - 1  # nothing is drawn after the last token
        for first in range(0, width, chunk):
            columns = slice(first, min(first + chunk, width))
            part = PaddedBatch(reply.ids[:, columns], np.ones_like(reply.mask[:, columns]))
            mask = np.concatenate([mask, part.mask], axis=1)
            output = self.forward(part, mask=mask, cache=output.past_key_values, keep=part.ids.shape[1])
            yield output.logits[:, -part.ids.shape[1] :]

    def forward(self, part: PaddedBatch, *, mask: np.ndarray[Any, Any], cache: Any, keep: int) -> Any:
        """One pass of the model over a part of some sequences.

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
        tensors = self._tensors(PaddedBatch(part.ids, mask))
        accepted = signature(self.model.forward).parameters
        optional = {
            "position_ids": torch.from_numpy(positions).to(tensors["input_ids"].device),
            "logits_to_keep": keep,
        }
        options = {name: value for name, value in optional.items() if name in accepted}
        return self.model(**tensors, **options, past_key_values=cache, use_cache=True)

    def _tensors(self, batch: PaddedBatch) -> dict[str, torch.Tensor]:
        device = self.model.get_input_embeddings().weight.device
        return {
            "input_ids": torch.from_numpy(batch.ids).to(device),
            "attention_mask": torch.from_numpy(batch.mask).to(device),
        }

    def _check_lengths(self, sequences: list[list[int]]) -> None:
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        for number, ids in enumerate(sequences):
            if limit is not None and len(ids) > limit:
                raise InvalidInput(f"Prompt {number} has {len(ids):,} tokens; the model reads {limit:,} at most.")


def _is_ids(responses: Any) -> bool:
    """Whether this is one response given as token ids."""
    return hasattr(responses, "__len__") and len(responses) > 0 and isinstance(responses[0], int | np.integer)


def load_model(model_or_path: str, dtype: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    """Tokenizer and causal language model of a directory or hub id.

    Raises
    ------
    ModelError
        There is no such model, it cannot be read, or its weights hold no output head (transformers would make one
        up at random).
    """
    try:
        if gguf_file := options.get("gguf_file"):
            tokenizer = load_tokenizer(Path(model_or_path) / gguf_file)
        else:
            tokenizer = AutoTokenizer.from_pretrained(model_or_path, **options)
        model, loaded = AutoModelForCausalLM.from_pretrained(
            model_or_path, dtype=dtype, output_loading_info=True, **options
        )
    except (OSError, ValueError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"The model {model_or_path!r} cannot be loaded: {reason}") from error
    check_model(model)
    head = model.get_output_embeddings()
    own = {name for name, weight in model.named_parameters(remove_duplicate=False) if weight is head.weight}
    if own and own <= set(loaded["missing_keys"]):
        raise ModelError(
            f"{model_or_path} has no output head: its weights hold no {', '.join(sorted(own))}. "
            "Use the checkpoint that generates text."
        )
    return tokenizer, model


def load_clusters(
    clusters: TokenClusters | str | None, model: Any, tokenizer: Any, progress: Callable[..., None] | None
) -> TokenClusters:
    """Clusters that fit the tokenizer: those given, those of a folder or the hub, or the cached ones of the model."""
    if clusters is None:
        return clusters_for_model(model, tokenizer, progress=progress)
    if isinstance(clusters, TokenClusters):
        clusters.check(tokenizer)
        return clusters
    return TokenClusters.from_pretrained(clusters, tokenizer=tokenizer)


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
