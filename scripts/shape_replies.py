"""Write replies in the shapes of engines that cannot be run here, as test data for `semtoken.replies`.

    python scripts/shape_replies.py

The shapes follow the engines' documentation; the tokens, ids and probabilities are those of the almanac, computed with
transformers. Each reply is written whole and, where the shape of its stream is documented, streamed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semtoken.support.almanac import PROMPT, almanac_path

DATA = Path(__file__).parents[1] / "tests" / "replies" / "data"
QUESTION = "Mumbai lies in what country?"
AWKWARD = " café 東🙂"
K = 5
NOT_RUN = "not run: written after its documentation"


@dataclass(frozen=True)
class Token:
    """A token with its log-probability."""

    id: int
    spelled: bytes
    log_prob: float

    @property
    def text(self) -> str:
        """Its text, U+FFFD for what is no whole character."""
        return self.spelled.decode("utf-8", "replace")

    @property
    def escaped(self) -> str:
        r"""Its text; a piece of a character as \xe6."""
        try:
            return self.spelled.decode("utf-8")
        except UnicodeDecodeError:
            return "".join(f"\\x{byte:02x}" for byte in self.spelled)


@dataclass(frozen=True)
class Step:
    """A chosen token and the best ones."""

    chosen: Token
    top: tuple[Token, ...]


class Almanac:
    """The embedded model."""

    def __init__(self) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from semtoken import Vocabulary

        self.tokenizer = AutoTokenizer.from_pretrained(almanac_path())
        self.model = AutoModelForCausalLM.from_pretrained(almanac_path()).eval()
        self.pieces = Vocabulary.from_tokenizer(self.tokenizer).pieces

    def steps(self, answer: str) -> list[Step]:
        """The steps of an answer to the question, its newline left out."""
        import torch

        prompt = self.tokenizer(PROMPT.format(question=QUESTION)).input_ids
        ids = self.tokenizer(answer, add_special_tokens=False).input_ids
        with torch.inference_mode():
            logits = self.model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
        rows = torch.log_softmax(logits.double(), dim=-1)
        return [Step(self.token(i, row[i]), self.best(row)) for i, row in zip(ids, rows, strict=True)]

    def best(self, row: Any) -> tuple[Token, ...]:
        """The most probable tokens of a row."""
        found = row.topk(K)
        return tuple(self.token(int(i), value) for i, value in zip(found.indices, found.values, strict=True))

    def token(self, number: int, log_prob: Any) -> Token:
        """A token of a row."""
        return Token(number, self.pieces[number], round(float(log_prob), 6))


def main() -> None:
    """Write them all."""
    almanac = Almanac()
    plain, awkward = almanac.steps("India"), almanac.steps(AWKWARD)
    thought = almanac.steps("The capital is Delhi")
    for name, recorded in [
        *openai(plain, awkward, thought),
        *sglang(plain, awkward, thought),
        *llama_cpp(plain, awkward),
    ]:
        path = DATA / f"{name}.json"  # what a person wrote down of an earlier one as `expected` stays
        expected = json.loads(path.read_text(encoding="utf-8"))["expected"] if path.exists() else None
        whole = {"engine": NOT_RUN, "expected": expected, **recorded}
        text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
        path.write_text(text + "\n", encoding="utf-8")
        print(f"{name}: {len(text):,} characters")


Shaped = Iterator[tuple[str, Mapping[str, Any]]]


def openai(plain: Sequence[Step], awkward: Sequence[Step], thought: Sequence[Step]) -> Shaped:
    """Chat, legacy completions, Responses; DeepSeek's list of reasoning log-probabilities."""
    yield "openai-chat", {"reply": chat(spell(plain), items(plain)), "stream": chat_stream(plain)}
    yield "openai-chat-awkward", {"reply": chat(AWKWARD, items(awkward)), "stream": chat_stream(awkward)}
    refusal = {"role": "assistant", "content": None, "refusal": spell(thought)}
    yield "openai-chat-refusal", {"reply": chat(refusal, None, refusal=items(thought))}
    call = {"type": "function", "id": "call_1", "function": {"name": "weather", "arguments": "{}"}}
    yield "openai-chat-tool", {"reply": chat({"role": "assistant", "content": None, "tool_calls": [call]}, None)}
    yield "openai-completions-awkward", {"reply": completion(awkward)}
    yield "openai-responses", {"reply": response(plain), "stream": response_stream(plain)}
    said = {"role": "assistant", "content": spell(plain), "reasoning_content": spell(thought)}
    yield "deepseek-chat", {"reply": chat(said, items(plain), reasoning_content=items(thought))}
    behind = [*items(thought), item("</think>", -0.25), item("\n\n", -0.5), *items(plain), item("<|im_end|>", -0.125)]
    yield "hidden-reasoning-chat", {"reply": chat(spell(plain), behind)}


