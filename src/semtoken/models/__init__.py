"""Models and engines: prompts go in, answers come out, and observers see every decoding step in between.

    prompt --prompt_ids.py--> token ids --generate / read--> steps of logits and chosen tokens --> observers
                                                          |
                        transformers/  vllm/  llama_cpp  small

base.py          what semtoken asks of a model: `Backend`, `JoiningBackend`, `Decoding` (`Step` and `Observer` are in
                 `semtoken.methods.observers.steps`)
prompts.py       from a bare question to a prompt: the paper's formats, chats, users' templates
prompt_ids.py    text, chat messages or ids -> token ids; padding; batches of similar length
answer_text.py   the text of an answer as its tokens come
written.py       an answer while it is written, and what ends it
pace.py          how much of a long prompt is read between two steps of other answers
scores.py        the observer that scores answers (`semtoken.ScoredModel` is a backend with this observer)
transformers/    model.py (the backend), loading.py, choosing.py (how tokens are chosen), together.py (answers that are
                 written together), joining.py (answers that begin one by one), generate_settings.py (what
                 transformers' `generate` is asked, where it is used), writing.py (the hook and stopping criterion that
                 see every step of it), given_texts.py (texts that are given, not written), anatomy.py (the parts of a
                 model), inside.py (states and attention), passes.py (one pass), caches.py (what is read once),
                 trees.py (several texts in one), proving.py (the passes that find out which of these ways equal a plain
                 pass), proof.py (what they found, and where it is kept), recorder.py (`Recorder`), kept_steps.py (the
                 logits that it keeps until tokens are known), generate_loop.py (the step of `generate` in which it is
                 called)
vllm/            model.py (the backend), outputs.py (what it asks vLLM for, and vLLM's lists of
                 log-probabilities), processor.py and watched.py (scoring inside the engine)
one_by_one.py    what backends have in common that answer one prompt after the other
llama_cpp.py     the backend of llama-cpp-python
small.py         the embedded model in NumPy, for one answer in a fresh process

Enter by `semtoken.ScoredModel`, `load_backend(name, model)`, or a backend class of your own with the members of
`Backend`. Other measurements than scores are observers too: `semtoken.bench.statistics.decoding` has log-probabilities
and best tokens, `semtoken.methods.observers.table` hidden states and attention.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from semtoken.choices import BackendName
from semtoken.models.base import Backend
from semtoken.support.checkpoints.sources import resolve
from semtoken.support.inputs import one_of

__all__ = ["BACKENDS", "load_backend"]

BACKENDS: tuple[BackendName, ...] = get_args(BackendName)
"""The names that `load_backend` takes."""


def load_backend(
    name: str,
    model: str | Path = "almanac",
    *,
    device: str | None = None,
    dtype: Any = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
    **options: Any,
) -> Backend:
    """Load a model with one of the engines that semtoken knows.

    Parameters
    ----------
    name : {"transformers", "vllm", "llama-cpp"}
        The engine.
    model
        As in `ScoredModel.from_pretrained`; for llama.cpp a GGUF file, or a fetched model that was made from one.
    device, dtype, revision, trust_remote_code
        As in `ScoredModel.from_pretrained`. llama.cpp reads none of them.
    **options
        Of the engine: transformers' `from_pretrained`, `vllm.LLM`, or `llama_cpp.Llama`.

    Returns
    -------
    Backend
        For `ScoredModel(backend)`, which scores its answers.

    Raises
    ------
    InvalidInputError
        There is no such engine, or it takes no such option.
    MissingExtra
        The engine is not installed.
    ModelError
        There is no such model, or it cannot be loaded.
    """
    one_of("backend", name, BACKENDS)
    source = resolve(model)
    if name == "llama-cpp":
        from semtoken.models.llama_cpp import load_llama_cpp

        return load_llama_cpp(source.gguf, **options)
    common = {"dtype": dtype, "revision": revision, "trust_remote_code": trust_remote_code}
    if name == "vllm":
        from semtoken.models.vllm.model import load_vllm

        return load_vllm(source.path, device=device, **common, **options)
    from semtoken.models.transformers.loading import load_transformers

    name_or_path, file = source.pretrained
    return load_transformers(name_or_path, device=device, **common, **file, **options)
