"""Between texts and a model: prompts and responses as token ids, in padded batches."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.errors import InvalidInputError, VocabularyError
from semtoken.models.base import Decoding, Message, Prompt, Response
from semtoken.support.arrays import as_ids
from semtoken.support.files.images import has_images
from semtoken.support.inputs import listed, whole
from semtoken.support.questions import question_of

Place: TypeAlias = tuple[int, tuple[int, ...]]
"""A place in a tree of texts: the number of a prompt, and the tokens behind it."""


@dataclass(frozen=True, eq=False)
class PaddedBatch:
    """Token sequences padded to one length, with the mask that tells tokens from padding."""

    ids: npt.NDArray[np.int64]
    """Token ids, padded, [B, T]."""
    mask: npt.NDArray[np.int64]
    """[B, T] 1 for tokens, 0 for padding."""


def as_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """A list of prompts, also where a single prompt was given."""
    if isinstance(prompts, str):
        return [prompts]
    if is_ids(prompts):
        return [prompts]
    prompt_list = listed(prompts, "prompts")
    if prompt_list and isinstance(prompt_list[0], Mapping):
        return [prompt_list]
    return prompt_list


def as_responses(responses: Response | Sequence[Response], count: int) -> list[Response]:
    """A list of responses, also where a single one was given; `InvalidInputError` if there are not `count` of them."""
    response_list = [responses] if isinstance(responses, str) or is_ids(responses) else listed(responses, "responses")
    if len(response_list) != count:
        raise InvalidInputError(f"There are {count} prompts and {len(response_list)} responses; each prompt needs one.")
    return response_list


def as_decodings(decoding: Decoding | Sequence[Decoding], count: int) -> list[Decoding]:
    """The decoding settings of each of `count` prompts, from one setting for all or a list of them."""
    return [decoding] * count if isinstance(decoding, Decoding) else list(decoding)


def is_ids(value: Any) -> TypeGuard[Sequence[int]]:
    """True if a value is one prompt or response as a list of token ids, rather than a text or several of them."""
    if isinstance(value, bytes | bytearray):
        return False
    try:
        return len(value) > 0 and isinstance(value[0], int | np.integer) and not isinstance(value[0], bool)
    except Exception:  # no list, or an object that refuses
        return False


def end_token_ids(given: Any) -> frozenset[int]:
    """The ids in an `eos_token_id` setting: one id, a list, or None; `InvalidInputError` if it holds something else."""
    if given is None:
        return frozenset()
    if isinstance(given, int | np.integer) or not isinstance(given, Iterable):
        given = [given]
    ids = given if isinstance(given, set | frozenset) else listed(given, "eos_token_id")
    return frozenset(whole(i, "eos_token_id") for i in ids)


def question_of_prompt(prompt: Prompt) -> str | None:
    """The question in a prompt, a text or messages, as in a request with it; None where only token ids are known."""
    return question_of({"prompt": prompt})


def prompt_text(tokenizer: Any, prompt: Prompt, number: int) -> str:
    """The text the model sees: the prompt itself, or chat messages through the tokenizer's template.
    `InvalidInputError` if the prompt is blank or of another kind, or the tokenizer has no chat template.
    """
    if isinstance(prompt, str):
        text = prompt
    elif isinstance(prompt, list | tuple) and prompt and all(isinstance(message, Mapping) for message in prompt):
        text = _rendered(tokenizer, prompt, number)
    else:
        raise InvalidInputError(
            f"Prompt {number} must be a string or a non-empty list of chat messages, or of token ids, got "
            f"{type(prompt).__name__}."
        )
    if not text.strip():
        raise InvalidInputError(f"Prompt {number} is empty.")
    _check_characters(text, f"Prompt {number}")
    return text


def _check_characters(text: str, name: str) -> None:
    """Raise `InvalidInputError` for what no tokenizer reads."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{name} holds half a character (a lone surrogate) at {error.start}.") from error


def _rendered(tokenizer: Any, messages: Sequence[Message], number: int) -> str:
    if has_images(messages):
        raise InvalidInputError(f"Prompt {number} has an image, and only text is read here. Leave images out.")
    if not getattr(tokenizer, "chat_template", None):
        raise InvalidInputError(
            f"Prompt {number} is a list of chat messages, but the tokenizer has no chat template. "
            "Pass the prompt as text, or set tokenizer.chat_template."
        )
    try:
        return str(tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True))
    except Exception as error:  # templates are programs of the model's authors and raise what they like
        raise InvalidInputError(f"The chat template rejects the messages of prompt {number}: {error}") from error


def encode_prompt(tokenizer: Any, prompt: Prompt, number: int = 0) -> list[int]:
    """Token ids of a prompt; a chat template writes its special tokens itself. `number` names the prompt in messages.
    Errors are those of `prompt_text`.
    """
    if is_ids(prompt):
        return _given_ids(prompt, f"Prompt {number}")
    return encode_text(tokenizer, prompt_text(tokenizer, prompt, number), special=isinstance(prompt, str))


def encode_prompts(tokenizer: Any, prompts: Sequence[Prompt], known: int | None = None) -> list[list[int]]:
    """Token ids of each prompt; see `encode_prompt`. A message names a prompt by its place. `VocabularyError` as in
    `check_prompt_ids`, where the number of tokens that the model can read is `known`.
    """
    encoded = [encode_prompt(tokenizer, prompt, number) for number, prompt in enumerate(prompts)]
    if known is not None:
        for number, ids in enumerate(encoded):
            check_prompt_ids(ids, known, number)
    return encoded


def _given_ids(ids: Any, name: str) -> list[int]:
    """Token ids as they were given; `InvalidInputError` if one is no whole number: no id is rounded, or read from a
    text.
    """
    try:
        return as_ids(listed(ids, "token_ids"))
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from error


