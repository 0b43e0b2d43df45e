"""The same answer as each API sends it, with log-probabilities and as a client gets it that asked for none."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DONE = b"data: [DONE]\n\n"
Item = Mapping[str, Any]


@dataclass(frozen=True)
class Api:
    """One API.

    Parameters
    ----------
    path
        Where it answers.
    asked
        A request without log-probabilities.
    whole
        Number of the answer, its items, and whether log-probabilities are shown -> the reply.
    events
        The same -> the events of a stream.
    """

    path: str
    asked: Mapping[str, Any]
    whole: Callable[[int, Sequence[Item], bool], Any]
    events: Callable[[int, Sequence[Item], bool], list[Any]]
    done: bytes = b""
    """The end of a stream, after its last event."""

    def stream(self, number: int, items: Sequence[Item], *, shown: bool) -> list[bytes]:
        """The events as they travel."""
        sent = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in self.events(number, items, shown)]
        return [*sent, self.done] if self.done else sent


def text_of(items: Sequence[Item]) -> str:
    return "".join(bytes(item["bytes"]).decode() for item in items)


def _chat(number: int, items: Sequence[Item], shown: bool) -> Any:
    message = {"role": "assistant", "content": text_of(items)}
    logprobs = {"content": list(items)} if shown else None
    choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": "stop"}
    return {"id": f"chat-{number}", "choices": [choice]}


def _chat_events(number: int, items: Sequence[Item], shown: bool) -> list[Any]:
    choices: list[Any] = [
        {
            "index": 0,
            "delta": {"content": text_of([item])},
            "finish_reason": None,
            "logprobs": {"content": [item]} if shown else None,
        }
        for item in items
    ]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    return [{"id": f"chat-{number}", "choices": [choice]} for choice in choices]


def _response(number: int, items: Sequence[Item], shown: bool) -> Any:
    part = {"type": "output_text", "text": text_of(items), "logprobs": list(items) if shown else []}
    message = {"type": "message", "id": "msg", "role": "assistant", "content": [part]}
    top = 20 if shown else 0
    return {"id": f"resp-{number}", "output": [message], "top_logprobs": top, "status": "completed"}


def _response_events(number: int, items: Sequence[Item], shown: bool) -> list[Any]:
    return [
        *(
            {
                "type": "response.output_text.delta",
                "item_id": f"msg-{number}",
                "delta": text_of([item]),
                "logprobs": [item] if shown else [],
                "sequence_number": i,
            }
            for i, item in enumerate(items)
        ),
        {"type": "response.output_text.done", "text": text_of(items), "logprobs": list(items) if shown else []},
        {"type": "response.completed", "response": _response(number, items, shown)},
    ]


def _completion(number: int, items: Sequence[Item], shown: bool) -> Any:
    settings = {"n_probs": 20 if shown else 0, "seed": number}
    reply = {"index": 0, "content": text_of(items), "stop": True, "generation_settings": settings, "stop_type": "eos"}
    return reply | ({"completion_probabilities": list(items)} if shown else {})


def _completion_events(number: int, items: Sequence[Item], shown: bool) -> list[Any]:
    events: list[Any] = []
    for item in items:
        event = {"index": 0, "content": text_of([item]), "tokens": [number], "stop": False}
        events.append(event | ({"completion_probabilities": [item]} if shown else {}))
    last = _completion(number, items, shown)
    last.pop("completion_probabilities", None)
    return [*events, last | {"content": ""}]


def _generation(number: int, items: Sequence[Item], shown: bool, ended: bool = True) -> Any:
    meta: dict[str, Any] = {"id": f"r-{number}", "finish_reason": {"type": "stop"} if ended else None}
    if shown:
        meta["output_token_logprobs"] = [_triple(item) for item in items]
        meta["output_top_logprobs"] = [[_triple(best) for best in item["top_logprobs"]] for item in items]
    return {"text": text_of(items), "meta_info": meta | {"completion_tokens": len(items)}}


def _triple(item: Item) -> list[Any]:
    return [item["logprob"], item["id"], item["token"]]


def _generation_events(number: int, items: Sequence[Item], shown: bool) -> list[Any]:
    so_far = [_generation(number, items[: i + 1], shown, ended=False) for i in range(len(items))]
    return [*so_far, _generation(number, items, shown)]


APIS: Mapping[str, Api] = {
    "chat": Api("/v1/chat/completions", {"messages": []}, _chat, _chat_events, DONE),
    "responses": Api("/v1/responses", {"input": "?"}, _response, _response_events),
    "completion": Api("/completion", {"prompt": "?"}, _completion, _completion_events),
    "generate": Api("/generate", {"text": "?"}, _generation, _generation_events, DONE),
}
ASKING = ("logprobs", "include", "n_probs", "return_logprob")
"""Fields of a request that ask for log-probabilities."""
