"""The settings that transformers' `generate` may follow, and its arguments."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers.generation.configuration_utils import GenerationMode

from semtoken.errors import BackendError, InvalidInputError, SemtokenError, one_line_of
from semtoken.models.base import Decoding
from semtoken.models.prompt_ids import PaddedBatch, end_ids, end_token_ids, padding_id
from semtoken.models.transformers.passes import Passes
from semtoken.models.transformers.writing import BatchRow, StepWatch
from semtoken.support.inputs import flag, whole

COLDEST = 1e-30
"""The lowest temperature whose quotients with logits stay far from the largest float32."""
NOT_ASSISTED = "Assisted decoding is rejected: it proposes several tokens at a time. Decode one by one."
NOT_BEAMS = (
    "A beam's tokens are chosen among hypotheses that are reordered and dropped on the way, so there is no single "
    "next-token distribution that the answer was drawn from. Use greedy decoding (num_beams=1) or sampling."
)
PLAIN = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None, "num_beams": 1} | {
    "eos_token_id": None,
    "suppress_tokens": None,
}
"""Arguments with which `generate` only chooses, greedily, and ends by its number of tokens alone."""
USUAL = frozenset(
    {"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "transformers_version"}
    | {"_from_model_config", "use_cache", "output_attentions", "output_hidden_states", "return_dict_in_generate"}
    | {"do_sample", "temperature", "top_p", "top_k", "min_p", "max_length", "max_new_tokens"}
)
"""Settings of a model for generation that change nothing here: requests say how tokens are chosen."""


def only_usual(config: Any) -> bool:
    """Return True if a generation config sets nothing that changes which tokens are chosen, such as penalties."""
    return set(config.to_diff_dict()) <= USUAL


def check_decoding(model: Any, decoding: Decoding) -> None:
    """Raise unless each token is chosen from the model's own logits, one at a time: greedily, or by sampling.

    `BackendError` for beams, assisted decoding and other ways, `InvalidInputError` for an option of no use here.
    """
    options, mode = decoding.options, _mode_of(model, decoding)
    if "beam" in mode:
        raise BackendError(f"Beam search is rejected. {NOT_BEAMS}")
    if mode == GenerationMode.ASSISTED_GENERATION:
        raise BackendError(NOT_ASSISTED)
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
        raise BackendError(f"Decoding by {mode} is rejected: its tokens are not chosen from the model's logits alone.")
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


def _mode_of(model: Any, decoding: Decoding) -> str:
    """The way in which transformers' `generate` would choose tokens, by its own name for it."""
    settings = copy.deepcopy(settings_of(model, decoding))
    for name, value in decoding.options.items():
        if hasattr(settings, name):
            setattr(settings, name, value)
    return str(settings.get_generation_mode(decoding.options.get("assistant_model")).value)


def settings_of(model: Any, decoding: Decoding) -> Any:
    """The settings for generation that hold where `options` say nothing: those in the options, or the model's."""
    return decoding.options.get("generation_config") or model.generation_config


def generate_arguments(
    model: Any, tokenizer: Any, decoding: Decoding, rows: Sequence[BatchRow], padded: range
) -> dict[str, Any]:
    """Keyword arguments of transformers' `generate` for a batch, but for its inputs and processors.

    `padded` are the columns of the logits after the last token of the vocabulary, which are never written.
    """
    given = dict(decoding.options)
    given.pop("stopping_criteria", None)
    options: dict[str, Any] = {"do_sample": False} | as_arguments(given.pop("generation_config", None)) | given
    if options["do_sample"] is not None:
        flag(options["do_sample"], "do_sample")
    if not options["do_sample"]:  # unset the model's own sampling defaults, about which transformers would warn
        options = {"temperature": None, "top_p": None, "top_k": None} | options
    options["max_new_tokens"] = max(row.max_new_tokens for row in rows)
    stop_ids = frozenset.intersection(*(row.stop_ids for row in rows))
    # `generate` ends a row only at a token that ends all of them; what ends one answer earlier is known to `StepWatch`.
    options["eos_token_id"] = sorted(stop_ids) or None
    options.setdefault("pad_token_id", padding_id(tokenizer, stop_ids or rows[0].stop_ids))
    if padded:
        own = getattr(model.generation_config, "suppress_tokens", None)
        options["suppress_tokens"] = [*(options.get("suppress_tokens") or own or ()), *padded]
    return options


def stop_ids_of(model: Any, tokenizer: Any, decoding: Decoding) -> set[int]:
    """The tokens that end an answer: those of the options, else those that the model and its tokenizer name."""
    given = decoding.options.get("eos_token_id")
    if given is None:
        given = getattr(decoding.options.get("generation_config"), "eos_token_id", None)
    return set(end_token_ids(end_ids(model, tokenizer) if given is None else given))


def as_arguments(settings: Any) -> dict[str, Any]:
    """The settings of a generation config as arguments of transformers' `generate`, which is not to be given both."""
    own = {"max_length", "num_return_sequences", "transformers_version", "_from_model_config"}
    return {} if settings is None else {name: getattr(settings, name) for name in {*settings.to_diff_dict()} - own}


def generate_inputs(passes: Passes, batch: PaddedBatch) -> dict[str, Any]:
    """The inputs with which `generate` answers each prompt of a batch."""
    tensors = {"input_ids": batch.ids, "attention_mask": batch.mask}
    return {name: torch.from_numpy(array).to(passes.device) for name, array in tensors.items()}


def answering_once(model: Any) -> Any:
    """The model, or a shallow copy of it where its settings ask `generate` for several answers to each row: one answer
    is asked for. An argument would not do, since such settings are rejected before it is read.
    """
    settings = getattr(model, "generation_config", None)
    if (getattr(settings, "num_return_sequences", None) or 1) == 1:
        return model
    once = copy.copy(model)  # the same weights and hooks, so that other threads see the settings as they are
    once.generation_config = copy.deepcopy(settings)
    once.generation_config.num_return_sequences = 1
    return once


@contextmanager
def refused_options(watch: StepWatch) -> Iterator[None]:
    """Raise an error of ours for what transformers raises for an option, before the model's first pass."""
    try:
        yield
    except SemtokenError:
        raise
    except (ValueError, TypeError, AttributeError, KeyError, ImportError, AssertionError) as error:
        # The model has run, so that it was no option that failed.
        if watch.logits is not None:
            raise
        raise InvalidInputError(f"transformers' generate rejects these options: {one_line_of(error)}") from error