def check_prompt_ids(ids: Sequence[int], known: int, number: int) -> None:
    """Raise `VocabularyError` if a prompt has an id that is not below `known`, how many tokens a model can read."""
    if ids and not 0 <= min(ids) <= max(ids) < known:
        place, token = next((place, token) for place, token in enumerate(ids) if not 0 <= token < known)
        raise VocabularyError(
            f"Token id {token} at place {place} of prompt {number} is out of range: the model reads ids from 0 to "
            f"{known - 1:,}. Were these ids made with another tokenizer?"
        )


def check_lengths(
    lengths: Iterable[int], limit: int | None, what: str = "has", advice: str = "Shorten the prompt."
) -> None:
    """Raise `InvalidInputError` if a prompt is too long for a model that reads up to `limit` tokens; `what` says what
    the length is of besides the prompt.
    """
    for number, length in enumerate(lengths):
        if limit is not None and length > limit:
            raise InvalidInputError(
                f"Prompt {number} {what} {length:,} tokens; the model reads {limit:,} at most. {advice}"
            )


def encode_text(tokenizer: Any, text: str, *, special: bool) -> list[int]:
    """Token ids of a text, with the tokenizer's special tokens around it if `special`."""
    # A text of any length is encoded; whoever reads the ids refuses what is too long for the model, without a warning.
    return list(tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])


def encode_response(
    tokenizer: Any, prompt: Prompt, prompt_ids: list[int], response: Response, number: int
) -> list[int]:
    """Token ids of a response, as they would follow the prompt; `InvalidInputError` if it is neither text nor ids.
    Prompt and response are tokenized together where that leaves the prompt's ids as they are, apart otherwise.
    """
    if not isinstance(response, str):
        return _given_ids(response, f"Response {number} must be text or token ids")
    if not response:
        return []
    _check_characters(response, f"Response {number}")
    if not is_ids(prompt):
        text = prompt_text(tokenizer, prompt, number) + response
        together = encode_text(tokenizer, text, special=isinstance(prompt, str))
        # Tokens depend on the text before them. Where one token would hold the end of the prompt and the beginning of
        # the response, the response is encoded by itself.
        if together[: len(prompt_ids)] == prompt_ids:
            return _without_closing(tokenizer, together[len(prompt_ids) :], response)
    return encode_text(tokenizer, response, special=False)


def encode_responses(
    tokenizer: Any,
    vocabulary: Vocabulary,
    prompts: Sequence[Prompt],
    prompt_ids: Sequence[list[int]],
    responses: Response | Sequence[Response],
) -> list[list[int]]:
    """Token ids of the response to each prompt; see `encode_response`.
    `InvalidInputError` if there is not one response for each prompt, `VocabularyError` if an id lies outside the
    vocabulary.
    """
    each = as_responses(responses, len(prompts))
    return [
        vocabulary.checked_ids(encode_response(tokenizer, prompt, ids, response, number))
        for number, (prompt, ids, response) in enumerate(zip(prompts, prompt_ids, each, strict=True))
    ]


def _without_closing(tokenizer: Any, ids: list[int], response: str) -> list[int]:
    """Leave out the end-of-sequence token that some tokenizers put behind every text."""
    closing = getattr(tokenizer, "eos_token", None)
    if ids and closing and ids[-1] == tokenizer.eos_token_id and not response.endswith(closing):
        return ids[:-1]
    return ids


def end_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """The ids that end an answer: those of the model's generation settings, or else the tokenizer's own.
    The tokenizer's own comes first if it is among them.
    """
    own, settings = getattr(tokenizer, "eos_token_id", None), getattr(model, "generation_config", None)
    given = getattr(settings, "eos_token_id", None)
    listed = [own] if given is None else given if isinstance(given, list | tuple) else [given]
    return tuple(sorted({int(token) for token in listed if token is not None}, key=lambda token: (token != own, token)))


def pad(sequences: Sequence[Sequence[int]], padding: int, *, left: bool) -> PaddedBatch:
    """Pad sequences to one length, on the left (prompts) or on the right (responses)."""
    width = max(map(len, sequences))
    ids = np.full((len(sequences), width), padding, dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        columns = slice(width - len(sequence), width) if left else slice(0, len(sequence))
        ids[row, columns] = sequence
        mask[row, columns] = 1
    return PaddedBatch(ids, mask)


def in_batches_by_length(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Divide texts into batches of similar length, longest first, so that a lack of memory shows at once.

    >>> in_batches_by_length([3, 9, 4], batch_size=2)
    [[1, 2], [0]]
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    return [order[first : first + batch_size] for first in range(0, len(order), batch_size)]


def padding_id(tokenizer: Any, stop_ids: Collection[int]) -> int:
    """An id to pad with: the tokenizer's own, or one that ends a sequence; `VocabularyError` if there is neither."""
    if tokenizer.pad_token_id is not None:
        return int(tokenizer.pad_token_id)
    if stop_ids:
        return min(stop_ids)
    raise VocabularyError("The tokenizer has neither a padding nor an end-of-sequence token; set tokenizer.pad_token.")


def common_beginning(one: Sequence[int], other: Sequence[int]) -> int:
    """The number of tokens that two prompts have in common at their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((k for k, (a, b) in pairs if a != b), min(len(one), len(other)))


def draw_key(seed: int, prompt_ids: Sequence[int], sample: int) -> list[int]:
    """The seed of one sample's random numbers. It depends on the prompt and not on the order of the questions."""
    digest = hashlib.sha256(np.asarray(prompt_ids, dtype="<i8").tobytes()).digest()
    return [seed, sample, *np.frombuffer(digest, dtype="<u4").tolist()]
