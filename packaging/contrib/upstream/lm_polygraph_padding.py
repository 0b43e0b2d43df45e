"""lm-polygraph 0.7.0: padding is counted where a model ends with another token than the tokenizer's end of sequence.

pip install --no-deps lm-polygraph==0.7.0 && pip install torch transformers && python lm_polygraph_padding.py
"""

import sys
import types
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

ROOT = list(find_spec("lm_polygraph").submodule_search_locations)
for name in ("lm_polygraph", "lm_polygraph.stat_calculators", "lm_polygraph.utils"):  # without their __init__
    package = types.ModuleType(name)
    package.__path__ = [str(Path(folder).joinpath(*name.split(".")[1:])) for folder in ROOT]
    sys.modules[name] = package
adapters = types.ModuleType("lm_polygraph.model_adapters")
adapters.WhiteboxModel = adapters.WhiteboxModelvLLM = object  # annotations only
sys.modules["lm_polygraph.model_adapters"] = adapters
from lm_polygraph.stat_calculators.greedy_probs import GreedyProbsCalculator  # noqa: E402

torch.manual_seed(0)
SHAPE = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
network = LlamaForCausalLM(LlamaConfig(vocab_size=64, eos_token_id=1, pad_token_id=0, **SHAPE)).eval()
prompts = torch.tensor([[5, 6, 7], [8, 9, 10]])
with torch.no_grad():
    free = network.generate(prompts, max_new_tokens=8, min_new_tokens=8, do_sample=False)[:, 3:].tolist()
END = free[0][2]  # let the model end with this token, as instruction models end with another one than the tokenizer's
network.generation_config.eos_token_id = [1, END]


class Tokenizer:
    """Decodes to the ids; its end of sequence is that of the base model."""

    eos_token_id = 1

    def decode(self, ids):
        """The ids as text."""
        return " ".join(map(str, ids.tolist() if hasattr(ids, "tolist") else ids))


class Model:
    """What the calculator reads of lm-polygraph's WhiteboxModel."""

    model, tokenizer, model_type = network, Tokenizer(), "CausalLM"
    generation_parameters = types.SimpleNamespace(allow_newlines=True)

    def tokenize(self, texts):
        """The two prompts."""
        return {"input_ids": prompts, "attention_mask": torch.ones_like(prompts)}

    def device(self):
        """Where the network is."""
        return "cpu"

    def generate(self, **options):
        """As WhiteboxModel does: scores become log-probabilities."""
        options.pop("suppress_tokens")
        out = network.generate(**options, do_sample=False)
        out.scores = tuple(one.log_softmax(-1) for one in out.scores)
        return out


found = GreedyProbsCalculator(output_attentions=False)({}, ["a", "b"], Model(), max_new_tokens=8)
tokens, logs = found["greedy_tokens"][0], found["greedy_log_likelihoods"][0]
ends = tokens.index(END) + 1
print(f"The first answer ends with {END} after {ends} tokens; greedy_tokens holds {len(tokens)}: {tokens}")
print(f"MaximumSequenceProbability: {-sum(logs):.1f}, of the answer alone {-sum(logs[:ends]):.1f}")
assert len(tokens) > ends and set(tokens[ends:]) == {0}, "the defect is gone"
