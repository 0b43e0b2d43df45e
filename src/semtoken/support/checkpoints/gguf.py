"""GGUF files, the format of llama.cpp and Ollama: their embeddings, and their conversion to a checkpoint.

Only the tensors that are asked for are read and dequantized, so a token table of a large quantized model needs no more
memory than the table itself.

Readers of such files believe all counts in the header. Where one names 2^40 elements, they are looked for one by
one, without end. So every count is held against the bytes that are left before anything is read for it. The format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import json
import mmap
import struct
import tempfile
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.errors import ModelError, SemtokenError, one_line_of
from semtoken.support.extras import quiet_gguf, require

MAGIC = b"GGUF"
WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value, by the number of its type."""
STRING, ARRAY = 8, 9
LEAST_FIELD, LEAST_TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8  # bytes of the shortest ones
MOST_ELEMENTS = 2**22
"""Most elements that all arrays of a header may have together. A vocabulary of 2^18 tokens has 2^20, merges included; a
reader takes 10 microseconds and 700 bytes for each."""
MOST_TENSORS = 2**16  # and fields; the largest models have some thousands
MOST_DIMENSIONS = 8
MOST_NAME = 2**16  # bytes; the format allows 65,535
MOST_TEXTS = 64 * 2**20
"""Most bytes of all texts of a header together; a vocabulary of 2^18 tokens and its merges take 10 MB."""
ELEMENTS_A_BYTE = 8  # of tensors, at most


def check_header(path: Path) -> None:
    """Raise `ModelError` for a file that cannot be read, is not GGUF, or cannot hold what its header says."""
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ModelError(f"{path} is not a GGUF file. Is the download complete?")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                _Header(data).check()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from error
    except SemtokenError:
        raise
    except (ValueError, struct.error) as error:
        reason = "it ends within its header" if isinstance(error, struct.error) else error
        raise ModelError(f"{path} is damaged or incomplete: {reason}. Download it again.") from error


class _Header:
    """The header of a file, read from its beginning to its end."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = len(MAGIC)
        self._order = "<"
        self._elements = 0
        self._texts = 0

    def check(self) -> None:
        """Raise ValueError or struct.error unless every count fits."""
        # Versions are small numbers: read with the other byte order, the low half is 0.
        if not self._number("I") & 0xFFFF:
            self._order = ">"
        tensors, fields = self._number("Q"), self._number("Q")
        self._require(tensors, LEAST_TENSOR, "tensors")
        self._require(fields, LEAST_FIELD, "fields")
        if max(tensors, fields) > MOST_TENSORS:
            raise ValueError(f"{tensors:,} tensors and {fields:,} fields; {MOST_TENSORS:,} of each are allowed")
        for _ in range(fields):
            self._name()
            self._value(self._number("I"))
        for _ in range(tensors):
            self._tensor()

    def _value(self, kind: int) -> None:
        if kind == STRING:
            self._text()
        elif kind == ARRAY:
            self._array()
        elif kind in WIDTHS:
            self._skip(WIDTHS[kind])
        else:
            raise ValueError(f"there is no type {kind} of values")

    def _array(self) -> None:
        kind = self._number("I")
        if kind == ARRAY:
            raise ValueError("an array of arrays, which llama.cpp does not read either")
        if kind != STRING and kind not in WIDTHS:
            raise ValueError(f"there is no type {kind} of values")
        count = self._count(WIDTHS.get(kind, 8), "elements in an array")
        self._elements += count
        if self._elements > MOST_ELEMENTS:
            raise ValueError(f"{self._elements:,} elements in its arrays; {MOST_ELEMENTS:,} are allowed")
        if kind != STRING:
            self._skip(count * WIDTHS[kind])
            return
        for _ in range(count):
            self._text()

    def _name(self) -> None:
        length = self._count(1, "bytes in a name")
        if length > MOST_NAME:
            raise ValueError(f"a name of {length:,} bytes; {MOST_NAME:,} are allowed")
        self._skip(length)

    def _text(self) -> None:
        length = self._count(1, "bytes in a text")
        self._texts += length
        if self._texts > MOST_TEXTS:
            raise ValueError(f"{self._texts:,} bytes of text in its header; {MOST_TEXTS:,} are allowed")
        self._skip(length)

    def _tensor(self) -> None:
        self._name()
        dimensions = self._number("I")
        if dimensions > MOST_DIMENSIONS:
            raise ValueError(f"a tensor of {dimensions:,} dimensions")
        elements = prod(self._number("Q") for _ in range(dimensions))
        if elements > ELEMENTS_A_BYTE * len(self._data):
            raise ValueError(f"a tensor of {elements:,} elements in a file of {len(self._data):,} bytes")
        self._skip(4)
        if self._number("Q") > len(self._data):
            raise ValueError("a tensor beyond the end of the file")

    def _number(self, kind: str) -> Any:
        number = struct.unpack_from(self._order + kind, self._data, self._at)[0]
        self._at += struct.calcsize("<" + kind)
        return number

    def _count(self, least: int, what: str) -> int:
        """A count of things that have at least so many bytes each."""
        count = int(self._number("Q"))
        self._require(count, least, what)
        return count

    def _require(self, count: int, least: int, what: str) -> None:
        left = len(self._data) - self._at
        if count * least > left:
            raise ValueError(f"{count:,} {what}, where {left:,} bytes are left")

    def _skip(self, size: int) -> None:
        self._at += size
        if self._at > len(self._data):
            raise ValueError("it ends within its header")


INPUT, OUTPUT = "token_embd.weight", "output.weight"


class GgufFile:
    """The tensors of a GGUF file; `ModelError` if it is not one, or is damaged or incomplete.

    `MissingExtra` if the package `gguf` is not installed.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        check_header(self.path)
        gguf = require("gguf", extra="gguf")
        try:
            self._tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(self.path).tensors}
        except (ValueError, IndexError, KeyError, OverflowError, MemoryError) as error:
            raise ModelError(f"{self.path} is damaged or incomplete: {error}. Download it again.") from error
        if INPUT not in self._tensors:
            raise ModelError(
                f"{self.path} has no {INPUT}. Is it a language model? A file that is one of several parts has to be "
                "joined with the others first."
            )

    @property
    def tied(self) -> bool:
        """True if the output head is the input embedding matrix."""
        return OUTPUT not in self._tensors

    @property
    def quantization(self) -> str:
        """The quantization of the embeddings, such as "Q8_0"; two types where input and output differ."""
        kinds = [self._tensors[name].tensor_type.name for name in (INPUT, OUTPUT) if name in self._tensors]
        return "/".join(dict.fromkeys(kinds))

    def matrix(self, name: str) -> npt.NDArray[np.float32]:
        """The embeddings `INPUT`, or the head `OUTPUT` (of a tied model the same), float32 [rows, d]."""
        name = INPUT if self.tied else name
        gguf = require("gguf", extra="gguf")
        tensor = self._tensors[name]
        try:
            dequantized: Any = gguf.dequantize(tensor.data, tensor.tensor_type)
        except (NotImplementedError, ValueError) as error:
            raise ModelError(f"{name} of {self.path} is stored as {tensor.tensor_type.name}: {error}") from error
        return np.ascontiguousarray(dequantized, dtype=np.float32)


