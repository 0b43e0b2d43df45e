"""The cost of the proof of a model of transformers: tokens and processor time, beside those of loading it.

    OMP_NUM_THREADS=1 python benchmarks/proving.py smollm2 FOLDER ...

Loading takes a new process, with all imports. The proof is made while nothing is known or kept of the model; the time
is the least of the runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from time import process_time
from typing import Annotated, Any

import typer


def proving(backend: Any, repeats: int) -> tuple[int, float]:
    """Tokens and least processor seconds of a proof."""
    from semtoken.models.transformers import proof
    from semtoken.models.transformers import proving as passes

    seconds, tokens = [], 0
    for _ in range(repeats):
        proof._KNOWN.clear()
        with tempfile.TemporaryDirectory() as cache:
            os.environ["SEMTOKEN_CACHE"] = cache
            start = process_time()
            tokens = passes.proof_of(backend.model, backend.vocabulary, backend._padding).tokens
            seconds.append(process_time() - start)
    return tokens, min(seconds)


def measured(model: str, repeats: int) -> tuple[float, int, float]:
    """Processor seconds of loading a model in this process; tokens and processor seconds of its proof."""
    from semtoken.models import load_backend

    backend = load_backend("transformers", model)
    loading = process_time()
    return loading, *proving(backend, repeats)


def main(
    models: Annotated[list[str], typer.Argument(help="Names, folders or GGUF files.")],
    repeats: Annotated[int, typer.Option(help="How often the proof is made.")] = 3,
    inside: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Print a table of tokens, processor seconds and their share in loading."""
    if inside:
        print(json.dumps(measured(models[0], repeats)))
        return
    print(
        "| model | loading, processor s | tokens | proof, processor s | of loading |\n| --- | --- | --- | --- | --- |"
    )
    for model in models:
        command = [sys.executable, __file__, model, "--inside", "--repeats", str(repeats)]
        ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        loading, tokens, seconds = json.loads(ran.stdout.splitlines()[-1])
        print(f"| {model} | {loading:.2f} | {tokens} | {seconds:.3f} | {seconds / loading:.1%} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
