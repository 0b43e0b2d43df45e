"""Messages with images: read safely, and turned into a model's inputs by its own processor."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from semtoken.errors import BackendError, InvalidInput, one_line_of
from semtoken.support.extras import require
from semtoken.support.inputs import shown

require("torch", extra="transformers")

import torch  # noqa: E402

MOST_BYTES = 20_000_000
"""The largest image file that is read."""
MOST_PIXELS = 40_000_000
"""The largest image that is unpacked: a small file can hold a picture that fills the memory."""
MOST_IMAGES = 16
"""The most images that a prompt may have."""
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
SOURCES = ("image", "path", "url", "image_url")
DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,", re.IGNORECASE)


class ImagePrompt(list[int]):
    """Token ids of a prompt with images, with the tensors that its model reads besides them."""

    def __init__(self, ids: Sequence[int], tensors: Mapping[str, Any]) -> None:
        super().__init__(ids)
        self.tensors = {name: tensor for name, tensor in tensors.items() if name != "labels"}
        """What the processor makes of the prompt, `input_ids` [1, T] and `pixel_values` among them."""

    def inputs(self, reply: Sequence[int], fill: int, device: Any) -> dict[str, Any]:
        """The model's inputs for the prompt and a reply. Tensors with a number for each token go on with `fill`."""
        found = {}
        for name, tensor in self.tensors.items():
            if tuple(tensor.shape) == (1, len(self)):
                rest = list(reply) if name == "input_ids" else [1 if name == "attention_mask" else fill] * len(reply)
                tensor = torch.cat([tensor, torch.tensor([rest], dtype=tensor.dtype)], dim=1)
            found[name] = tensor.to(device)
        return found


def read_image(part: Mapping[str, Any], *, files: bool = True) -> Any:
    """The picture of a part of a message, as a PIL image in RGB.

    Parameters
    ----------
    part
        `{"type": "image"}` with "image" (a PIL image), "path", or "url" (a data URL, or the path of a file), or
        `{"type": "image_url", "image_url": {"url": ...}}`.
    files
        Whether files of this machine may be read; otherwise data URLs only.

    Raises
    ------
    InvalidInput
        The part holds no image that can be read, one that is too large, or the address of one: nothing is fetched.
    """
    require("PIL", extra="images")
    from PIL import Image, ImageOps

    given = next((part[name] for name in SOURCES if part.get(name) is not None), None)
    if isinstance(given, Mapping):
        given = given.get("url")
    if isinstance(given, Image.Image):
        _check_size(given)
        return ImageOps.exif_transpose(given).convert("RGB")
    if not isinstance(given, str | Path):
        raise InvalidInput(f"An image must be a PIL image, a path or a data URL, got {shown(given)}.")
    try:
        picture = Image.open(BytesIO(_bytes(str(given), files)), formats=FORMATS)
        _check_size(picture)
        return ImageOps.exif_transpose(picture).convert("RGB")
    except InvalidInput:
        raise
    except Exception as error:  # of a damaged file, decoders raise anything
        what = "The image" if len(str(given)) > 200 or not files else f"The image {given}"
        raise InvalidInput(f"{what} cannot be read as one of {', '.join(FORMATS)}.") from error


def _check_size(picture: Any) -> None:
    width, height = picture.size
    if width * height > MOST_PIXELS:
        raise InvalidInput(f"An image has {width:,} x {height:,} pixels; at most {MOST_PIXELS:,} are read. Scale it.")


