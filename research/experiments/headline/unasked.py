"""How probable the tokens of recorded answers are without their question: one more pass of the same model.

    python research/experiments/headline/unasked.py MODEL RECORDINGS NAME [NAME ...]

The prompt is the model's chat template with an empty user message; for `bare` answers the text begins after "Answer:". Writes
RECORDINGS/NAME-unasked.npy, ln p of every token in the order of the recording's steps.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

BATCH = 32


@torch.no_grad()
def log_probs(model: torch.nn.Module, prompt: list[int], answers: list[list[int]]) -> list[np.ndarray]:
    """Ln p of each token of some answers behind one prompt; shorter ones are padded behind their end."""
    width = max(map(len, answers))
    ids = torch.tensor([prompt + answer + [0] * (width - len(answer)) for answer in answers])
    logits = model(input_ids=ids[:, :-1]).logits[:, len(prompt) - 1 :].float()
    found = logits.log_softmax(-1).gather(-1, ids[:, len(prompt) :, None])[..., 0]
    return [row[: len(answer)].numpy() for row, answer in zip(found, answers, strict=True)]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.bfloat16).eval()
    for name in options.names:
        empty = [{"role": "user", "content": ""}]
        text = tokenizer.apply_chat_template(empty, tokenize=False, add_generation_prompt=True)
        prompt = tokenizer("Answer:" if name.startswith("bare") else text, add_special_tokens=False)["input_ids"]
        parts = sorted(options.recordings.glob(f"{name}-[0-9][0-9][0-9][0-9].jsonl"))
        answers = [json.loads(line)["ids"] for path in parts for line in path.open(encoding="utf-8")]
        order = sorted(range(len(answers)), key=lambda i: len(answers[i]))
        found: dict[int, np.ndarray] = {}
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            found |= dict(zip(batch, log_probs(model, list(prompt), [answers[i] for i in batch]), strict=True))
        np.save(options.recordings / f"{name}-unasked.npy", np.concatenate([found[i] for i in range(len(answers))]))
        print(f"{name}: {len(answers):,} answers", flush=True)


if __name__ == "__main__":
    main()
