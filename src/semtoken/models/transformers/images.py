"""Messages with images, turned into a model's inputs by its own processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from semtoken.errors import BackendError, InvalidInputError, one_line_of
from semtoken.models.transformers.proving import difference, forced_logits, least_rounding
from semtoken.support.files.images import read_image
from semtoken.support.inputs import shown

MOST_IMAGES = 16
"""The most images that a prompt may have."""


class ImagePrompt(list[int]):
    """Token ids of a prompt with images, with the tensors that its model reads besides them."""

    def __init__(self, ids: Sequence[int], tensors: Mapping[str, Any]) -> None:
        super().__init__(ids)
        self.tensors = {name: tensor for name, tensor in tensors.items() if name != "labels"}
        """The tensors that the processor makes of the prompt, `input_ids` [1, T] and `pixel_values` among them."""

    def inputs(self, reply: Sequence[int], fill: int, device: Any) -> dict[str, Any]:
        """The model's inputs for the prompt and a reply. Tensors with a number for each token go on with `fill`, those
        with more than one as they end.
        """
        extended = {}
        for name, tensor in self.tensors.items():
            if tuple(tensor.shape) == (1, len(self)):
                rest = list(reply) if name == "input_ids" else [1 if name == "attention_mask" else fill] * len(reply)
                tensor = torch.cat([tensor, torch.tensor([rest], dtype=tensor.dtype)], dim=1)
            elif tensor.shape[:2] == (1, len(self)):
                tensor = torch.cat([tensor, *[tensor[:, -1:]] * len(reply)], dim=1)
            extended[name] = tensor.to(device)
        return extended


def encode_messages(processor: Any, messages: Any, number: int, *, files: bool = True) -> list[int]:
    """Token ids of chat messages by a model's processor, with its other tensors where there are images.
    `InvalidInputError` if messages or an image cannot be read, or the processor's template leaves out a text.
    """
    if (
        not isinstance(messages, list | tuple)
        or not all(isinstance(turn, Mapping) for turn in messages)
        or not messages
    ):
        raise InvalidInputError(f"Prompt {number} must be a string or a non-empty list of chat messages.")
    spoken = [{**message, "content": _parts(message.get("content"), files)} for message in messages]
    pictures = sum(part["type"] == "image" for message in spoken for part in message["content"])
    if pictures > MOST_IMAGES:
        raise InvalidInputError(f"Prompt {number} has {pictures} images; at most {MOST_IMAGES} are read.")
    try:
        text = processor.apply_chat_template(spoken, tokenize=False, add_generation_prompt=True)
        lost = [
            part
            for turn in spoken
            for part in turn["content"]
            if part["type"] == "text" and part["text"].strip() not in text
        ]
        if lost:
            plain = [{**turn, "content": "".join(part.get("text", "") for part in turn["content"])} for turn in spoken]
            spoken = plain if not pictures else spoken
            text = processor.apply_chat_template(spoken, tokenize=False, add_generation_prompt=True)
            if pictures or any(turn["content"].strip() not in text for turn in plain):
                raise InvalidInputError(f"The chat template leaves out a text of prompt {number}.")
        tensors = processor.apply_chat_template(
            spoken, tokenize=True, add_generation_prompt=True, return_dict=True, return_tensors="pt"
        )
    except InvalidInputError:
        raise
    except Exception as error:  # templates and processors are programs of others
        raise InvalidInputError(f"The model's processor rejects prompt {number}: {one_line_of(error)}") from error
    ids = [int(token) for token in tensors["input_ids"][0]]
    return ImagePrompt(ids, tensors) if pictures else ids


def _parts(content: Any, files: bool) -> list[dict[str, Any]]:
    """The parts of a message's content, images read."""
    if isinstance(content, str) or content is None:
        return [{"type": "text", "text": content or ""}]
    parts = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text" and isinstance(part.get("text"), str):
            parts.append({"type": "text", "text": part["text"]})
        elif kind in ("image", "image_url"):
            parts.append({"type": "image", "image": read_image(part, files=files)})
        else:
            raise InvalidInputError(f"A part of a message must be a text or an image, got {shown(part)}.")
    return parts


@dataclass
class ImagePasses:
    """Passes over prompts with images, each alone and whole."""

    model: Any
    device: Any
    token: int
    """An ordinary token, which stands for a reply when the first prompt is tried."""
    padding: int
    fill: int | None = None
    """The number for each token of a reply in tensors with one for each token, once it is known (`_settle`)."""

    def inputs(self, prompt: ImagePrompt) -> dict[str, Any]:
        """The inputs with which transformers' `generate` answers a prompt; `BackendError` as in `whole`."""
        self._settle(prompt)
        return prompt.inputs([], 0, self.device)

    def whole(self, prompt: ImagePrompt, reply: Sequence[int], keep: int) -> torch.Tensor:
        """Logits [keep, columns] behind the last tokens of the prompt and a reply.
        `BackendError` if a pass gives other numbers than transformers' `generate`: it is not known which are right.
        """
        return self._whole(prompt, reply, keep, self._settle(prompt))

    def _whole(self, prompt: ImagePrompt, reply: Sequence[int], keep: int, fill: int) -> torch.Tensor:
        inputs = prompt.inputs(reply, fill, self.device)
        try:
            logits: torch.Tensor = self.model(**inputs).logits[0, -keep:]
        except ValueError as error:  # a reply with the placeholder of an image
            raise InvalidInputError(f"{type(self.model).__name__} rejects this reply: {one_line_of(error)}") from error
        return logits

    @torch.inference_mode()
    def _settle(self, prompt: ImagePrompt) -> int:
        """Find out with which `fill` a pass over the whole text gives the numbers of transformers' `generate`."""
        if self.fill is not None:
            return self.fill
        text = [self.token] * 3
        written = torch.cat(forced_logits(self.model, prompt.inputs([], 0, self.device), [text], self.padding))
        fills = (0, 1) if any(name.endswith("token_type_ids") for name in prompt.tensors) else (0,)
        for fill in fills:
            try:
                rows = self._whole(prompt, text[:-1], len(text), fill).double().log_softmax(-1)
            except torch.OutOfMemoryError:
                raise
            except (InvalidInputError, IndexError, RuntimeError):  # it takes a text with an image in steps only
                continue
            worst = max(difference(*pair) for pair in zip(written.double().log_softmax(-1), rows, strict=True))
            if worst <= 4 * least_rounding(self.model.dtype):
                self.fill = fill
                return fill
        raise BackendError(
            f"For a prompt with an image, transformers' generate gives other numbers for {type(self.model).__name__} "
            "than a pass over the same tokens, so it is not known which is right. Prompts of text can be scored."
        )
