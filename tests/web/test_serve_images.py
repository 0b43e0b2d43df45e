"""Images in requests to `serve`: data URLs are answered as in Python; addresses, paths and bombs are refused."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest
from openai import OpenAI
from PIL import Image

from semtoken import ScoredModel
from semtoken.models.transformers import TransformersBackend
from semtoken.web.serve.service import Offer
from tests.models.image_models import image_model
from tests.rows import each
from tests.web.asking import added_to, client_of, user
from tests.web.conftest import serving

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8))


def data_url(image: Any) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def asked(url: str) -> Any:
    image = {"type": "image_url", "image_url": {"url": url}}
    return [{"role": "user", "content": [image, {"type": "text", "text": "who is it"}]}]


@pytest.fixture(scope="module")
def stc() -> ScoredModel:
    model, processor = image_model("Llava")
    return ScoredModel(TransformersBackend(model, processor.tokenizer, processor=processor))


@pytest.fixture(scope="module")
def client(stc: ScoredModel) -> Iterator[OpenAI]:
    with serving(stc, Offer("tiny")) as url:
        yield client_of(url)


@pytest.mark.parametrize("image", [True, False])
@pytest.mark.parametrize("stream", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_image_or_a_text_is_answered_as_in_python(
    client: OpenAI, stc: ScoredModel, image: bool, stream: bool
) -> None:
    messages = asked(data_url(PICTURE)) if image else user("who is it")
    [expected] = stc.generate([messages], max_new_tokens=5)
    request: dict[str, Any] = {"model": "tiny", "messages": messages, "max_tokens": 5, "stream": stream}
    reply = client.chat.completions.create(**request)
    last = [chunk for chunk in reply if chunk.choices][-1] if stream else reply
    block = added_to(last.choices[0])
    assert block["sequence_uncertainty"] == pytest.approx(expected.sequence_uncertainty, abs=1e-4)


@each(
    ("url", "why"),
    [
        ("http://127.0.0.1:9/a.png", "data URLs"),
        ("/etc/passwd", "data URLs"),
        ("file:///etc/passwd", "data URLs"),
        ("data:image/png;base64,bm8gaW1hZ2U=", "cannot be read"),
        (data_url(Image.new("1", (9000, 9000))), "pixels"),
    ],
)
def test_what_is_no_image_of_the_request_itself_is_refused(client: OpenAI, url: str, why: str) -> None:
    with pytest.raises(openai.BadRequestError, match=why) as caught:
        client.chat.completions.create(model="tiny", messages=asked(url), max_tokens=5)
    assert caught.value.param == "messages"
