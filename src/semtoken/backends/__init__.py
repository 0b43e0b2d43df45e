"""Models and engines: prompts go in, answers come out, and observers see every decoding step in between.

    prompt --prompts.py--> token ids --generate / read--> steps of logits and chosen tokens --> observers
                                                          |
                        transformers/  vllm/  llama_cpp  small

base.py          what semtoken asks of a model: `Backend`, `JoiningBackend`, `Decoding` (`Step` and `Observer` are in
                 `semtoken.observers.steps`)
load.py          a backend by name, for `--backend`
prompts.py       text, chat messages or ids -> token ids; padding; batches of similar length
scores.py        the observer that scores answers (`semtoken.STC` is a backend with this observer)
pace.py          how much of a long prompt is read between two steps of other answers
detokenize.py    the text of an answer as its tokens come
transformers/    model.py (the backend), loading.py, observe.py (the hook and stopping criterion that see every step),
                 inside.py (states and attention), cache.py (prompts read once), trees.py (several prompts in one
                 pass), growing.py (trees read further and further), joining.py (answers that begin and end one by
                 one), draws.py (sampling), recorder.py (`Recorder`)
vllm/            model.py (the backend), outputs.py (what it asks vLLM for, and vLLM's lists of
                 log-probabilities), processor.py and watch.py (scoring inside the engine), channel.py (how its scores
                 come back)
one_by_one.py    what backends have in common that answer one prompt after the other
llama_cpp.py     the backend of llama-cpp-python
small.py         the embedded model in NumPy, for one answer in a fresh process

Enter by `semtoken.STC`, `load_backend(name, model)`, or a backend class of your own with the members of `Backend`.
Other measurements than scores are observers too: `semtoken.statistics.decoding` has log-probabilities and best tokens,
`semtoken.observers.inside` hidden states and attention.
"""

from __future__ import annotations

from semtoken.backends.load import BACKENDS, load_backend

__all__ = ["BACKENDS", "load_backend"]
