"""Greedy answers of a model, with the 1,024 most probable tokens of every step.

    python research/experiments/default_rule/answer.py MODEL_DIRECTORY nq QUESTIONS.jsonl.gz OUT [--limit 3000]

Writes OUT.jsonl (question, accepted answers, token ids, text) and OUT.npz (the rows of all steps, one after another).
The prompt's examples are read once; questions of one length are answered together; an answer ends at its first newline.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from semtoken.models.prompts import PROMPTS

KEPT = 1024  # most probable tokens of a step
BATCH = 48
LONGEST = 256


def read_questions(path: Path, limit: int | None) -> list[dict[str, Any]]:
    """All questions of a set, or a random part that is the same every time."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        questions = [json.loads(line) for line in file]
    return random.Random(0).sample(questions, limit) if limit and limit < len(questions) else questions  # noqa: S311


def shared_prefix(prompts: list[list[int]]) -> int:
    """Tokens that all prompts begin with; at least one token of each is left over."""
    length = min(map(len, prompts)) - 1
    while any(ids[:length] != prompts[0][:length] for ids in prompts):
        length -= 1
    return length


def batches(prompts: list[list[int]]) -> list[list[int]]:
    """Numbers of the prompts, those of one length together."""
    found: list[list[int]] = []
    for i in sorted(range(len(prompts)), key=lambda i: len(prompts[i])):
        if found and len(found[-1]) < BATCH and len(prompts[found[-1][0]]) == len(prompts[i]):
            found[-1].append(i)
        else:
            found.append([i])
    return found


@torch.no_grad()
def answer(model: Any, prompts: list[list[int]], skip: int, cache: Any, stop: torch.Tensor) -> list[dict[str, Any]]:
    """Greedy answers to prompts of one length, whose first `skip` tokens are in the cache."""
    cache.batch_repeat_interleave(len(prompts))
    ids = torch.tensor([prompt[skip:] for prompt in prompts])
    answers: list[dict[str, Any]] = [{"ids": [], "top_ids": [], "top_log_probs": []} for _ in prompts]
    running = list(range(len(prompts)))
    for _ in range(LONGEST):
        output = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        log_probs = output.logits[:, -1, : len(stop)].float().log_softmax(-1)
        values, columns = log_probs.topk(min(KEPT, len(stop)), -1)
        chosen = log_probs.argmax(-1)
        for row, i in enumerate(running):
            answers[i]["ids"].append(int(chosen[row]))
            answers[i]["top_ids"].append(columns[row].numpy().astype(np.int32))
            answers[i]["top_log_probs"].append(values[row].numpy())
        going_on = [row for row in range(len(running)) if not stop[chosen[row]]]
        if not going_on:
            break
        if len(going_on) < len(running):
            cache.batch_select_indices(torch.tensor(going_on))
            running = [running[row] for row in going_on]
        ids = chosen[going_on][:, None]
    return answers


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("prompt", choices=sorted(PROMPTS))
    parser.add_argument("questions", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
    questions = read_questions(options.questions, options.limit)
    prompts = [tokenizer(PROMPTS[options.prompt].prompt(q["question"]))["input_ids"] for q in questions]
    stop = torch.tensor(["\n" in tokenizer.decode([i]) for i in range(len(tokenizer))])
    stop[[i for i in np.ravel([model.generation_config.eos_token_id, tokenizer.eos_token_id]) if i is not None]] = True

    skip = shared_prefix(prompts)
    read = DynamicCache(config=model.config)
    with torch.no_grad():
        model(input_ids=torch.tensor([prompts[0][:skip]]), past_key_values=read, use_cache=True, logits_to_keep=1)
    answers: dict[int, dict[str, Any]] = {}
    for done, batch in enumerate(batches(prompts)):
        found = answer(model, [prompts[i] for i in batch], skip, copy.deepcopy(read), stop)
        answers |= dict(zip(batch, found, strict=True))
        if done % 10 == 0:
            print(f"{len(answers):,} of {len(prompts):,} questions", flush=True)

    steps = [answers[i] for i in range(len(prompts))]
    np.savez(
        options.out.with_suffix(".npz"),
        lengths=np.array([len(a["ids"]) for a in steps]),
        top_ids=np.concatenate([np.stack(a["top_ids"]) for a in steps]),
        top_log_probs=np.concatenate([np.stack(a["top_log_probs"]) for a in steps]),
    )
    with options.out.with_suffix(".jsonl").open("w", encoding="utf-8") as file:
        for question, a in zip(questions, steps, strict=True):
            text = tokenizer.decode(a["ids"], skip_special_tokens=True)
            file.write(json.dumps(question | {"ids": a["ids"], "text": text}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
