"""A small instruct model turns the documents into JSON: greedy answers with their token ids, one line a document.

    python research/experiments/extraction/read.py MODEL OUTPUT.jsonl --documents 400

Documents that the output holds already are left out, so a run that was stopped goes on.
"""

from __future__ import annotations

import copy
import json
from os.path import commonprefix
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from documents import FIELDS, Document, make_documents
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

MAX_NEW_TOKENS = 160
BATCH = 32
EXAMPLES = make_documents(3, seed=1)


def messages(document: Document) -> list[dict[str, str]]:
    """The conversation that asks for the fields of a document, after worked examples."""
    instruction = (
        "Read the invoice and answer with one JSON object with the fields "
        f"{', '.join(FIELDS)}. Write dates as YYYY-MM-DD, the total as a number, currency as a three-letter code, and "
        "paid as true or false."
    )
    said = [{"role": "system", "content": instruction}]
    for example in EXAMPLES:
        said.append({"role": "user", "content": example.text})
        said.append({"role": "assistant", "content": json.dumps(example.fields, ensure_ascii=False)})
    return [*said, {"role": "user", "content": document.text}]


def main(
    model: Annotated[str, typer.Argument(help="A directory or hub id of an instruct model.")],
    output: Annotated[Path, typer.Argument(help="Where the answers go.")],
    documents: Annotated[int, typer.Option(help="How many documents.")] = 400,
    seed: Annotated[int, typer.Option(help="Of the documents.")] = 0,
    dtype: Annotated[str, typer.Option(help="Of the weights: float32, bfloat16.")] = "float32",
) -> None:
    """Read all documents."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    reader = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype)).eval()
    known = output.read_text(encoding="utf-8").splitlines() if output.exists() else []
    done = {json.loads(line)["id"] for line in known}
    wanted = [one for one in make_documents(documents, seed) if one.id not in done]
    prompts = [tokenizer.apply_chat_template(messages(one), add_generation_prompt=True)["input_ids"] for one in wanted]
    shared = commonprefix(prompts[:2])  # the instruction and the examples are read once  # noqa: RUF071
    with torch.no_grad():
        examples = DynamicCache(config=reader.config)
        reader(input_ids=torch.tensor([shared]), past_key_values=examples)
    for first in range(0, len(wanted), BATCH):
        tails = [prompt[len(shared) :] for prompt in prompts[first : first + BATCH]]
        answers = read_batch(reader, tokenizer, shared, copy.deepcopy(examples), tails)
        with output.open("a", encoding="utf-8") as file:
            for document, tail, answer in zip(wanted[first : first + BATCH], tails, answers, strict=True):
                record = {
                    "id": document.id,
                    "document": document.text,
                    "fields": document.fields,
                    "prompt_ids": [*shared, *tail],
                    "answer_ids": answer,
                    "answer": tokenizer.decode(answer, skip_special_tokens=True),
                }
                file.write(json.dumps(record, ensure_ascii=False) + "\n")


@torch.no_grad()
def read_batch(
    model: Any, tokenizer: Any, shared: list[int], cache: DynamicCache, tails: list[list[int]]
) -> list[list[int]]:
    """Greedy answers to prompts that begin with `shared`, which `cache` holds."""
    width = max(map(len, tails))
    pad, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    ids = torch.tensor([[*shared, *[pad] * (width - len(tail)), *tail] for tail in tails])
    mask = torch.tensor([[1] * len(shared) + [0] * (width - len(tail)) + [1] * len(tail) for tail in tails])
    cache.batch_repeat_interleave(len(tails))
    written = model.generate(
        input_ids=ids, attention_mask=mask, past_key_values=cache, max_new_tokens=MAX_NEW_TOKENS, do_sample=False
    )
    answers = written[:, ids.shape[1] :].tolist()
    return [answer[: answer.index(end) + 1] if end in answer else answer for answer in answers]


if __name__ == "__main__":
    typer.run(main)
