"""llama.cpp in this process, through llama-cpp-python, as a `Backend`: exact scores in bounded memory.

After each token the context still holds the logits that it was chosen from, before any sampler. They are read there, a
row at a time, so `logits_all=True` is not needed. Tested with llama-cpp-python 0.3.36.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from semtoken.clustering.cache import clusters_for_model
from semtoken.clustering.function_words import english_stopwords
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.clustering.vocabulary import Vocabulary, neutral_mask
from semtoken.errors import InvalidInputError, ModelError, VocabularyMismatch, one_line_of
from semtoken.models.base import Decoding
from semtoken.models.one_by_one import OneByOne
from semtoken.models.prompt_ids import draw_key
from semtoken.support.arrays import FloatArray
from semtoken.support.checkpoints.gguf import check_header
from semtoken.support.extras import require

LONGEST_CONTEXT = 4096
"""The length of the context, in tokens, if none is given; it is shorter for a model that was trained for fewer."""


def load_llama_cpp(model: str, **options: Any) -> LlamaCppBackend:
    """Load a .gguf file with options of `llama_cpp.Llama` (`n_ctx`, `n_gpu_layers`, ...); see `load_backend`.

    By default the context is as long as the model was trained for, at most 4,096 tokens, and nothing is printed.
    """
    llama_cpp = require("llama_cpp", extra="llama-cpp")
    if unknown := sorted(set(options) - set(signature(llama_cpp.Llama.__init__).parameters)):
        raise InvalidInputError(f"{unknown[0]!r} is no option of llama_cpp.Llama.")
    path = Path(model).expanduser()
    if not path.is_file():
        raise ModelError(f"llama.cpp reads a .gguf file; there is no file {model!r}.")
    check_header(path)
    known = {"n_ctx": LONGEST_CONTEXT, "verbose": False} | options
    try:
        llama = llama_cpp.Llama(str(path), **known)
        trained = llama_cpp.llama_model_n_ctx_train(llama_cpp.llama_get_model(llama.ctx))
        if "n_ctx" not in options and 0 < trained < LONGEST_CONTEXT:  # known only once the file is read
            llama.close()
            llama = llama_cpp.Llama(str(path), **(known | {"n_ctx": trained}))
        return LlamaCppBackend(llama)
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"llama.cpp cannot load {model!r}: {one_line_of(error)}") from error


class LlamaTokenizer:
    """The tokenizer of a model's file, called like those of transformers."""

    def __init__(self, llama: Any) -> None:
        self._llama = llama
        self.chat_template = llama.metadata.get("tokenizer.chat_template")
        self.eos_token_id = int(llama.token_eos())
        self.pad_token_id = self.eos_token_id

    @cached_property
    def eos_token(self) -> str:
        """The text of the token that ends a sequence."""
        return self._special(self._llama.token_eos())

    def __call__(self, text: str, add_special_tokens: bool = True, verbose: bool = True) -> dict[str, list[int]]:
        """Token ids of a text; special tokens that it spells are taken as such."""
        return {"input_ids": list(self._llama.tokenize(text.encode(), add_bos=add_special_tokens, special=True))}

    def apply_chat_template(self, messages: list[Any], tokenize: bool, add_generation_prompt: bool) -> str:
        """Chat messages as the text that the template in the model's file makes of them."""
        formats = require("llama_cpp.llama_chat_format", extra="llama-cpp")
        bos = self._special(self._llama.token_bos())
        formatter = formats.Jinja2ChatFormatter(self.chat_template, eos_token=self.eos_token, bos_token=bos)
        return str(formatter(messages=messages).prompt)

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        """The text of each token; special tokens as the vocabulary spells them."""
        return [self._special(token) for token in ids]

    def _special(self, token: int) -> str:
        return str(self._llama.detokenize([token], special=True).decode("utf-8", "replace")) if token >= 0 else ""


