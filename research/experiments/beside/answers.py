"""The answers that all libraries score: replies in OpenAI's form with the 20 best log-probabilities of each token.

    python research/experiments/beside/answers.py almanac replies.jsonl
    python research/experiments/beside/answers.py smollm2 replies.jsonl QUESTIONS.jsonl [QUESTIONS.jsonl ...]

With `almanac`, the embedded model answers the first 600 of its test questions. With another model, the kept chat
answers of research/experiments/long_answers are read again; QUESTIONS give the question of each id. Log-probabilities come from
one plain forward pass in float32; no code of semtoken's scoring takes part in them. One line an answer: id, question,
right, reply, and the entropy of each step over the whole vocabulary, which lm-polygraph's mean token entropy reads.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import semtoken as st
from semtoken.support.almanac import is_correct, load_questions

KEPT = Path(__file__).parents[1] / "long_answers" / "smollm2.parquet"
LISTED = 20
LIMIT = 600


def almanac(stc: st.ScoredModel) -> Iterator[tuple[str, str, bool, list[int], list[int]]]:
    """Id, question, whether right, tokens of the prompt, and tokens of the answer."""
    asked = load_questions("test")[:LIMIT]
    answers = stc.generate([one.prompt() for one in asked], max_new_tokens=16)
    for question, answer in zip(asked, answers, strict=True):
        prompt = stc.tokenizer(question.prompt())["input_ids"]
        yield question.id, question.question, is_correct(answer.text, question), prompt, answer.token_ids


def chat(stc: st.ScoredModel, files: list[Path]) -> Iterator[tuple[str, str, bool, list[int], list[int]]]:
    """The same of the kept chat answers whose questions are in the files."""
    lines = (json.loads(line) for path in files for line in path.open(encoding="utf-8"))
    questions = {line["id"]: line["question"] for line in lines}
    for row in pd.read_parquet(KEPT).itertuples():
        if row.id in questions:
            message = [{"role": "user", "content": questions[row.id]}]
            prompt = stc.tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=True)[
                "input_ids"
            ]
            answer = stc.tokenizer(row.text, add_special_tokens=False)["input_ids"]
            yield row.id, questions[row.id], bool(row.right), prompt, answer


@torch.no_grad()
def steps(stc: st.ScoredModel, prompt: list[int], answer: list[int]) -> tuple[list[dict[str, Any]], list[float]]:
    """The answer's tokens as OpenAI lists them, and the entropy of each step."""
    logits = stc.model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1].float()
    logs = logits.log_softmax(-1)
    best = logs.topk(LISTED)

    def item(token: int, log: float) -> dict[str, Any]:
        text = stc.tokenizer.decode([token])
        return {"token": text, "logprob": round(log, 6), "bytes": list(text.encode("utf-8"))}

    content = [
        item(token, float(row[token])) | {"top_logprobs": [item(*one) for one in zip(ids, values, strict=True)]}
        for token, row, ids, values in zip(answer, logs, best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    return content, (-(logs.exp() * logs).sum(-1)).tolist()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("replies", type=Path)
    parser.add_argument("questions", type=Path, nargs="*")
    options = parser.parse_args()
    stc = st.ScoredModel.from_pretrained(options.model)
    ends = {stc.tokenizer.eos_token_id, stc.tokenizer.pad_token_id, *stc.tokenizer.all_special_ids}
    found = almanac(stc) if options.model == "almanac" else chat(stc, options.questions)
    with options.replies.open("w", encoding="utf-8") as file:
        for name, question, right, prompt, answer in found:
            answer = [token for token in answer if token not in ends]
            if not answer:
                continue
            content, entropies = steps(stc, prompt, answer)
            text = "".join(one["token"] for one in content)
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
            reply = {
                "id": f"chatcmpl-{name}",
                "object": "chat.completion",
                "created": 0,
                "model": options.model,
                "choices": [choice | {"logprobs": {"content": content, "refusal": None}}],
            }
            line = {"id": name, "question": question, "right": right, "reply": reply, "entropies": entropies}
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
