"""The llama.cpp backend over a stand-in for llama-cpp-python, which reads the embedded model by transformers.

llama.cpp itself is in tests/engines.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from semtoken import ScoredModel, TokenClusters
from semtoken.errors import InvalidInputError, ModelError, VocabularyMismatch
from semtoken.models import llama_cpp as backend_module
from semtoken.models.base import Decoding
from semtoken.models.llama_cpp import LlamaCppBackend, load_llama_cpp
from semtoken.models.prompt_ids import draw_key
from semtoken.support.almanac import PROMPT, almanac_path
from tests.rows import each
from tests.stand_ins import Fields, assert_same, standing_in

PROMPTS = [PROMPT.format(question=f"What is the capital of {name}?") for name in ("France", "Peru", "Norway")]
BYTE, END = 64, 1


class Llama:
    """What the backend asks of `llama_cpp.Llama`, which keeps what it was asked for."""

    stc: ScoredModel
    started: list[Llama]

    def __init__(self, model_path: str = "", *, n_ctx: int = 0, verbose: bool = True, n_gpu_layers: int = 0) -> None:
        self.model_path, self.length, self.verbose, self.closed = model_path, n_ctx, verbose, False
        self.ctx, self.ids, self.asked = self, list[int](), list[Any]()
        self.metadata = {"tokenizer.chat_template": self.stc.tokenizer.chat_template}
        self.started.append(self)
        if "broken" in model_path:
            raise ValueError("no such model\nmore")

    def n_ctx(self) -> int:
        return self.length

    def n_vocab(self) -> int:
        return int(self.stc.model.config.vocab_size)

    def token_eos(self) -> int:
        return int(self.stc.tokenizer.eos_token_id)

    def token_bos(self) -> int:
        return -1

    def tokenize(self, text: bytes, add_bos: bool, special: bool) -> list[int]:
        assert special
        return list(self.stc.tokenizer(text.decode(), add_special_tokens=add_bos)["input_ids"])

    def detokenize(self, ids: list[int], special: bool) -> bytes:
        return str(self.stc.tokenizer.decode(ids, skip_special_tokens=not special)).encode()

    def set_seed(self, seed: int) -> None:
        self.asked.append(seed)

    def reset(self) -> None:
        self.ids.clear()

    def close(self) -> None:
        self.closed = True

    def eval(self, ids: Sequence[int]) -> None:
        self.ids += ids
        with torch.no_grad():
            self.logits = self.stc.model(torch.tensor([self.ids])).logits[0, -1].numpy().copy()

    def pointer(self, place: int) -> Any:
        assert place == -1
        return self.logits.ctypes.data_as(ctypes.POINTER(ctypes.c_float))

    def generate(self, prompt: list[int], **options: Any) -> Iterator[int]:
        """The most probable tokens, whatever the settings of the sampler."""
        self.asked.append(options)
        unread = prompt
        while True:
            self.eval(unread)
            unread = [int(self.logits.argmax())]
            yield unread[0]


def piece_of(llama: Llama, token: int, buffer: Any, room: int, left: int, special: bool) -> int:
    assert (left, special) == (0, False)
    piece = Llama.stc.scorer.vocabulary.pieces[token]
    if len(piece) > room:
        return -len(piece)
    buffer[: len(piece)] = piece
    return len(piece)


class Formatter:
    """llama-cpp-python's reader of chat templates."""

    def __init__(self, template: str, eos_token: str, bos_token: str) -> None:
        assert (template, eos_token, bos_token) == (
            Llama.stc.tokenizer.chat_template,
            Llama.stc.tokenizer.eos_token,
            "",
        )

    def __call__(self, *, messages: list[Any]) -> Any:
        text = Llama.stc.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return Fields(prompt=text)


@pytest.fixture(scope="module", autouse=True)
def llama_cpp(almanac: ScoredModel) -> Iterator[Any]:
    Llama.stc, Llama.started = almanac, []
    ends = almanac.model.generation_config.eos_token_id
    names = {
        "Llama": Llama,
        "LLAMA_TOKEN_ATTR_BYTE": BYTE,
        "llama_get_model": lambda ctx: ctx,
        "llama_model_get_vocab": lambda model: model,
        "llama_model_n_ctx_train": lambda model: 512,
        "llama_vocab_get_attr": lambda own, token: END | 8 if token in ends else 8,
        "llama_vocab_is_eog": lambda own, token: token in ends,
        "llama_token_to_piece": piece_of,
        "llama_get_logits_ith": lambda ctx, place: ctx.pointer(place),
    }
    with standing_in(llama_cpp=names, llama_cpp__llama_chat_format={"Jinja2ChatFormatter": Formatter}):
        yield sys.modules["llama_cpp"]


def test_answers_have_the_scores_of_transformers(almanac: ScoredModel) -> None:
    stc = ScoredModel(LlamaCppBackend(Llama(n_ctx=256)))
    for options in ({"max_new_tokens": 3}, {"stop_at_newline": True}, {"stop_strings": ("a",)}):
        given: dict[str, Any] = {"max_new_tokens": 6} | options
        assert_same(stc.generate(PROMPTS, **given), almanac.generate(PROMPTS, **given))
    replies = ["Paris", "", "Oslo\n"]
    assert_same(stc.score(PROMPTS, replies), almanac.score(PROMPTS, replies))
    chat = [{"role": "user", "content": "What is the capital of Peru?"}]
    assert_same(stc.generate(chat, 4), almanac.generate(chat, 4))
    ended = almanac.generate(PROMPTS[:1], 6)[0].token_ids[0]
    assert stc.generate(PROMPTS[:1], 6, stop_token_ids=[ended])[0].token_ids == [ended]