class LlamaCppBackend(OneByOne):
    """A loaded `llama_cpp.Llama` (`llama`); see `semtoken.models.base.Backend`. It answers one prompt at a time.

    `Decoding.options` are arguments of `Llama.generate` (`temp`, `top_p`, ...), and `stop_token_ids` for further tokens
    that end an answer.
    """

    name = "llama-cpp"
    _remedy = "Shorten the prompt or load the model with a larger n_ctx."
    _last_is_read = 1

    def __init__(self, llama: Any) -> None:
        self.model = llama
        self.tokenizer = LlamaTokenizer(llama)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokens of the model's file. Clusters that fit the model bring a vocabulary of their own for scores."""
        llama_cpp = require("llama_cpp", extra="llama-cpp")
        own = _vocabulary(self.model)
        pieces = tuple(_piece(self.model, token) for token in range(self.model.n_vocab()))
        texts = tuple(piece.decode("utf-8", "replace") for piece in pieces)
        kinds = np.array([llama_cpp.llama_vocab_get_attr(own, token) for token in range(len(pieces))])
        byte_tokens = (kinds & llama_cpp.LLAMA_TOKEN_ATTR_BYTE) != 0
        return Vocabulary(
            texts=texts,
            pieces=pieces,
            neutral=neutral_mask(texts, english_stopwords()),
            byte_tokens=byte_tokens,
            byte_errors="run" if byte_tokens.any() else "replace",
        )

    @property
    def max_length(self) -> int | None:
        """The number of tokens of prompt and answer that fit into the context."""
        return int(self.model.n_ctx())

    def default_clusters(self, progress: Callable[..., None] | None = None) -> TokenClusters:
        """The clusters cached for the model's file, or computed from it and cached."""
        return clusters_for_model(self.model.model_path, progress=progress)

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise `VocabularyMismatch` unless the model's tokens are spelled as those of the vocabulary."""
        check_spelling(self.model, vocabulary)

    def _check_decoding(self, decoding: Decoding) -> None:
        """All settings can be followed."""

    @cached_property
    def _ends(self) -> frozenset[int]:  # type: ignore[override]
        llama_cpp, own = require("llama_cpp", extra="llama-cpp"), _vocabulary(self.model)
        return frozenset(i for i in range(self.model.n_vocab()) if llama_cpp.llama_vocab_is_eog(own, i))

    def _stop_ids(self, decoding: Decoding) -> frozenset[int]:
        return super()._stop_ids(decoding) | set(decoding.options.get("stop_token_ids", ()))

    def _tokens(self, prompt: list[int], decoding: Decoding, sample: int) -> Iterator[tuple[int, FloatArray]]:
        options: dict[str, Any] = {"temp": decoding.temperature}
        if decoding.temperature > 0:
            options |= {"top_k": decoding.top_k, "top_p": decoding.top_p, "min_p": decoding.min_p}
        options |= {name: value for name, value in decoding.options.items() if name != "stop_token_ids"}
        if decoding.seed is not None:
            key = draw_key(decoding.seed, prompt, sample)
            # llama.cpp's seeds have 32 bits.
            self.model.set_seed(int(np.random.default_rng(key).integers(2**31)))
        self.model.reset()
        for token in self.model.generate(prompt, **options):
            yield int(token), self._logits()

    def _begin(self) -> Callable[[Sequence[int]], FloatArray]:
        self.model.reset()

        def read(ids: Sequence[int]) -> FloatArray:
            self.model.eval(ids)
            return self._logits()

        return read

    def _logits(self) -> FloatArray:
        """Logits [V] of the last token that was read, in the context's own memory: valid until the next one."""
        llama_cpp = require("llama_cpp", extra="llama-cpp")
        pointer = llama_cpp.llama_get_logits_ith(self.model.ctx, -1)
        return np.ctypeslib.as_array(pointer, shape=(self.model.n_vocab(),))


def check_spelling(llama: Any, vocabulary: Vocabulary) -> None:
    """Raise `VocabularyMismatch` unless the model's tokens are spelled as those of the vocabulary."""
    if llama.n_vocab() < vocabulary.size:
        raise VocabularyMismatch(
            f"The model has {llama.n_vocab():,} tokens, the vocabulary of the clusters {vocabulary.size:,}."
        )
    for token in np.flatnonzero(~vocabulary.special).tolist():
        spelled = _piece(llama, token)
        if spelled and spelled != vocabulary.pieces[token]:
            raise VocabularyMismatch(
                f"Token {token} is {spelled!r} in the model and {vocabulary.pieces[token]!r} in the vocabulary of the "
                "clusters: these clusters belong to another model."
            )


def _piece(llama: Any, token: int, room: int = 64) -> bytes:
    """Bytes of one token in the model's file, whatever tokenizer was given to `Llama`; none for a control token."""
    llama_cpp = require("llama_cpp", extra="llama-cpp")
    buffer = ctypes.create_string_buffer(room)
    length = llama_cpp.llama_token_to_piece(_vocabulary(llama), token, buffer, room, 0, False)
    # A negative length says how much room the token needs.
    return _piece(llama, token, -length) if length < 0 else buffer.raw[:length]


def _vocabulary(llama: Any) -> Any:
    llama_cpp = require("llama_cpp", extra="llama-cpp")
    return llama_cpp.llama_model_get_vocab(llama_cpp.llama_get_model(llama.ctx))
