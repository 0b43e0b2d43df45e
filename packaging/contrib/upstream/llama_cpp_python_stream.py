"""llama-cpp-python 0.3.36: streams with log-probabilities lose each character that takes several tokens.

pip install llama-cpp-python && python llama_cpp_python_stream.py MODEL.gguf

Seen with 0.3.36 and SmolLM2 in Q4_1, on Python 3.11, on a CPU.
"""

import sys

from llama_cpp import Llama, LlamaGrammar

ANSWER = " caf\N{LATIN SMALL LETTER E WITH ACUTE} \N{CJK UNIFIED IDEOGRAPH-6771}\N{SLIGHTLY SMILING FACE}"
llama = Llama(sys.argv[1], n_ctx=256, logits_all=True, verbose=False)


def text(**options):
    """The text of an answer that the grammar forces."""
    grammar = LlamaGrammar.from_string(f'root ::= "{ANSWER}"', verbose=False)
    asked = {"max_tokens": 64, "temperature": 0, "grammar": grammar, "stream": True}
    return "".join(part["choices"][0]["text"] for part in llama.create_completion("Say something:", **asked | options))


plain, with_log_probs = text(), text(logprobs=1)
print(f"streamed: {plain!r}, streamed with logprobs=1: {with_log_probs!r}")
assert plain == ANSWER and with_log_probs != ANSWER, "the defect is gone"