def load_tokenizer(path: Path) -> Any:
    """The tokenizer of a GGUF file, with exactly the tokens that the file has.

    `ModelError` if the file is damaged or incomplete; besides that whatever transformers and tokenizers raise.
    """
    check_header(path)
    transformers = require("transformers", extra="transformers")
    require("gguf", extra="gguf")
    # Files of a tokenizer beside it would be mixed with the file's own: its chat template and special tokens are lost.
    with tempfile.TemporaryDirectory() as alone:
        folder = Path(alone)
        try:
            (folder / path.name).symlink_to(path.resolve())
        except OSError:  # some systems forbid links
            folder = path.parent
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), gguf_file=path.name)
        except Exception:
            GgufFile(path)  # which says so if the file is damaged behind its header
            raise
    tokenizer.name_or_path = str(path.parent)
    # Where the file names no token for the unknown, transformers adds one of its own, for which the model has no row.
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    own = tokenizer.backend_tokenizer.get_vocab_size(with_added_tokens=False)
    kept = [token for token in state["added_tokens"] if token["id"] < own]
    if len(kept) < len(state["added_tokens"]):
        import tokenizers

        tokenizer._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(state | {"added_tokens": kept}))
    return tokenizer


def convert(path: Path, folder: Path) -> None:
    """Write a GGUF model as a plain float32 checkpoint: safetensors, config and tokenizer.

    `ModelError` if the file is damaged, or transformers cannot read it.
    """
    torch = require("torch", extra="transformers")
    transformers = require("transformers", extra="transformers")
    for package in ("gguf", "accelerate"):
        require(package, extra="gguf")
    load = transformers.AutoModelForCausalLM.from_pretrained
    try:
        tokenizer = load_tokenizer(path)
        with quiet_gguf():
            model = load(str(path.parent), gguf_file=path.name, dtype=torch.float32)
    except SemtokenError:
        raise
    except Exception as error:
        raise ModelError(f"{path} cannot be converted: {one_line_of(error)}") from error
    # The weights are plain float32 by now, but transformers still calls the model quantized and would refuse to save.
    model.hf_quantizer, model.is_quantized, model.quantization_method = None, False, None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for weights in folder.glob("*.safetensors"):  # which safetensors lets nobody but this user read
        weights.chmod((folder / "config.json").stat().st_mode)
