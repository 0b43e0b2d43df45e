"""The engines as child processes on the loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.engines.servers import running

SERVED = "smollm2"


@dataclass(frozen=True)
class Engine:
    """An engine with its settings."""

    name: str
    dialect: str
    module: str
    """What is started: a module of Python, or a command of its environment; empty: a program of its own."""
    settings: list[str] = field(default_factory=list)
    ready: str = "/health"


VLLM = ["--dtype", "float32", "--max-model-len", "512", "--max-logprobs", "20", "--enforce-eager"]
VLLM += ["--generation-config", "vllm", "--served-model-name", SERVED, "--max-num-seqs", "8"]
VLLM += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
LLAMA = ["-t", "1", "-np", "2", "-c", "2048", "--jinja", "--alias", SERVED]
LLAMA_EXACT = [*LLAMA, "-ctk", "f32", "-ctv", "f32", "-fa", "off"]
SERVE = ["--device", "cpu", "--dtype", "float32"]
ENGINES = {
    engine.name: engine
    for engine in (
        Engine("llama-server", "llama-server", "", LLAMA_EXACT),
        Engine("llama-server-q4", "llama-server", "", LLAMA),
        Engine("vllm", "vllm", "vllm.entrypoints.openai.api_server", VLLM),
        Engine(
            "vllm-processed",
            "vllm",
            "vllm.entrypoints.openai.api_server",
            [*VLLM, "--logprobs-mode", "processed_logprobs"],
        ),
        Engine("transformers-serve", "transformers-serve", "transformers.cli.transformers", SERVE),
    )
}


@contextmanager
def started(engine: Engine, model: Path, program: Path | None, log: Path) -> Iterator[str]:
    """The base URL of an engine that serves `model` until the end of the block."""
    from tests.engines.conftest import VLLM_ENVIRONMENT

    if engine.dialect == "llama-server":
        arguments = ["-m", str(model)]
    elif engine.dialect == "vllm":
        arguments = ["-m", engine.module, "--model", str(model)]
    else:
        arguments = ["-m", engine.module, "serve", str(model)]
    arguments += engine.settings
    with running(arguments, log, engine.ready, program=program, **VLLM_ENVIRONMENT) as url:
        yield url


def as_float32(gguf_file: Path, target: Path) -> Path:
    """The same GGUF with all weights dequantised to float32, so that the engine computes with what transformers has."""
    import gguf
    import numpy as np

    reader = gguf.GGUFReader(gguf_file)
    writer = gguf.GGUFWriter(target, "llama")
    for name, field_ in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind = field_.types[0]
        writer.add_key_value(
            name, field_.contents(), kind, field_.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        )
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        weights = gguf.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, np.ascontiguousarray(weights, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