def sglang(plain: Sequence[Step], awkward: Sequence[Step], thought: Sequence[Step]) -> Shaped:
    """`/generate` with and without texts, and chat with a reasoning parser."""
    yield "sglang", {"reply": generated(awkward), "stream": events(generated(awkward[: n + 1]) for n in range(12))}
    yield "sglang-no-text", {"reply": generated(plain, texts=False)}
    yield "sglang-batch", {"reply": [generated(plain, number=1), generated(thought, number=2)]}
    said = {"role": "assistant", "content": spell(plain), "reasoning_content": spell(thought), "tool_calls": None}
    marked = [*items(thought), item("</think>", -0.25), item("\n", -0.5), *items(plain), item("<|im_end|>", -0.125)]
    reply = chat(said, marked)
    reply["choices"][0]["matched_stop"] = 151645
    yield "sglang-chat-reasoning", {"reply": reply}


def llama_cpp(plain: Sequence[Step], awkward: Sequence[Step]) -> Shaped:
    """`/completion` before and after sampling, and chat."""
    yield "llama-cpp", {"reply": predicted(awkward), "stream": events(predicted_chunks(awkward))}
    yield "llama-cpp-post-sampling", {"reply": predicted(plain, post=True)}
    timings = {"prompt_n": 17, "predicted_n": len(plain)}
    yield "llama-cpp-chat", {"reply": chat(spell(plain), items(plain, ids=True)) | {"timings": timings}}


def spell(steps: Sequence[Step]) -> str:
    """The text of the steps."""
    return b"".join(step.chosen.spelled for step in steps).decode()


def item(text: str, log_prob: float) -> dict[str, Any]:
    """A step with one candidate, for markers that the almanac lacks."""
    named = {"token": text, "logprob": log_prob, "bytes": list(text.encode())}
    return named | {"top_logprobs": [named]}


def items(steps: Sequence[Step], *, ids: bool = False) -> list[dict[str, Any]]:
    """Steps as chat completions spell them; llama.cpp adds ids."""
    return [named(step.chosen, ids) | {"top_logprobs": [named(token, ids) for token in step.top]} for step in steps]


def named(token: Token, ids: bool) -> dict[str, Any]:
    """A token as chat completions spell it."""
    spelled = {"token": token.escaped, "logprob": token.log_prob, "bytes": list(token.spelled)}
    return ({"id": token.id} | spelled) if ids else spelled


def chat(message: str | dict[str, Any], content: Any, **apart: Any) -> dict[str, Any]:
    """A chat completion."""
    if isinstance(message, str):
        message = {"role": "assistant", "content": message, "refusal": None, "annotations": []}
    logprobs = {"content": content, "refusal": None} | apart
    choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": "stop"}
    usage = {"prompt_tokens": 17, "completion_tokens": 2, "total_tokens": 19}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]} | {
        "usage": usage,
        "service_tier": "default",
        "system_fingerprint": None,
    }


def whole_characters(steps: Sequence[Step]) -> Iterator[tuple[str, list[Step]]]:
    """Text in whole characters, with the steps that spell it."""
    waiting: list[Step] = []
    for step in steps:
        waiting.append(step)
        try:
            text = spell(waiting)
        except UnicodeDecodeError:
            continue
        yield text, waiting
        waiting = []


def chat_stream(steps: Sequence[Step]) -> str:
    """The chunks of a chat completion, each with the log-probabilities of its text."""
    deltas: list[tuple[Any, Any, Any]] = [({"role": "assistant", "content": "", "refusal": None}, None, None)]
    for text, own in whole_characters(steps):
        deltas.append(({"content": text}, {"content": items(own), "refusal": None}, None))
    deltas.append(({}, None, "stop"))
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return events(
        head | {"choices": [{"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": end}]}
        for delta, logprobs, end in deltas
    )


