"""Messages with images: the numbers of a plain pass over what the processor makes of them, and images refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import semtoken as st
from semtoken.errors import BackendError, InvalidInputError, InvalidLogits, ModelError
from semtoken.models.transformers import TransformersBackend
from tests import tiny
from tests.models.image_models import KINDS, QUICK, image_model
from tests.models.plain_pass import off, plain_passes, ways

pytestmark = pytest.mark.usefixtures("own_cache")

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8))


def asked(image: Any = PICTURE, text: str = "who is it") -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": text}]}]


def plain(model: Any, processor: Any, messages: Any, ids: list[int], types: int) -> float:
    """Log-probability of an answer by one pass over the processor's own inputs."""
    inputs = dict(
        processor.apply_chat_template(
            messages, tokenize=True, add_generation_prompt=True, return_dict=True, return_tensors="pt"
        )
    )
    inputs.pop("labels", None)
    length = inputs["input_ids"].shape[1]
    inputs["input_ids"] = torch.cat([inputs["input_ids"], torch.tensor([ids])], dim=1)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    for name in ("token_type_ids", "mm_token_type_ids"):
        if name in inputs:
            inputs[name] = torch.nn.functional.pad(inputs[name], (0, len(ids)), value=types)
    if (mask := inputs.get("cross_attention_mask")) is not None:  # [1, T, images, tiles]: replies see what the end sees
        inputs["cross_attention_mask"] = torch.cat([mask, mask[:, -1:].expand(-1, len(ids), -1, -1)], dim=1)
    with torch.no_grad():
        rows = model(**inputs).logits[0, length - 1 : -1, : len(processor.tokenizer)].double().log_softmax(-1)
    return float(rows[range(len(ids)), ids].sum())


def reads_images(kind: str) -> st.ScoredModel:
    model, processor = image_model(kind)
    return st.ScoredModel(TransformersBackend(model, processor.tokenizer, processor=processor))


SOME_SLOW = [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]


@pytest.mark.parametrize("kind", SOME_SLOW)
def test_answers_to_images_have_the_numbers_of_a_plain_pass(kind: str) -> None:
    model, processor = image_model(kind)
    stc = st.ScoredModel(TransformersBackend(model, processor.tokenizer, processor=processor))
    other = asked(Image.new("RGB", (30, 30), "red"), "the capital of France")
    written = stc.generate([asked(), other], max_new_tokens=4)
    given = stc.score([asked(), other], [answer.token_ids for answer in written])
    samples = stc.generate([asked()], max_new_tokens=3, do_sample=True, num_return_sequences=2)
    types = 1 if kind == "PaliGemma" else 0  # there, 1 are the tokens that see only those before them
    for messages, answer in [
        *zip([asked(), other] * 2, [*written, *given], strict=True),
        *((asked(), one) for one in samples),
    ]:
        expected = plain(model, processor, messages, answer.token_ids, types)
        assert answer.log_probability == pytest.approx(expected, abs=1e-3)
    continuations = [written[0].token_ids[:2], [7]]
    [found] = stc.backend.next_log_probs([asked()], continuations)
    logs = [plain(model, processor, asked(), ids, types) for ids in continuations]
    assert found == pytest.approx(logs, abs=1e-3)


def test_a_continuation_of_an_image_gets_no_number_where_the_model_gives_none() -> None:
    stc = reads_images("Llava")
    with torch.no_grad():
        stc.model.get_input_embeddings().weight[9] = torch.nan
    backend = stc.backend
    assert np.isfinite(backend.next_log_probs([asked()], [[7, 8], [9]])).all()
    with pytest.raises(InvalidLogits, match="NaN or no finite logit"):
        backend.next_log_probs([asked()], [[7, 8], [9, 8]])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "PaliGemma"])
def test_objects_without_a_processor_read_texts(kind: str) -> None:
    model, processor = image_model(kind)
    backend = TransformersBackend(model, processor.tokenizer)
    plain = plain_passes(backend)
    for name, way in ways(backend, tokens=4, lengths=(9, 3, 5)).items():
        assert off(way, plain) < 1e-3, name


def test_a_model_that_fails_on_a_whole_text_with_an_image_is_refused() -> None:
    stc = reads_images("Llava")

    def fail(module: Any, args: Any, inputs: dict[str, Any]) -> None:
        if inputs.get("pixel_values") is not None and inputs.get("past_key_values", inputs.get("cache")) is None:
            raise IndexError("The shape of the mask [24] does not match")

    stc.model.register_forward_pre_hook(fail, with_kwargs=True)
    assert stc.generate(["who is it"], max_new_tokens=2)
    with pytest.raises(BackendError, match=r"not known which is right.*Prompts of text can be scored"):
        stc.generate([asked()], max_new_tokens=2)


def test_texts_and_images_in_one_call() -> None:
    stc = reads_images("Gemma3")
    prompts: list[Any] = [asked(), "who is it", [{"role": "user", "content": "who is it"}]]
    together = stc.generate(prompts, max_new_tokens=4)
    alone = [stc.generate([prompt], max_new_tokens=4)[0] for prompt in prompts]
    assert [one.token_ids for one in together] == [one.token_ids for one in alone]
    assert [one.log_confidence for one in together] == pytest.approx([one.log_confidence for one in alone], abs=1e-4)


def test_a_folder_is_loaded_with_its_processor(tmp_path: Path) -> None:
    model, processor = image_model("Llava")
    model.save_pretrained(tmp_path / "model")
    processor.save_pretrained(tmp_path / "model")
    stc = st.ScoredModel.from_pretrained(tmp_path / "model")
    PICTURE.save(tmp_path / "scan.png")
    from_file = asked()
    from_file[0]["content"][0] = {"type": "image", "path": str(tmp_path / "scan.png")}
    one, other = stc.generate([asked(), from_file], max_new_tokens=4)
    assert one.token_ids == other.token_ids
    assert isinstance(stc.backend, TransformersBackend) and not stc.backend.joins


def test_a_model_of_texts_says_that_it_reads_no_images() -> None:
    stc = st.ScoredModel(tiny.llama(640), tiny.byte_level_bpe())
    with pytest.raises(InvalidInputError, match="LlamaForCausalLM reads none: it reads text only"):
        stc.generate([asked()])


def test_a_prefix_model_answers_images_and_refuses_texts() -> None:
    stc = reads_images("PaliGemma")
    assert stc.generate([asked()], max_new_tokens=2)[0].token_ids
    with pytest.raises(ModelError, match="changes with the tokens that follow"):
        stc.generate(["who is it"])


def test_other_parts_are_refused() -> None:
    stc = reads_images("Llava")
    for part in ({"type": "video", "video": "a"}, {"type": "image"}, "text", {"type": "text"}):
        with pytest.raises(InvalidInputError, match="must be a"):
            stc.generate([[{"role": "user", "content": [part]}]])