def test_a_request_has_what_is_asked_for_and_no_more() -> None:
    llama = Llama(n_ctx=256)
    backend = LlamaCppBackend(llama)
    sampling: dict[str, Any] = {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.1}
    backend.generate(PROMPTS[:1], Decoding(1, options={"stop_token_ids": [5], "repeat_penalty": 1.3}))
    backend.generate(PROMPTS[:1], Decoding(1, n=2, seed=3, **sampling))
    ids = backend.tokenizer(PROMPTS[0])["input_ids"]
    seeds = [int(np.random.default_rng(draw_key(3, ids, n)).integers(2**31)) for n in range(2)]
    sampled = {"temp": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.1}
    assert llama.asked == [{"temp": 0.0, "repeat_penalty": 1.3}, seeds[0], sampled, seeds[1], sampled]


def test_an_answer_fits_into_the_context_and_its_last_token_is_read() -> None:
    ids = Llama().tokenize(PROMPTS[0].encode(), True, True)
    for room in (3, 1):
        stc = ScoredModel(LlamaCppBackend(Llama(n_ctx=len(ids) + room)))
        assert len(stc.generate(PROMPTS[:1], 9)[0].token_ids) <= room
    stc = ScoredModel(LlamaCppBackend(Llama(n_ctx=len(ids))))
    with pytest.raises(InvalidInputError, match=rf"take at least {len(ids) + 1} tokens.*larger n_ctx"):
        stc.generate(PROMPTS[:1], 1)


def test_the_vocabulary_is_that_of_the_file(llama_cpp: Any, almanac: ScoredModel) -> None:
    backend, own = LlamaCppBackend(Llama()), almanac.scorer.vocabulary
    found = backend.vocabulary
    assert (found.pieces, found.size, found.byte_errors) == (own.pieces, own.size, "replace")
    assert not found.byte_tokens.any() and found.neutral[np.array([not text for text in found.texts])].all()
    assert backend.tokenizer.convert_ids_to_tokens([5, -1]) == [almanac.tokenizer.decode([5]), ""]
    assert backend.tokenizer.pad_token_id == backend.tokenizer.eos_token_id == almanac.tokenizer.eos_token_id
    with patch.object(llama_cpp, "llama_vocab_get_attr", lambda own, token: BYTE if token == 9 else 0):
        bytes_of = LlamaCppBackend(Llama()).vocabulary
    assert np.flatnonzero(bytes_of.byte_tokens).tolist() == [9] and bytes_of.byte_errors == "run"
    assert backend_module._piece(backend.model, 600, room=1) == own.pieces[600] and len(own.pieces[600]) > 1


def test_clusters_of_another_model_are_refused(llama_cpp: Any) -> None:
    clusters = TokenClusters.from_pretrained("almanac")
    backend = LlamaCppBackend(Llama())
    backend.check_vocabulary(clusters.vocabulary)
    token = next(i for i, piece in enumerate(clusters.vocabulary.pieces) if piece == b"a")
    other = [*clusters.vocabulary.pieces]
    other[token] = b"b"

    def spelled(llama: Llama, at: int, buffer: Any, room: int, left: int, special: bool) -> int:
        buffer[: len(other[at])] = other[at]
        return len(other[at])

    with (
        patch.object(llama_cpp, "llama_token_to_piece", spelled),
        pytest.raises(VocabularyMismatch, match=rf"Token {token} is b'b' in the model and b'a'"),
    ):
        backend.check_vocabulary(clusters.vocabulary)
    with (
        patch.object(Llama, "n_vocab", lambda self: clusters.vocabulary.size - 1),
        pytest.raises(VocabularyMismatch, match="The model has 8,191 tokens, the vocabulary of the clusters 8,192"),
    ):
        backend.check_vocabulary(clusters.vocabulary)


@each(
    ("trained", "options", "contexts"),
    [
        (512, {}, [4096, 512]),
        (512, {"n_ctx": 100}, [100]),
        (4096, {}, [4096]),
        (4095, {"n_gpu_layers": 3}, [4096, 4095]),
        (0, {}, [4096]),
    ],
)
def test_a_model_is_loaded_with_the_context_it_was_trained_for(
    llama_cpp: Any, trained: int, options: dict[str, Any], contexts: list[int]
) -> None:
    file = str(almanac_path() / "config.json")
    Llama.started.clear()
    with (
        patch.object(llama_cpp, "llama_model_n_ctx_train", lambda model: trained),
        patch.object(backend_module, "check_header") as checked,
    ):
        assert load_llama_cpp(file, **options).max_length == contexts[-1]
    assert checked.call_args.args == (Path(file),)
    assert [(one.length, one.verbose, one.model_path) for one in Llama.started] == [(n, False, file) for n in contexts]
    assert [one.closed for one in Llama.started] == [True] * (len(contexts) - 1) + [False]


def test_what_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    (broken := tmp_path / "broken.gguf").write_bytes(b"")
    with pytest.raises(InvalidInputError, match="'n_context' is no option"):
        load_llama_cpp(str(broken), n_context=5)
    with pytest.raises(ModelError, match=r"there is no file .nowhere\.gguf'"):
        load_llama_cpp("nowhere.gguf")
    with (
        patch.object(backend_module, "check_header"),
        pytest.raises(ModelError, match=r"cannot load .*: no such model"),
    ):
        load_llama_cpp(str(broken))
