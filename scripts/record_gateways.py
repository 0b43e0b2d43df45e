"""Record what a client or gateway hands on of a semtoken reply: python scripts/record_gateways.py NAME [URL].

Run it in an environment that has the client, with `semtoken serve` at URL (default http://127.0.0.1:8000). It writes
tests/integrations/data/gateways/NAME.json, and a test makes the table of docs/integrations/carries.md from these files.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "tests" / "integrations" / "data" / "gateways"
QUESTION = "What is the capital of Mexico?"
MESSAGES = [{"role": "user", "content": QUESTION}]
BODY = {"model": "almanac", "messages": MESSAGES, "logprobs": True, "top_logprobs": 2, "max_tokens": 24}
StepRecords = tuple[Any, list[Any]]
"""A whole reply, and the chunks of a stream."""


def serve(url: str, key: str = "none") -> StepRecords:
    """The server itself."""
    import httpx

    sent: dict[str, Any] = {"headers": {"Authorization": f"Bearer {key}"}, "timeout": 60}
    whole = httpx.post(f"{url}/v1/chat/completions", json=BODY, **sent).json()
    stream = httpx.post(f"{url}/v1/chat/completions", json={**BODY, "stream": True}, **sent).text
    data = [line.removeprefix("data: ") for line in stream.splitlines() if line.startswith("data: {")]
    return whole, [json.loads(one) for one in data]


def openai(url: str) -> StepRecords:
    """OpenAI's client."""
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key="none")
    asked: dict[str, Any] = BODY
    whole = client.chat.completions.create(**asked).model_dump(mode="json")
    return whole, [one.model_dump(mode="json") for one in client.chat.completions.create(**asked, stream=True)]


def litellm(url: str) -> StepRecords:
    """LiteLLM's client."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm as host

    asked = {**BODY, "model": "openai/almanac", "api_base": f"{url}/v1", "api_key": "none"}
    whole = host.completion(**asked).model_dump(mode="json")
    return whole, [one.model_dump(mode="json") for one in host.completion(**asked, stream=True)]


def litellm_proxy(url: str) -> StepRecords:
    """LiteLLM's proxy, read without a client."""
    key = f"sk-{secrets.token_hex(24)}"
    with proxy_of_litellm(url, key) as address:
        return serve(address, key)


@contextmanager
def proxy_of_litellm(url: str, key: str) -> Iterator[str]:
    """LiteLLM's proxy in front of the server."""
    config = {
        "model_list": [
            {
                "model_name": "almanac",
                "litellm_params": {"model": "openai/almanac", "api_base": f"{url}/v1", "api_key": "none"},
            }
        ]
    }
    import httpx

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.yaml"
        file.write_text(json.dumps(config), encoding="utf-8")
        port = 8767
        command = [str(Path(sys.executable).with_name("litellm")), "--config", str(file), "--port", str(port)]
        settings = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": key}
        with subprocess.Popen([*command, "--host", "127.0.0.1"], env=settings, stdout=subprocess.DEVNULL) as proxy:
            try:
                for _ in range(150):
                    try:
                        httpx.get(f"http://127.0.0.1:{port}/health/liveliness", timeout=2)
                        break
                    except httpx.HTTPError:
                        time.sleep(1)
                yield f"http://127.0.0.1:{port}"
            finally:
                proxy.terminate()


def langchain(url: str) -> StepRecords:
    """LangChain's client for OpenAI's API."""
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(
        base_url=f"{url}/v1", api_key="none", model="almanac", logprobs=True, top_logprobs=2, max_tokens=24
    )
    whole = model.invoke(QUESTION).model_dump(mode="json")
    return whole, [one.model_dump(mode="json") for one in model.stream(QUESTION)]


def llama_index(url: str) -> StepRecords:
    """LlamaIndex's client for servers like OpenAI's; the raw reply is what it keeps."""
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai_like import OpenAILike

    model = OpenAILike(
        model="almanac", api_base=f"{url}/v1", api_key="none", is_chat_model=True, logprobs=True, top_logprobs=2
    )
    message = [ChatMessage(role="user", content=QUESTION)]
    whole = _dumped(model.chat(message).raw)
    return whole, [_dumped(one.raw) for one in model.stream_chat(message)]


def dspy(url: str) -> StepRecords:
    """DSPy's `LM`, which hands on no stream."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import dspy as host

    model = host.LM(
        "openai/almanac",
        api_base=f"{url}/v1",
        api_key="none",
        logprobs=True,
        top_logprobs=2,
        max_tokens=24,
        cache=False,
    )
    return [_dumped(one) for one in model(QUESTION)], []


def _dumped(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, dict):
        return {name: _dumped(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_dumped(item) for item in value]
    return value


GATEWAYS: dict[str, tuple[str, str, Callable[[str], StepRecords]]] = {
    "serve": ("semtoken serve", "", serve),
    "openai": ("OpenAI's Python client", "openai", openai),
    "litellm": ("LiteLLM, in Python", "litellm", litellm),
    "litellm_proxy": ("LiteLLM, its proxy", "litellm", litellm_proxy),
    "langchain": ("LangChain, `ChatOpenAI`", "langchain-openai", langchain),
    "llama_index": ("LlamaIndex, `OpenAILike`, `.raw`", "llama-index-llms-openai-like", llama_index),
    "dspy": ("DSPy, `LM`", "dspy", dspy),
}
"""By the name of the file: what the table calls it, what pip calls it, and how it is asked."""


def main() -> None:
    """Record one."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in GATEWAYS:
        sys.exit(f"Name one of {', '.join(GATEWAYS)}.")
    title, distribution, record = GATEWAYS[name]
    whole, stream = record(sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:8000")
    version = importlib.metadata.version(distribution) if distribution else ""
    content = {"title": title, "version": version, "question": QUESTION, "whole": whole, "stream": stream}
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
