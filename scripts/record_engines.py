"""Ask a running llama-server, record its replies and hold their numbers against the model's own.

    python scripts/record_engines.py http://127.0.0.1:8080 model.gguf --version "b11010"

The model's own numbers: transformers on the dequantised weights of the same GGUF, teacher-forced on the reply's tokens.
Each exchange goes to tests/payloads/engines/, the table to standard output.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

DATA = Path(__file__).parents[1] / "tests" / "payloads" / "engines"
CHAT = "/v1/chat/completions"
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "a", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}},
}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
ASKED: dict[str, dict[str, Any]] = {
    "plain": {},
    "stop": {"stop": ["."], "max_tokens": 24},
    "two": {"n": 2, "temperature": 1.0, "seed": 1},
    "schema": {"response_format": SCHEMA},
    "grammar": {"grammar": 'root ::= "yes" | "no"'},
    "tool": {"tools": [WEATHER], "tool_choice": "required", "max_tokens": 32},
    "logit-bias": {"logit_bias": {"60": -100}},
    "temperature": {"temperature": 0.5, "seed": 1},
    "top-p": {"temperature": 1.0, "top_p": 0.5, "seed": 1},
    "top-k": {"temperature": 1.0, "top_k": 3, "seed": 1},
    "penalties": {"repeat_penalty": 1.5, "frequency_penalty": 1.0, "presence_penalty": 1.0},
    "post-sampling": {"post_sampling_probs": True, "temperature": 1.0, "top_k": 3, "seed": 1},
    "cache-hit": {"cache_prompt": True},
    "multi-byte": {"messages": [{"role": "user", "content": "Repeat exactly: 東京 🙂 café"}], "max_tokens": 16},
    "length": {"max_tokens": 2},
}
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


class Own:
    """The model's own log-probabilities, computed by transformers from a GGUF's dequantised weights."""

    def __init__(self, gguf: Path) -> None:
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype="float32").eval()

    def of(self, prompt: list[int], answer: list[int], temperature: float = 1.0) -> list[float]:
        """The log-probability of each token of an answer after a prompt."""
        import torch

        with torch.inference_mode():
            logits = self.model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1].double()
        rows = torch.log_softmax(logits / temperature, -1)
        return [float(row[token]) for row, token in zip(rows, answer, strict=True)]


def ask(url: str, case: dict[str, Any]) -> tuple[dict[str, Any], list[int], int, Any]:
    """The request, the tokens of its prompt, and the reply's status and body."""
    request = {"messages": QUESTION, "max_tokens": 8, "temperature": 0, "logprobs": True, "top_logprobs": 3} | case
    shown = {key: request[key] for key in ("messages", "tools") if key in request}
    prompt = httpx.post(url + "/apply-template", json=shown, timeout=60).json()["prompt"]
    asked = {"content": prompt, "add_special": True, "parse_special": True}
    tokens = httpx.post(url + "/tokenize", json=asked, timeout=60).json()["tokens"]
    reply = httpx.post(url + CHAT, json=request, timeout=120)
    return request, tokens, reply.status_code, reply.json()


def held(own: Own, request: dict[str, Any], prompt: list[int], reply: Any) -> list[dict[str, Any]]:
    """For each choice the model's numbers beside the reply's; none where the list is not the answer's tokens."""
    choices = []
    listed = sum(len((choice.get("logprobs") or {}).get("content") or []) for choice in reply["choices"])
    told = reply["usage"]["completion_tokens"]  # llama-server counts one choice of several
    whole = listed in (told, told * len(reply["choices"]))
    for choice in reply["choices"]:
        items = (choice.get("logprobs") or {}).get("content") or []
        if not items or not whole or any("logprob" not in item for item in items):
            choices.append({"model": None, "items": len(items), "tokens": reply["usage"]["completion_tokens"]})
            continue
        ids, numbers = [item["id"] for item in items], [item["logprob"] for item in items]
        raw, warm = own.of(prompt, ids), own.of(prompt, ids, request["temperature"] or 1.0)
        far = max(abs(a - b) for a, b in zip(numbers, raw, strict=True))
        far_warm = max(abs(a - b) for a, b in zip(numbers, warm, strict=True))
        choices.append({"model": raw, "sum": sum(numbers), "furthest": far, "furthest_with_temperature": far_warm})
    return choices


def main(
    url: str,
    gguf: Path,
    version: Annotated[str, typer.Option(help="What the server is: its version, and where its source is from.")],
    only: Annotated[list[str] | None, typer.Option(help="Names of requests; default: all.")] = None,
) -> None:
    """Record the exchanges and print the table."""
    own, today = Own(gguf), datetime.date.today().isoformat()
    print(
        "| request | finish | tokens / items | furthest from raw | from raw at the temperature |\n|---|---|---|---|---|"
    )
    for name, case in ASKED.items():
        if only and name not in only:
            continue
        request, prompt, status, reply = ask(url, case)
        if status != 200:
            print(f"| {name} | {status}: {reply['error']['message'][:90]} | | | |", flush=True)
            continue
        choices = held(own, request, prompt, reply)
        DATA.mkdir(exist_ok=True)
        exchange = {
            "engine": "llama-server",
            "version": version,
            "date": today,
            "weights": "SmolLM2-135M-Instruct, Q4_1",
        }
        exchange |= {"request": request, "prompt": prompt, "reply": reply, "choices": choices}
        (DATA / f"llama-server-{name}.json").write_text(json.dumps(exchange, ensure_ascii=False, indent=1) + "\n")
        for choice, checked in zip(reply["choices"], choices, strict=True):
            finish, total = choice["finish_reason"], reply["usage"]["completion_tokens"]
            items = len((choice.get("logprobs") or {}).get("content") or [])
            far = [
                f"{checked[key]:.3f}" if key in checked else "-" for key in ("furthest", "furthest_with_temperature")
            ]
            print(f"| {name} | {finish} | {total} / {items} | {far[0]} | {far[1]} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
