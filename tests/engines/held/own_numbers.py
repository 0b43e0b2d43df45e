"""The model's own log-probabilities of an answer's tokens, by transformers in float32, one pass over given tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.engines.held.requests import YES_OR_NO


class Own:
    """A checkpoint that tells the log-probabilities of given tokens."""

    def __init__(self, checkpoint: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        self._named: dict[str, list[int]] = {}
        self.model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="float32").eval()

    def ids_of(self, texts: list[str]) -> list[int]:
        """The ids of tokens that are known by their texts; none if a text is that of no token or of several."""
        if not self._named:
            for number in range(len(self.tokenizer)):
                self._named.setdefault(self.tokenizer.decode([number]), []).append(number)
        found = [self._named.get(text, []) for text in texts]
        return [ids[0] for ids in found] if all(len(ids) == 1 for ids in found) else []

    def retold(self, text: str, texts: list[str]) -> list[int]:
        """The ids of tokens some of which have no text, pieces of characters, if those of the whole text fit."""
        ids = list(self.tokenizer(text).input_ids)
        fit = len(ids) == len(texts) and all(
            named in ("", self.tokenizer.decode([i])) for named, i in zip(texts, ids, strict=True)
        )
        return ids if fit else []

    def prompt_of(self, request: dict[str, Any]) -> list[int]:
        """The tokens of a request's prompt, by the model's own template."""
        if "prompt" in request:
            return list(self.tokenizer(request["prompt"]).input_ids)
        tools = request.get("tools")
        shown = self.tokenizer.apply_chat_template(request["messages"], tools=tools, add_generation_prompt=True)
        return list(shown["input_ids"])

    def spells(self, ids: list[int], text: str) -> bool:
        """Whether tokens spell an engine's text for them, special ones or not, or as its file does."""
        names = "".join(self.tokenizer.convert_ids_to_tokens(ids))
        return text in (names, *(self.tokenizer.decode(ids, skip_special_tokens=skip) for skip in (True, False)))

    def numbers(self, prompt: list[int], answer: list[int], request: dict[str, Any]) -> dict[str, list[float]]:
        """The log-probabilities of an answer's tokens: `raw`, and `processed` by the request's settings.

        Of grammars and schemas vLLM's choice of `YES_OR_NO` alone is applied; requests with others have no `processed`.
        """
        import torch

        with torch.inference_mode():
            logits = self.model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1].double()
        raw = torch.log_softmax(logits, -1)
        found = {"raw": [round(float(row[token]), 6) for row, token in zip(raw, answer, strict=True)]}
        constrained = any(key in request for key in ("grammar", "structured_outputs", "response_format", "tools"))
        chosen = request.get("structured_outputs") == YES_OR_NO["structured_outputs"]
        if chosen or not constrained:
            rows = [processed(row, prompt, answer[:i], request) for i, row in enumerate(logits)]
            if chosen:
                rows = [torch.log_softmax(row + self.forbidden(answer[:i]), -1) for i, row in enumerate(rows)]
            found["processed"] = [round(float(row[token]), 6) for row, token in zip(rows, answer, strict=True)]
        return found

    def forbidden(self, before: list[int]) -> Any:
        """Numbers to add to a row of logits so that the answer becomes `yes` or `no` and ends there."""
        import torch

        row = torch.full((self.model.config.vocab_size,), -torch.inf, dtype=torch.float64)
        written = self.tokenizer.decode(before)
        for word in ("yes", "no"):
            rest = word.removeprefix(written) if word.startswith(written) else None
            for end in range(1, len(rest or "") + 1):
                row[self.tokenizer.convert_tokens_to_ids((rest or "")[:end])] = (
                    0  # letters are tokens of this vocabulary
                )
            if rest == "" or written.removesuffix(self.tokenizer.eos_token) == word:
                row[self.tokenizer.eos_token_id] = 0
        return row


def processed(logits: Any, prompt: list[int], before: list[int], request: dict[str, Any]) -> Any:
    """One step's log-probabilities after bias, penalties, temperature, top-k and top-p, in this order.

    Repetition counts the prompt too; presence and frequency count the answer only. With `repetition_context_size`, of
    mlx-lm, all three count the last tokens of both.
    """
    import torch

    row = logits.clone()
    for token, bias in request.get("logit_bias", {}).items():
        row[int(token)] += bias
    repetition = request.get("repetition_penalty", request.get("repeat_penalty", 1.0))
    counted = (prompt + before)[-request.get("repetition_context_size", 0) :]
    for token in set(counted):
        row[token] = row[token] / repetition if row[token] > 0 else row[token] * repetition
    before = counted if "repetition_context_size" in request else before
    for token in set(before):
        row[token] -= request.get("frequency_penalty", 0) * before.count(token) + request.get("presence_penalty", 0)
    row = row / (request["temperature"] or 1.0)
    if "top_k" in request:
        row[row < torch.topk(row, request["top_k"]).values[-1]] = -torch.inf
    if request.get("top_p", 1.0) < 1:
        best, order = torch.sort(torch.softmax(row, -1), descending=True)
        row[order[best.cumsum(-1) - best >= request["top_p"]]] = -torch.inf
    return torch.log_softmax(row, -1)
