"""Greedy answers of an almanac model with the raw next-token logits of every step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from semtoken.support.almanac import Question

BATCH = 50


@dataclass(frozen=True)
class Answer:
    """What the model said: text, token ids with the closing line end, and logits of shape [n, V]."""

    question: Question
    text: str
    token_ids: list[int]
    logits: NDArray[np.float32]

    @property
    def ended(self) -> bool:
        """Whether the answer closed its line in the allowed number of tokens."""
        return self.text.endswith("\n")


def load_almanac(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model folder as transformers loads it, in float32."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(folder)


def answer_questions(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, questions: list[Question]
) -> Iterator[Answer]:
    """One greedy answer a question; generation stops at the line end (the model's generation settings)."""
    for start in range(0, len(questions), BATCH):
        batch = questions[start : start + BATCH]
        inputs = tokenizer([q.prompt() for q in batch], return_tensors="pt", padding=True)
        with torch.inference_mode():
            output = model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                return_dict_in_generate=True,
                output_logits=True,
            )
        logits = torch.stack(output.logits, dim=1).float().numpy()  # [batch, steps, V]
        ids = output.sequences[:, inputs["input_ids"].shape[1] :].tolist()
        for question, row, row_logits in zip(batch, ids, logits, strict=True):
            kept = [token for token in row if token != tokenizer.pad_token_id]
            yield Answer(question, tokenizer.decode(kept), kept, row_logits[: len(kept)])
