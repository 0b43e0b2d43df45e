"""A small OpenAI-compatible server over the almanac, with the faults that servers are known for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse


@dataclass(frozen=True)
class Faults:
    """The faults of a server; it has none by default."""

    silent: bool = False
    """Log-probabilities are left out."""
    most: int = 20
    clamps: bool = False
    """More than `most` are answered with `most` instead of a refusal."""
    no_bytes: bool = False
    gives_ids: bool = False
    """On request, as vLLM does."""
    ignores_ids: bool = False
    """Requests for them are taken like any other, as by most servers."""
    scaled: bool = False
    """Log-probabilities follow the temperature."""
    vllm: bool = False
    """Replies have a field that only vLLM has, in streams, too; the server counts its requests at `/asked`."""
    noisy: bool = False
    """They differ from request to request."""
    zeros: bool = False
    """Every token is said to be certain."""
    silent_streams: bool = False
    no_streams: bool = False
    """Streams are refused."""
    shortens: bool = False
    """More than ten tokens are refused."""
    new_names: bool = False
    """`max_tokens` and `temperature` are refused, as by reasoning models."""
    key: str | None = None
    tells_the_key: bool = False
    models: tuple[str, ...] = ("almanac",)
    ascii_only: bool = False
    """Other prompts get an empty answer, as from some small models."""
    no_list: bool = False
    """The question for its models is answered with an error."""


@cache
def greedy_rows(almanac: Any, prompt: str, length: int) -> list[tuple[int, Any]]:
    """Each token of the answer with its row of logits. All servers answer alike, and many are asked the same."""
    import torch

    ids = almanac.tokenizer(prompt).input_ids
    found = []
    with torch.inference_mode():
        for _ in range(length):
            row = almanac.model(torch.tensor([ids])).logits[0, -1].double()
            found.append((int(row.argmax()), row))
            ids.append(found[-1][0])
            if b"\n" in almanac.scorer.vocabulary.pieces[ids[-1]]:
                break
    return found


def sick_app(almanac: Any, faults: Faults) -> FastAPI:
    """The server. `almanac` is an STC; answers are greedy and end at a newline."""
    import torch

    app = FastAPI(openapi_url=None)
    tokenizer, pieces = almanac.tokenizer, almanac.scorer.vocabulary.pieces
    noise = iter(range(1, 10**6))
    asked: list[dict[str, Any]] = []
    beside: dict[str, Any] = {"model": "almanac"} | ({"prompt_logprobs": None} if faults.vllm else {})

    def token(number: int, log_prob: float, body: dict[str, Any], *, chosen: bool) -> dict[str, Any]:
        spelled = pieces[number]
        text = f"token_id:{number}" if body.get("return_tokens_as_token_ids") else spelled.decode("utf-8", "replace")
        named = {"token": text, "logprob": log_prob, "bytes": list(spelled if chosen else text.encode())}
        return named | ({"bytes": None} if faults.no_bytes else {})

    def item(number: int, row: Any, body: dict[str, Any]) -> dict[str, Any]:
        if faults.noisy:
            row = row + torch.randn(row.shape, generator=torch.Generator().manual_seed(next(noise)))
        scaled = row / (body.get("temperature") or 1) if faults.scaled else row
        log_probs = torch.log_softmax(scaled, dim=-1)
        best = log_probs.topk(min(body.get("top_logprobs") or 0, faults.most)).indices.tolist()
        values = {
            i: (0.0 if i == number else -9999.0) if faults.zeros else float(log_probs[i]) for i in (number, *best)
        }
        top = [token(i, values[i], body, chosen=False) for i in best]
        return token(number, values[number], body, chosen=True) | {"top_logprobs": top}

    def refusal(body: dict[str, Any]) -> str | None:
        if faults.new_names:
            for name in ("max_tokens", "temperature"):
                if name in body:
                    return f"Unsupported parameter: '{name}'. Use 'max_completion_tokens'." if "max" in name else name
        if not faults.gives_ids and "return_token_ids" in body:
            return "unknown field return_token_ids"
        if faults.no_streams and body.get("stream"):
            return "no streams here"
        if faults.shortens and (body.get("max_tokens") or 0) > 10:
            return "max_tokens may be at most 10"
        top = body.get("top_logprobs") or 0
        if top < 0 or (top > faults.most and not faults.clamps):
            return f"top_logprobs may be at most {faults.most}"
        return None

    @app.middleware("http")
    async def keyed(request: Request, forward: Any) -> Response:
        sent = request.headers.get("authorization")
        if faults.key is not None and sent != f"Bearer {faults.key}":
            said = f"wrong key {sent}" if faults.tells_the_key else "wrong key"
            return JSONResponse({"error": {"message": said}}, 401)
        reply: Response = await forward(request)
        return reply

    @app.get("/v1/models", response_model=None)
    def models() -> dict[str, Any] | Response:
        if faults.no_list:
            return JSONResponse({"error": {"message": "no worker"}}, 500)
        return {"object": "list", "data": [{"id": name} for name in faults.models]}

    @app.get("/asked")
    def all_asked() -> list[dict[str, Any]]:
        return asked

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        body = await request.json()
        asked.append(body)
        if faults.ignores_ids:
            body = {name: value for name, value in body.items() if not name.startswith("return_token")}
        if reason := refusal(body):
            return JSONResponse({"error": {"message": reason, "type": "invalid_request_error"}}, 400)
        prompt = tokenizer.apply_chat_template(body["messages"], tokenize=False)
        length = body.get("max_tokens") or body.get("max_completion_tokens") or 16
        if faults.ascii_only and not prompt.isascii():
            length = 0
        steps = greedy_rows(almanac, prompt.removeprefix("<s>"), length)
        wanted = body.get("logprobs") and not faults.silent
        items = [item(number, row, body) for number, row in steps] if wanted else None
        texts = [tokenizer.decode([number]) for number, _ in steps]
        if body.get("stream"):
            shown = None if faults.silent_streams else items
            return StreamingResponse(chunks(texts, shown, beside), media_type="text/event-stream")
        logprobs = None if items is None else {"content": items}
        message = {"role": "assistant", "content": "".join(texts)}
        choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": "stop"}
        if body.get("return_token_ids"):
            choice["token_ids"] = [number for number, _ in steps]
        return JSONResponse({"id": "1", "object": "chat.completion", "choices": [choice]} | beside)

    return app


def chunks(texts: list[str], items: list[dict[str, Any]] | None, beside: dict[str, Any]) -> Iterator[str]:
    for i, text in enumerate(texts):
        logprobs = None if items is None else {"content": [items[i]]}
        end = "stop" if i == len(texts) - 1 else None
        choice = {"index": 0, "delta": {"content": text}, "logprobs": logprobs, "finish_reason": end}
        yield f"data: {json.dumps({'object': 'chat.completion.chunk', 'choices': [choice]} | beside)}\n\n"
    yield "data: [DONE]\n\n"
