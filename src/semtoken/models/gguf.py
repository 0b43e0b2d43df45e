"""GGUF files, the format of llama.cpp and Ollama: their embeddings, and their conversion to a checkpoint.

Only the tensors that are asked for are read and dequantised, so a token table of a large quantised model needs no more
memory than the table itself.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.errors import ModelError, SemtokenError
from semtoken.models.gguf_header import check_header
from semtoken.support.extras import require
from semtoken.support.quiet import quiet_gguf

INPUT, OUTPUT = "token_embd.weight", "output.weight"


class GgufFile:
    """The tensors of a GGUF file.

    Raises
    ------
    ModelError
        The file is not a GGUF file, or is damaged or incomplete.
    MissingExtra
        The package `gguf` is not installed.
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
        """The output head is the input embedding matrix."""
        return OUTPUT not in self._tensors

    @property
    def quantization(self) -> str:
        """How the embeddings are stored, such as "Q8_0"; two types where input and output differ."""
        kinds = [self._tensors[name].tensor_type.name for name in (INPUT, OUTPUT) if name in self._tensors]
        return "/".join(dict.fromkeys(kinds))

    def input_matrix(self) -> npt.NDArray[np.float32]:
        """Input embeddings, float32 [rows, d]."""
        return self._matrix(INPUT)

    def output_matrix(self) -> npt.NDArray[np.float32]:
        """Output head, float32 [rows, d]; of a tied model the input embeddings."""
        return self._matrix(INPUT if self.tied else OUTPUT)

    def _matrix(self, name: str) -> npt.NDArray[np.float32]:
        gguf = require("gguf", extra="gguf")
        tensor = self._tensors[name]
        try:
            found: Any = gguf.dequantize(tensor.data, tensor.tensor_type)
        except (NotImplementedError, ValueError) as error:
            raise ModelError(f"{name} of {self.path} is stored as {tensor.tensor_type.name}: {error}") from error
        return np.ascontiguousarray(found, dtype=np.float32)


def load_tokenizer(path: Path) -> Any:
    """The tokenizer of a GGUF file, with exactly the tokens that the file has.

    Raises
    ------
    ModelError
        The file cannot be what its header says.
    Exception
        Whatever transformers and tokenizers raise.
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
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), gguf_file=path.name)
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

    Raises
    ------
    ModelError
        The file is damaged, or transformers cannot read it.
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
        raise ModelError(f"{path} cannot be converted: {' '.join(str(error).split())}") from error
    # The weights are plain float32 by now, but transformers still calls the model quantised and would refuse to save.
    model.hf_quantizer, model.is_quantized, model.quantization_method = None, False, None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for weights in folder.glob("*.safetensors"):  # which safetensors lets nobody but this user read
        weights.chmod((folder / "config.json").stat().st_mode)
