"""Your own model.generate call, with the uncertainty of each answer: add one logits processor.

    python examples/own_generate.py [MODEL]

MODEL is a directory or hub id; without it, the model that is built into semtoken.
"""

from __future__ import annotations

import sys

from transformers import AutoModelForCausalLM, AutoTokenizer

import semtoken as st
from semtoken.support.almanac import almanac_path

name = sys.argv[1] if len(sys.argv) > 1 else str(almanac_path())

tokenizer = AutoTokenizer.from_pretrained(name, padding_side="left")
model = AutoModelForCausalLM.from_pretrained(name)

prompts = [
    "Answer these questions:\n\nQuestion:\nWhat is the capital of Japan?\nAnswer:\n",
    "Answer these questions:\n\nQuestion:\nWhat is the chemical symbol of gold?\nAnswer:\n",
]
inputs = tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)

recorder = st.Recorder(tokenizer)
sequences = model.generate(**inputs, max_new_tokens=6, do_sample=False, logits_processor=[recorder])
for answer in recorder.answers(sequences, questions=prompts):
    print(f"{answer.text!r}  {answer.summary}")