def _bytes(given: str, files: bool) -> bytes:
    if found := DATA_URL.match(given):
        if len(given) > MOST_BYTES * 4 // 3 + 100:
            raise InvalidInput(f"An image file may have {MOST_BYTES:,} bytes at most.")
        try:
            return base64.b64decode(given[found.end() :], validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidInput("The data URL of an image is no base64.") from error
    if not files:
        raise InvalidInput("Give images as data URLs (data:image/png;base64,...): no address or file is read.")
    if re.match(r"[a-z][a-z0-9+.-]+:", given, re.IGNORECASE):
        raise InvalidInput(f"The address {shown(given)} of an image is not fetched: save it, and give its path.")
    path = Path(given)
    if not path.is_file():
        raise InvalidInput(f"There is no image file {given}.")
    if path.stat().st_size > MOST_BYTES:
        raise InvalidInput(f"The image {given} has {path.stat().st_size:,} bytes; at most {MOST_BYTES:,} are read.")
    return path.read_bytes()


def encode_messages(processor: Any, messages: Any, number: int, *, files: bool = True) -> list[int]:
    """Token ids of chat messages by a model's processor, with its other tensors where there are images.

    Raises
    ------
    InvalidInput
        These are no messages, an image or a message cannot be read, or the processor's template leaves out a text.
    """
    if not isinstance(messages, list | tuple) or not all(isinstance(one, Mapping) for one in messages) or not messages:
        raise InvalidInput(f"Prompt {number} must be a string or a non-empty list of chat messages.")
    spoken = [{**message, "content": _parts(message.get("content"), files)} for message in messages]
    pictures = sum(part["type"] == "image" for message in spoken for part in message["content"])
    if pictures > MOST_IMAGES:
        raise InvalidInput(f"Prompt {number} has {pictures} images; at most {MOST_IMAGES} are read.")
    try:
        text = processor.apply_chat_template(spoken, tokenize=False, add_generation_prompt=True)
        lost = [
            part
            for one in spoken
            for part in one["content"]
            if part["type"] == "text" and part["text"].strip() not in text
        ]
        if lost:
            plain = [{**one, "content": "".join(part.get("text", "") for part in one["content"])} for one in spoken]
            spoken = plain if not pictures else spoken
            text = processor.apply_chat_template(spoken, tokenize=False, add_generation_prompt=True)
            if pictures or any(one["content"].strip() not in text for one in plain):
                raise InvalidInput(f"The chat template leaves out a text of prompt {number}.")
        tensors = processor.apply_chat_template(
            spoken, tokenize=True, add_generation_prompt=True, return_dict=True, return_tensors="pt"
        )
    except InvalidInput:
        raise
    except Exception as error:  # templates and processors are programs of others
        raise InvalidInput(f"The model's processor refuses prompt {number}: {one_line_of(error)}") from error
    ids = [int(token) for token in tensors["input_ids"][0]]
    return ImagePrompt(ids, tensors) if pictures else ids


def _parts(content: Any, files: bool) -> list[dict[str, Any]]:
    """The parts of a message's content, images read."""
    if isinstance(content, str) or content is None:
        return [{"type": "text", "text": content or ""}]
    found = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text" and isinstance(part.get("text"), str):
            found.append({"type": "text", "text": part["text"]})
        elif kind in ("image", "image_url"):
            found.append({"type": "image", "image": read_image(part, files=files)})
        else:
            raise InvalidInput(f"A part of a message must be a text or an image, got {shown(part)}.")
    return found


@dataclass
class ImagePasses:
    """Passes over prompts with images, each alone and whole."""

    model: Any
    device: Any
    fill: int | None = None
    """What tensors with a number for each token hold for tokens of a reply, once it is known."""

    def whole(self, prompt: ImagePrompt, reply: Sequence[int], keep: int, fill: int | None = None) -> torch.Tensor:
        """Logits [keep, columns] behind the last tokens of the prompt and a reply."""
        inputs = prompt.inputs(reply, self.fill or 0 if fill is None else fill, self.device)
        try:
            found: torch.Tensor = self.model(**inputs).logits[0, -keep:]
        except ValueError as error:  # a reply with the placeholder of an image
            raise InvalidInput(f"{type(self.model).__name__} refuses this reply: {one_line_of(error)}") from error
        return found

    @torch.inference_mode()
    def settle(self, prompt: ImagePrompt, token: int, padding: int) -> None:
        """Find out with which `fill` a pass over the whole text gives the numbers of transformers' `generate`.

        Raises
        ------
        BackendError
            With none: it is not known which number is right.
        """
        from semtoken.backends.transformers.proof import PLAIN, ForcedTokens, difference

        if self.fill is not None:
            return
        text = [token, token]
        out = self.model.generate(
            **prompt.inputs([], 0, self.device),
            **PLAIN,
            max_new_tokens=3,
            pad_token_id=padding,
            logits_processor=[ForcedTokens([[*text, token]])],
            output_logits=True,
            return_dict_in_generate=True,
        )
        written = torch.cat(list(out.logits))
        fills = (0, 1) if any(name.endswith("token_type_ids") for name in prompt.tensors) else (0,)
        for fill in fills:
            rows = self.whole(prompt, text, 3, fill).double().log_softmax(-1)
            worst = max(difference(*pair) for pair in zip(written.double().log_softmax(-1), rows, strict=True))
            if worst <= 4 * torch.finfo(self.model.dtype).eps ** 0.75:
                self.fill = fill
                return
        raise BackendError(
            f"For a prompt with an image, transformers' generate gives other numbers for {type(self.model).__name__} "
            "than a pass over the same tokens, so it is not known which is right. Prompts of text can be scored."
        )
