"""What it costs that a model of transformers proves itself: tokens and processor time, beside those of loading it.

    OMP_NUM_THREADS=1 python benchmarks/proving.py smollm2 FOLDER ...

Loading takes a new process, with all imports. Each use is asked of a model of which nothing is known or kept; the time
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

USES: dict[str, tuple[str, ...]] = {
    "loading": (),
    "an answer": ("generates",),
    "several answers": ("generates", "resumes"),
    "given replies": ("padded", "continued"),
    "the first request of serve": ("joined", "trees"),
    "all ways": ("padded", "continued", "generates", "resumes", "joined", "trees"),
}
"""What is asked of a proof by each use."""


def proving(backend: Any, ways: tuple[str, ...], repeats: int) -> tuple[int, float]:
    """Tokens and least processor seconds of finding out some ways."""
    from semtoken.models.transformers import proof

    seconds, tokens = [], 0
    for _ in range(repeats):
        proof._KNOWN.clear()
        with tempfile.TemporaryDirectory() as cache:
            os.environ["SEMTOKEN_CACHE"] = cache
            start = process_time()
            if ways:
                found = proof.Proof.of(backend.model, backend.vocabulary, backend._padding)
                for way in ways:
                    getattr(found, way)
                tokens = found.tokens
            seconds.append(process_time() - start)
    return tokens, min(seconds)


def measured(model: str, repeats: int) -> dict[str, tuple[int, float]]:
    """Loading and all uses of one model, in this process."""
    from semtoken.models import load_backend

    backend = load_backend("transformers", model)
    loading = process_time()
    _ = backend.vocabulary
    return {"": (0, loading)} | {use: proving(backend, ways, repeats) for use, ways in USES.items()}


def main(
    models: Annotated[list[str], typer.Argument(help="Names, folders or GGUF files.")],
    repeats: Annotated[int, typer.Option(help="How often each use is asked for.")] = 3,
    inside: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Print a table of tokens, processor seconds and their share in loading."""
    if inside:
        print(json.dumps(measured(models[0], repeats)))
        return
    print("| model | first asked for | tokens | processor s | of loading |\n| --- | --- | --- | --- | --- |")
    for model in models:
        command = [sys.executable, __file__, model, "--inside", "--repeats", str(repeats)]
        ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(ran.stdout.splitlines()[-1])
        _, loading = found.pop("")
        print(f"| {model} | loaded in {loading:.2f} s | | | |")
        for use, (tokens, seconds) in found.items():
            print(f"| | {use} | {tokens} | {seconds:.3f} | {seconds / loading:.1%} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
