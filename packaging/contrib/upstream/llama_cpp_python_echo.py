"""llama-cpp-python 0.3.36: with `echo`, log-probabilities are those of the next position if the model has no BOS token.

pip install llama-cpp-python && python llama_cpp_python_echo.py MODEL.gguf  (whose tokenizer adds no BOS: SmolLM2)

Seen with 0.3.36 and SmolLM2 in Q4_1, on Python 3.11, on a CPU.
"""

import sys

import numpy as np
from llama_cpp import Llama

TEXT = "The capital of France is Paris."
llama = Llama(sys.argv[1], n_ctx=256, logits_all=True, verbose=False)
tokens = llama.tokenize(TEXT.encode(), add_bos=True)
if tokens[0] == llama.token_bos():
    sys.exit("The tokenizer of this model adds a BOS token: take one that adds none.")
llama.reset()
llama.eval(tokens)
log_probs = Llama.logits_to_logprobs(np.array(llama.scores[: len(tokens)]))
right = [float(log_probs[i - 1][token]) for i, token in enumerate(tokens) if i]
reply = llama.create_completion(TEXT, max_tokens=1, temperature=0, logprobs=1, echo=True)
shown = [float(one) for one in reply["choices"][0]["logprobs"]["token_logprobs"][1 : len(tokens)]]
for token, expected, seen in zip(tokens[1:], right, shown, strict=True):
    print(f"{llama.detokenize([token])!r}: expected {expected:.3f}, shown {seen:.3f}")
assert not np.allclose(right, shown, atol=0.1), "the defect is gone"
