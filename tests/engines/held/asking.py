"""Ask an engine two dozen requests and hold its numbers against the model's own."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.engines.held.exchanges import (
    Choice,
    Exchange,
    differences,
    listed_in,
    pieces,
    reading,
    spelled_in,
    text_of,
    texts_in,
    tokens_in,
)
from tests.engines.held.own_numbers import Own
from tests.engines.held.requests import GONE, KILLED, requests_for
from tests.engines.held.starting import KEY, SERVED, Engine
from tests.engines.servers import pid_file

WEIGHTS = "SmolLM2-135M-Instruct, Q4_1"
NAMED_BY_PATH = ("transformers-serve", "mlx-lm")
"""Dialects in which a model's name is its folder."""


def name_there(engine: Engine, model: str) -> str:
    """The name by which requests call the model that an engine serves."""
    return model if engine.dialect in NAMED_BY_PATH else SERVED


def exchanges(
    engine: Engine, url: str, own: Own, model: str, version: str, only: list[str] | None, log: Path
) -> Iterator[Exchange]:
    """Ask everything, one request after the other; `log` is the engine's."""
    today, called = datetime.date.today().isoformat(), name_there(engine, model)
    for name, (route, body) in requests_for(engine.dialect).items():
        if only and name not in only:
            continue
        note = leave(url, route, body | {"model": called}) if name == GONE else ""
        asked = body if name != GONE else body | {"max_tokens": 8, "stream": False}
        if name == KILLED:
            status, text = killed(url, route, body | {"model": called}, log)
        elif engine.dialect == "langchain":
            status, text = by_langchain(engine, url, asked)
        else:
            reply = httpx.post(url + route, json=asked | {"model": called}, headers=KEY, timeout=300)
            status, text = reply.status_code, reply.text
        text = text.replace(model, SERVED)  # no path of this machine in a recording
        sent = text if status == 200 and asked.get("stream") and engine.dialect != "langchain" else json.loads(text)
        prompt = prompt_of(engine, url, own, asked, sent) if status == 200 and name != KILLED else []
        exchange = Exchange(engine.name, version, today, WEIGHTS, name, route, asked, status, sent, prompt, [], note)
        if status == 200:
            exchange.choices = held(own, exchange)
        print(engine.name, name, status, [choice.furthest for choice in exchange.choices], file=sys.stderr)
        yield exchange


def held(own: Own, exchange: Exchange) -> list[Choice]:
    """Each choice with the model's own numbers, where the reply tells all of its tokens."""
    parsed_reply, problem = reading(exchange.reply)
    ids, listed, spelled = tokens_in(exchange.reply), listed_in(exchange.reply), spelled_in(exchange.reply)
    texts = texts_in(exchange.reply)
    choices = []
    for index in sorted(ids):
        tokens = ids[index] or own.ids_of(texts[index]) or own.retold(text_of(exchange.reply, index), texts[index])
        whole = 0 < len(tokens) == len(listed[index]) and bool(exchange.prompt)
        if parsed_reply is None or problem or not whole or (spelled[index] and not own.spells(tokens, spelled[index])):
            choices.append(Choice(None, {}, {}))
            continue
        numbers = own.numbers(exchange.prompt, tokens, exchange.request)
        choices.append(Choice(tokens, numbers, differences(parsed_reply, index, listed[index], numbers)))
    return choices


def prompt_of(engine: Engine, url: str, own: Own, request: dict[str, Any], reply: Any) -> list[int]:
    """The tokens of the prompt, as the engine tells them, or else as the model's own template gives them."""
    if engine.dialect == "llama-server":
        text = request.get("prompt")
        if text is None:
            shown = {key: request[key] for key in ("messages", "tools", "tool_choice") if key in request}
            text = httpx.post(url + "/apply-template", json=shown, timeout=60).json()["prompt"]
        asked = {"content": text, "add_special": True, "parse_special": True}
        tokens: list[int] = httpx.post(url + "/tokenize", json=asked, timeout=60).json()["tokens"]
        return tokens
    if engine.dialect != "vllm":
        tokens = own.prompt_of(request)
        usage = reply.get("usage") if isinstance(reply, dict) else None
        return tokens if not usage or usage["prompt_tokens"] == len(tokens) else []
    if isinstance(reply, dict) and reply.get("prompt_token_ids"):
        return list(reply["prompt_token_ids"])
    found: list[int] = next((piece["prompt_token_ids"] for piece in pieces(reply) if piece.get("prompt_token_ids")), [])
    if not found and isinstance(reply, str):
        whole = request | {"stream": False, "max_tokens": 1, "model": SERVED}
        path = "/v1/completions" if "prompt" in request else "/v1/chat/completions"
        return list(httpx.post(url + path, json=whole, timeout=300).json().get("prompt_token_ids") or [])
    return list(found)


def by_langchain(engine: Engine, url: str, request: dict[str, Any]) -> tuple[int, str]:
    """The message that LangChain makes of the answer of the server at `url`."""
    command = [str(engine.client), "-P", str(Path(__file__).with_name("langchain_client.py")), url]
    done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, timeout=300, check=False)
    return (200, done.stdout) if done.returncode == 0 else (500, json.dumps(done.stderr.strip().splitlines()[-1]))


def killed(url: str, route: str, body: dict[str, Any], log: Path) -> tuple[int, str]:
    """The outcome of a stream whose engine is killed after some events; `log` is the engine's."""
    lines: list[str] = []
    with httpx.stream("POST", url + route, json=body, timeout=60) as stream:
        try:
            for line in stream.iter_lines():
                lines.append(line)
                if len(lines) == 8:
                    os.kill(int(pid_file(log).read_text()), signal.SIGKILL)
        except httpx.HTTPError:
            pass
        return stream.status_code, "\n".join(lines)


def leave(url: str, route: str, body: dict[str, Any]) -> str:
    """Leave in the middle of a stream; say how long the next short request then takes."""
    with httpx.stream("POST", url + route, json=body, headers=KEY, timeout=300) as stream:
        for i, _ in enumerate(stream.iter_lines()):
            if i == 4:
                break
    start = time.monotonic()
    httpx.post(url + route, json=body | {"stream": False, "max_tokens": 1}, headers=KEY, timeout=300)
    took = time.monotonic() - start
    return f"the client left a stream of {body['max_tokens']} tokens; the next request took {took:.1f} s"
