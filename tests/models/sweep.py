"""Every causal and image-text model of the installed transformers, made tiny: what works, what is rejected and why.

`python -m tests.models.sweep` writes the table of benchmarks/architectures.md. A model whose numbers differ from a
plain pass in any way of asking is an error. With `--seed` or `--tokenizer`, or the names of types, it only prints.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as IMAGE

from semtoken.errors import SemtokenError, VocabularyMismatch
from semtoken.models.transformers import TransformersBackend
from semtoken.models.transformers.proof import Proof
from tests import tiny
from tests.models.plain_pass import off, plain_passes, ways, with_wide_weights
from tests.models.tiny_configs import tiny_model_of

PAGE = Path(__file__).parents[2] / "benchmarks" / "architectures.md"
BEGIN, END = "<!-- made by tests/models/sweep.py -->", "<!-- end -->"


@dataclass(frozen=True)
class Outcome:
    """The result for one kind of model."""

    state: str
    """`whole`: all ways are used; `some`: those that are equal; `refused`; `unmade`: not made tiny here; `wrong`."""
    why: str = ""


def outcome_of(kind: str, seed: int = 0, tokenizer: str = "byte-level") -> Outcome:
    """Make a model of this type tiny, and ask it in all ways; the tokenizer is one of `tiny.ALL_TOKENIZERS`."""
    auto = transformers.AutoModelForImageTextToText if kind in IMAGE else transformers.AutoModelForCausalLM
    try:
        model = with_wide_weights(tiny_model_of(kind, auto.from_config, decoder=kind not in IMAGE), seed)
    except ValueError as error:
        return Outcome("unmade", "timm is not installed" if "timm" in str(error) else _cause(str(error)))
    try:
        backend = TransformersBackend(model, tiny.tokenizer_of(tokenizer))
        proof = backend.proof
        used = _used(proof)
    except VocabularyMismatch:
        return Outcome("unmade", "its vocabulary has a size of its own")
    except SemtokenError as error:
        return Outcome("refused", _reason(str(error)))
    plain = plain_passes(backend)
    try:
        for name, way in ways(backend, tokens=12, lengths=(38, 5, 17)).items():
            if (far := off(way, plain)) > 2e-3:
                return Outcome("wrong", f"{name}: {far:.2g} nats")
    except SemtokenError as error:
        return Outcome("refused", str(error))
    except Exception as error:
        return Outcome("wrong", f"{type(error).__name__}: {error}".splitlines()[0][:100])
    return Outcome(*used)


def _cause(message: str) -> str:
    """Why no model was made, as a part of a table's cell."""
    if "Unrecognized configuration class" in message:
        return "its class is not there"
    return message.replace("|", "/")


def _reason(message: str) -> str:
    """Why a type is refused, in the words of the table."""
    if "that follow" in message:
        return "it sees tokens to come"
    if "encoder-decoder" in message:
        return "encoder-decoder"
    if "no output head" in message:
        return "no output head"
    return "it cannot process text without an image" if "cannot read" in message else message[:100]


def _used(proof: Proof) -> tuple[str, str]:
    if proof.padded and proof.continued and proof.generates == "padded":
        return "whole", ""
    without = [
        *([] if proof.padded else ["padding"]),
        *([] if proof.continued else ["continuing a cache"]),
        *(
            {"padded": [], "equal": ["padding in generate"], "alone": ["batches in generate"]}.get(
                proof.generates, ["generate"]
            )
        ),
    ]
    return "some", " and ".join(without)


def sweep(kinds: Any = (*CAUSAL, *IMAGE), **how: Any) -> Iterator[tuple[str, Outcome]]:
    """The outcome of every type of model, by name; options as for `outcome_of`."""
    for kind in sorted(set(kinds)):
        with _quiet():
            yield kind, outcome_of(kind, **how)


@contextmanager
def _quiet() -> Iterator[None]:
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(before)


def table(outcomes: dict[str, Outcome]) -> str:
    """The outcomes as a Markdown table, types with the same outcome in one row."""
    said = {
        "whole": "correct in all ways",
        "some": "correct; disabled because results differ: ",
        "refused": "rejected: ",
        "unmade": "no tiny model was made: ",
        "wrong": "**wrong**: ",
    }
    rows: dict[str, list[str]] = defaultdict(list)
    for kind, one in outcomes.items():
        rows[said[one.state] + one.why].append(kind)
    order = sorted(rows, key=lambda row: (list(said).index(next(k for k in said if row.startswith(said[k]))), row))
    lines = [f"| {row} ({len(rows[row])}) | {', '.join(rows[row])} |" for row in order]
    return "\n".join([f"| transformers {transformers.__version__} | types |", "| --- | --- |", *lines])


def main() -> None:
    """Write the table; exit with 1 if a model is wrong."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokenizer", choices=tiny.ALL_TOKENIZERS, default="byte-level")
    given = parser.parse_args()
    found = {}
    for kind, one in sweep(given.kinds or (*CAUSAL, *IMAGE), seed=given.seed, tokenizer=given.tokenizer):
        found[kind] = one
        print(f"{kind}: {one.state} {one.why}", flush=True)
    if given == parser.parse_args([]):
        page = PAGE.read_text(encoding="utf-8")
        block = f"{BEGIN}\n{table(found)}\n{END}"
        PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: block, page, flags=re.DOTALL), encoding="utf-8")
    if any(one.state == "wrong" for one in found.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
