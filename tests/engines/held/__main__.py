"""Start an engine, ask it, hold its numbers against the model's own, save the exchanges, write the table."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from tests.engines.held.doctoring import consult
from tests.engines.held.exchanges import (
    Choice,
    Exchange,
    differences,
    listed_in,
    pieces,
    reading,
    save_sums,
    spelled_in,
    text_of,
    texts_in,
    tokens_in,
)
from tests.engines.held.own_numbers import Own
from tests.engines.held.requests import GONE, KILLED, requests_for
from tests.engines.held.starting import ENGINES, KEY, MASTER, SERVED, Engine, as_float32, started, with_rope_theta
from tests.engines.held.table import TABLE, table
from tests.engines.servers import pid_file

FROM_FLOAT32 = ("llama-server", "llama-server-draft", "llama-cpp-python", "litellm", "langchain")
os.environ["SEMTOKEN_ENGINE_KEY"] = MASTER
NAMED_BY_PATH = ("transformers-serve", "mlx-lm")
"""Dialects in which a model's name is its folder."""
WEIGHTS = "SmolLM2-135M-Instruct, Q4_1"


def main(
    engine: Annotated[str, typer.Argument(help=f"One of {', '.join(ENGINES)}; `table` writes the table alone.")],
    checkpoint: Annotated[Path | None, typer.Option(help="Folder with the dequantised weights.")] = None,
    gguf: Annotated[Path | None, typer.Option(help="The same weights for llama-server.")] = None,
    program: Annotated[
        Path | None, typer.Option(help="What starts the engine: llama-server, or a Python with vLLM.")
    ] = None,
    version: Annotated[str, typer.Option(help="The engine's version.")] = "unknown",
    behind: Annotated[Path | None, typer.Option(help="llama-server, for a gateway in front of it.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Names of requests; default: all.")] = None,
) -> None:
    """Record one engine's exchanges and write the table of all that are recorded."""
    if engine != "table":
        if checkpoint is None:
            raise typer.BadParameter("Give the folder of the weights with --checkpoint.")
        with tempfile.TemporaryDirectory() as folder:
            model = checkpoint if gguf is None else gguf
            if engine in FROM_FLOAT32 and gguf is not None:
                model = as_float32(gguf, Path(folder) / "float32.gguf")
            if engine == "mlx-lm":
                model = with_rope_theta(checkpoint, Path(folder) / "model")
            with started(ENGINES[engine], model, program, Path(folder) / "log", behind) as url:
                asked = replace(ENGINES[engine], client=program)
                record(asked, url, Own(checkpoint), str(model), version, only, Path(folder) / "log")
    TABLE.write_text(table(), encoding="utf-8")


def record(engine: Engine, url: str, own: Own, model: str, version: str, only: list[str] | None, log: Path) -> None:
    """Ask everything and save each exchange."""
    today = datetime.date.today().isoformat()
    name_there = model if engine.dialect in NAMED_BY_PATH else SERVED
    if engine.dialect != "langchain" and (not only or "doctor" in only):
        consult(url, engine.name, version, today, name_there, model)
    for name, (route, body) in requests_for(engine.dialect).items():
        if only and name not in only:
            continue
        note = leave(url, route, body | {"model": name_there}) if name == GONE else ""
        asked = body if name != GONE else body | {"max_tokens": 8, "stream": False}
        if name == KILLED:
            status, text = killed(url, route, body | {"model": name_there}, log)
        elif engine.dialect == "langchain":
            status, text = by_langchain(engine, url, asked)
        else:
            reply = httpx.post(url + route, json=asked | {"model": name_there}, headers=KEY, timeout=300)
            status, text = reply.status_code, reply.text
        text = text.replace(model, SERVED)  # no path of this machine in a recording
        sent = text if status == 200 and asked.get("stream") and engine.dialect != "langchain" else json.loads(text)
        prompt = prompt_of(engine, url, own, asked, sent) if status == 200 and name != KILLED else []
        exchange = Exchange(engine.name, version, today, WEIGHTS, name, route, asked, status, sent, prompt, [], note)
        if status == 200:
            exchange.choices = held(own, exchange)
        exchange.save()
        print(engine.name, name, status, [choice.furthest for choice in exchange.choices], file=sys.stderr)
    save_sums(engine.name)


def held(own: Own, exchange: Exchange) -> list[Choice]:
    """Each choice with the model's own numbers, where the reply tells all of its tokens."""
    payload, problem = reading(exchange.reply)
    ids, listed, spelled = tokens_in(exchange.reply), listed_in(exchange.reply), spelled_in(exchange.reply)
    texts = texts_in(exchange.reply)
    choices = []
    for index in sorted(ids):
        tokens = ids[index] or own.ids_of(texts[index]) or own.retold(text_of(exchange.reply, index), texts[index])
        whole = 0 < len(tokens) == len(listed[index]) and bool(exchange.prompt)
        if payload is None or problem or not whole or (spelled[index] and not own.spells(tokens, spelled[index])):
            choices.append(Choice(None, {}, {}))
            continue
        numbers = own.numbers(exchange.prompt, tokens, exchange.request)
        choices.append(Choice(tokens, numbers, differences(payload, index, listed[index], numbers)))
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
    found = next((piece["prompt_token_ids"] for piece in pieces(reply) if piece.get("prompt_token_ids")), [])
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
    """What comes of a stream whose engine is killed after some events; `log` is the engine's."""
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


if __name__ == "__main__":
    typer.run(main)
