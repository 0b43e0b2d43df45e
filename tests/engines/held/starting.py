"""The engines as child processes on the loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.engines.servers import running

SERVED = "smollm2"
MASTER = "sk-none"
KEY = {"authorization": f"Bearer {MASTER}"}
"""The key of a LiteLLM proxy, which does not start without one; other servers take any."""


@dataclass(frozen=True)
class Engine:
    """An engine with its settings."""

    name: str
    dialect: str
    module: str
    """What is started: a module of Python, or a command of its environment; empty: a program of its own."""
    settings: list[str] = field(default_factory=list)
    ready: str = "/health"
    client: Path | None = None
    """The Python with the client, where the engine is asked through one."""


VLLM = ["--dtype", "float32", "--max-model-len", "512", "--max-logprobs", "20", "--enforce-eager"]
VLLM += ["--generation-config", "vllm", "--served-model-name", SERVED, "--max-num-seqs", "8"]
VLLM += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
LLAMA = ["-t", "1", "-np", "2", "-c", "2048", "--jinja", "--alias", SERVED]
LLAMA_EXACT = [*LLAMA, "-ctk", "f32", "-ctv", "f32", "-fa", "off"]
LLAMA_CPP_PYTHON = ["--model_alias", SERVED, "--n_ctx", "512", "--logits_all", "true", "--n_threads", "1"]
LLAMA_CPP_PYTHON += ["--type_k", "0", "--type_v", "0"]  # keys and values in float32
LLAMA_CPP_PYTHON += ["--interrupt_requests", "false"]  # else each request ends the stream before it
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
        Engine("llama-server-draft", "llama-server", "", [*LLAMA_EXACT, "--spec-type", "draft-simple"]),
        Engine("mlx-lm", "mlx-lm", "mlx_lm.server", [], "/health"),
        Engine("litellm", "litellm", "", [], "/health/liveliness"),
        Engine("langchain", "langchain", ""),
        Engine("llama-cpp-python", "llama-cpp-python", "llama_cpp.server", LLAMA_CPP_PYTHON, "/v1/models"),
        Engine("transformers-serve", "transformers-serve", "transformers.cli.transformers", SERVE),
    )
}

FROM_GGUF = ("llama-server", "llama-server-draft", "llama-cpp-python", "litellm", "langchain")
"""Engines that read GGUF, or stand in front of one that does: they are given its weights in float32."""


@contextmanager
def started(engine: Engine, model: Path, program: Path | None, log: Path, behind: Path | None = None) -> Iterator[str]:
    """The base URL of an engine that serves `model` until the end of the block; `behind`: a gateway's llama-server."""
    from tests.engines.conftest import VLLM_ENVIRONMENT

    if behind is not None:
        with started(ENGINES["llama-server"], model, behind, log) as url:
            if engine.name == "langchain":
                yield url
                return
            key = {"OPENAI_API_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": MASTER}
            arguments = ["--model", f"openai/{SERVED}", "--alias", SERVED, "--api_base", f"{url}/v1"]
            with running(arguments, log.with_name("gateway"), engine.ready, program=program, **key) as gateway:
                yield gateway
        return
    if engine.dialect == "llama-server":
        arguments = ["-m", str(model)]
        if engine.name.endswith("-draft"):  # the model is its own draft
            arguments += ["-md", str(model), "--spec-draft-n-max", "4"]
    elif engine.dialect in ("vllm", "llama-cpp-python", "mlx-lm"):
        arguments = ["-m", engine.module, "--model", str(model)]
    else:
        arguments = ["-m", engine.module, "serve", str(model)]
    arguments += engine.settings
    with running(arguments, log, engine.ready, program=program, **VLLM_ENVIRONMENT) as url:
        yield url


def served_weights(engine: str, checkpoint: Path, gguf: Path, folder: Path) -> Path:
    """The form of a model that an engine loads, made in `folder` where it is not there yet."""
    if engine == "llama-server-q4":
        return gguf
    if engine in FROM_GGUF:
        return as_float32(gguf, folder / "float32.gguf")
    return with_rope_theta(checkpoint, folder / "model") if engine == "mlx-lm" else checkpoint


def with_rope_theta(checkpoint: Path, target: Path) -> Path:
    """The same checkpoint with `rope_theta` where mlx-lm looks for it: it reads no `rope_parameters`."""
    target.mkdir()
    for path in checkpoint.iterdir():
        (target / path.name).symlink_to(path)
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    config["rope_theta"] = config.get("rope_parameters", config)["rope_theta"]
    (target / "config.json").unlink()
    (target / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return target


def as_float32(gguf_file: Path, target: Path) -> Path:
    """The same GGUF with all weights dequantized to float32, so that the engine computes with what transformers has."""
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
