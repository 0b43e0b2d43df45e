"""Start an engine, ask it, hold its numbers against the model's own, save the exchanges, write the table."""

from __future__ import annotations

import datetime
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from tests.engines.held.exchanges import (
    Choice,
    Exchange,
    differences,
    listed_in,
    pieces,
    reading,
    spelled_in,
    tokens_in,
)
from tests.engines.held.own_numbers import Own
from tests.engines.held.requests import GONE, requests_for
from tests.engines.held.starting import ENGINES, Engine, as_float32, started
from tests.engines.held.table import TABLE, table

WEIGHTS = "SmolLM2-135M-Instruct, Q4_1"


def main(
    engine: Annotated[str, typer.Argument(help=f"One of {', '.join(ENGINES)}; `table` writes the table alone.")],
    checkpoint: Annotated[Path | None, typer.Option(help="Folder with the dequantised weights.")] = None,
    gguf: Annotated[Path | None, typer.Option(help="The same weights for llama-server.")] = None,
    program: Annotated[
        Path | None, typer.Option(help="What starts the engine: llama-server, or a Python with vLLM.")
    ] = None,
    version: Annotated[str, typer.Option(help="The engine's version.")] = "unknown",
    only: Annotated[list[str] | None, typer.Option(help="Names of requests; default: all.")] = None,
) -> None:
    """Record one engine's exchanges and write the table of all that are recorded."""
    if engine != "table":
        if checkpoint is None:
            raise typer.BadParameter("Give the folder of the weights with --checkpoint.")
        with tempfile.TemporaryDirectory() as folder:
            model = checkpoint if gguf is None else gguf
            if engine == "llama-server" and gguf is not None:
                model = as_float32(gguf, Path(folder) / "float32.gguf")
            with started(ENGINES[engine], model, program, Path(folder) / "log") as url:
                record(ENGINES[engine], url, Own(checkpoint), str(model), version, only)
    TABLE.write_text(table(), encoding="utf-8")


def record(engine: Engine, url: str, own: Own, model: str, version: str, only: list[str] | None) -> None:
    """Ask everything and save each exchange."""
    today = datetime.date.today().isoformat()
    name_there = model if engine.dialect == "transformers-serve" else "smollm2"
    for name, (route, body) in requests_for(engine.dialect).items():
        if only and name not in only:
            continue
        note = leave(url, route, body | {"model": name_there}) if name == GONE else ""
        asked = body if name != GONE else body | {"max_tokens": 8, "stream": False}
        reply = httpx.post(url + route, json=asked | {"model": name_there}, timeout=300)
        text = reply.text.replace(model, "smollm2")  # no path of this machine in a recording
        sent = text if "data:" in text[:20] else json.loads(text)
        prompt = prompt_of(engine, url, asked, sent) if reply.status_code == 200 else []
        exchange = Exchange(
            engine.name, version, today, WEIGHTS, name, route, asked, reply.status_code, sent, prompt, [], note
        )
        if reply.status_code == 200:
            exchange.choices = held(own, exchange)
        exchange.save()
        print(engine.name, name, reply.status_code, [choice.furthest for choice in exchange.choices], file=sys.stderr)


def held(own: Own, exchange: Exchange) -> list[Choice]:
    """Each choice with the model's own numbers, where the reply tells all of its tokens."""
    payload, _ = reading(exchange.reply)
    ids, listed, spelled = tokens_in(exchange.reply), listed_in(exchange.reply), spelled_in(exchange.reply)
    choices = []
    for index in sorted(ids):
        whole = 0 < len(ids[index]) == len(listed[index]) and bool(exchange.prompt)
        if payload is None or not whole or (spelled[index] and not own.spells(ids[index], spelled[index])):
            choices.append(Choice(None, {}, {}))
            continue
        numbers = own.numbers(exchange.prompt, ids[index], exchange.request)
        choices.append(Choice(ids[index], numbers, differences(payload, index, listed[index], numbers)))
    return choices


def prompt_of(engine: Engine, url: str, request: dict[str, Any], reply: Any) -> list[int]:
    """The tokens of the prompt, as the engine tells them."""
    if engine.dialect == "llama-server":
        text = request.get("prompt")
        if text is None:
            shown = {key: request[key] for key in ("messages", "tools", "tool_choice") if key in request}
            text = httpx.post(url + "/apply-template", json=shown, timeout=60).json()["prompt"]
        asked = {"content": text, "add_special": True, "parse_special": True}
        tokens: list[int] = httpx.post(url + "/tokenize", json=asked, timeout=60).json()["tokens"]
        return tokens
    if isinstance(reply, dict) and reply.get("prompt_token_ids"):
        return list(reply["prompt_token_ids"])
    found = next((piece["prompt_token_ids"] for piece in pieces(reply) if piece.get("prompt_token_ids")), [])
    if not found and isinstance(reply, str):
        whole = request | {"stream": False, "max_tokens": 1, "model": "smollm2"}
        path = "/v1/completions" if "prompt" in request else "/v1/chat/completions"
        return list(httpx.post(url + path, json=whole, timeout=300).json().get("prompt_token_ids") or [])
    return list(found)


def leave(url: str, route: str, body: dict[str, Any]) -> str:
    """Leave in the middle of a stream; say how long the next short request then takes."""
    with httpx.stream("POST", url + route, json=body, timeout=300) as stream:
        for i, _ in enumerate(stream.iter_lines()):
            if i == 4:
                break
    start = time.monotonic()
    httpx.post(url + route, json=body | {"stream": False, "max_tokens": 1}, timeout=300)
    took = time.monotonic() - start
    return f"the client left a stream of {body['max_tokens']} tokens; the next request took {took:.1f} s"


if __name__ == "__main__":
    typer.run(main)