def completion(steps: Sequence[Step]) -> dict[str, Any]:
    """A legacy completion; pieces of characters are called by their bytes."""
    names = {t.id: t.text if "�" not in t.text else f"bytes:{t.escaped}" for s in steps for t in (s.chosen, *s.top)}
    logprobs = {
        "tokens": [names[step.chosen.id] for step in steps],
        "token_logprobs": [step.chosen.log_prob for step in steps],
        "top_logprobs": [{names[token.id]: token.log_prob for token in step.top} for step in steps],
        "text_offset": [0] * len(steps),
    }
    choice = {"text": spell(steps), "index": 0, "logprobs": logprobs, "finish_reason": "stop"}
    return {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}


def response(steps: Sequence[Step], *, logprobs: bool = True) -> dict[str, Any]:
    """A reply of the Responses form."""
    part = {
        "type": "output_text",
        "text": spell(steps),
        "annotations": [],
        "logprobs": items(steps) if logprobs else [],
    }
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    message = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part]}
    return {"id": "resp_1", "object": "response", "model": "m", "status": "completed", "output": [reasoning, message]}


def response_stream(steps: Sequence[Step]) -> str:
    """The events of a reply of the Responses form, the last without log-probabilities."""
    created = response(steps) | {"output": [], "status": "in_progress"}
    sent: list[dict[str, Any]] = [{"type": "response.created", "response": created}]
    for text, own in whole_characters(steps):
        place = {"item_id": "msg_1", "output_index": 1, "content_index": 0}
        sent.append({"type": "response.output_text.delta", "delta": text, "logprobs": items(own)} | place)
    sent.append({"type": "response.completed", "response": response(steps, logprobs=False)})
    return "".join(f"event: {value['type']}\ndata: {json.dumps(value)}\n\n" for value in sent)


def generated(steps: Sequence[Step], *, texts: bool = True, number: int = 1) -> dict[str, Any]:
    """A reply of SGLang's `/generate`; a chunk of its stream is the reply so far."""
    text = b"".join(step.chosen.spelled for step in steps).decode("utf-8", "ignore")
    meta = {
        "id": f"r{number}",
        "finish_reason": {"type": "length", "length": len(steps)} if text in ("India", AWKWARD) or number > 1 else None,
        "prompt_tokens": 17,
        "completion_tokens": len(steps),
        "output_token_logprobs": [triple(step.chosen, texts) for step in steps],
        "output_top_logprobs": [[triple(token, texts) for token in step.top] for step in steps],
    }
    return {"text": text, "output_ids": [step.chosen.id for step in steps], "meta_info": meta}


def triple(token: Token, texts: bool) -> list[Any]:
    """A token as SGLang spells it."""
    return [token.log_prob, token.id, token.text if texts else None]


def predicted(steps: Sequence[Step], *, post: bool = False) -> dict[str, Any]:
    """A reply of llama.cpp's `/completion`."""
    entries = items(steps, ids=True)
    if post:
        entries = [afterwards(entry) | {"top_probs": list(map(afterwards, entry["top_logprobs"]))} for entry in entries]
    return {
        "index": 0,
        "content": spell(steps),
        "tokens": [],
        "stop": True,
        "model": "m",
        "stop_type": "limit",
        "stopping_word": "",
        "generation_settings": {"n_probs": K, "temperature": 0.0},
        "completion_probabilities": entries,
    }


def afterwards(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry with a probability in place of its log."""
    from math import exp

    kept = {key: value for key, value in entry.items() if key not in ("logprob", "top_logprobs")}
    return kept | {"prob": exp(entry["logprob"])}


def predicted_chunks(steps: Sequence[Step]) -> Iterator[dict[str, Any]]:
    """The chunks of such a reply: text in whole characters, the last without any."""
    for text, own in whole_characters(steps):
        ids = [step.chosen.id for step in own]
        entries = items(own, ids=True)
        yield {"index": 0, "content": text, "tokens": ids, "stop": False, "completion_probabilities": entries}
    end = predicted(steps) | {"content": ""}
    del end["completion_probabilities"]
    yield end


def events(values: Any) -> str:
    """Values as server-sent events."""
    return "".join(f"data: {json.dumps(value, ensure_ascii=False)}\n\n" for value in values) + "data: [DONE]\n\n"


if __name__ == "__main__":
    main()
