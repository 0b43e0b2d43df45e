"""Score the answers with one library, each in an environment of its own.

    python research/experiments/beside/libraries.py LIBRARY replies.jsonl scores.csv

LIBRARY is semtoken, uqlm, artefactual, lm_polygraph or truthtorchlm. One line an answer: its id, whether it is right,
and one column a method. All scores are turned so that more means more doubtful.

`pip install --no-deps` of each library is enough: of the large ones only the modules that hold the scorers are
imported, since they need nothing but NumPy and PyTorch, while the packages as a whole import gigabytes.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

Lines = list[dict[str, Any]]
Columns = dict[str, list[float]]


def without_init(*packages: str) -> None:
    """Make packages importable without running their `__init__`."""
    for name in packages:
        parent, _, own = name.rpartition(".")
        if parent:
            folders = [str(Path(folder) / own) for folder in sys.modules[parent].__path__]
        else:
            found = find_spec(name)
            folders = list(found.submodule_search_locations or []) if found else []
        package = ModuleType(name)
        package.__path__ = folders
        sys.modules[name] = package


def contents(lines: Lines) -> list[list[dict[str, Any]]]:
    """The list of tokens of each reply."""
    return [line["reply"]["choices"][0]["logprobs"]["content"] for line in lines]


def semtoken(lines: Lines) -> Columns:
    """From the lists alone, without a tokenizer; of an interval, the end that the calibrator takes."""
    import semtoken as st

    found: Columns = {"default": [], "probability": [], "headline": [], "weakest phrase": []}
    for line in lines:
        [answer] = st.score_reply(line["reply"])
        found["default"].append(-answer.log_confidence)
        found["probability"].append(-answer.log_probability)
        found["headline"].append(1 - answer.confidence)
        phrases = [part.confidence for part in answer.parts("phrase") if part.confidence is not None]
        found["weakest phrase"].append(1 - min(phrases, default=1 - answer.sequence_uncertainty))
    return found


def uqlm(lines: Lines) -> Columns:
    """Its scorers of one generation."""
    without_init("uqlm", "uqlm.white_box")
    from uqlm.white_box.single_logprobs import SingleLogprobsScorer
    from uqlm.white_box.top_logprobs import TopLogprobsScorer

    given = contents(lines)
    found = SingleLogprobsScorer().evaluate(given)
    whole = SingleLogprobsScorer(length_normalize=False).evaluate(given)
    found["sequence_probability, whole"] = whole["sequence_probability"]
    found |= TopLogprobsScorer(top_k_logprobs=len(given[0][0]["top_logprobs"])).evaluate(given)
    return {name: (-np.array(values)).tolist() for name, values in found.items()}


def artefactual(lines: Lines) -> Columns:
    """EPR. WEPR needs weights that were trained for the answering model."""
    from artefactual.scoring import EntropyTransformer

    transformer = EntropyTransformer("epr")
    rows = [[[top["logprob"] for top in one["top_logprobs"]][:15] for one in content] for content in contents(lines)]
    return {"EPR": [float(transformer.transform(np.array(row)[None])[0, 0]) for row in rows]}


def lm_polygraph(lines: Lines) -> Columns:
    """Its estimators of one generation that need neither attention nor hidden states."""
    without_init("lm_polygraph", "lm_polygraph.estimators", "lm_polygraph.utils")
    from lm_polygraph.estimators.max_probability import MaximumSequenceProbability
    from lm_polygraph.estimators.perplexity import Perplexity
    from lm_polygraph.estimators.token_entropy import MeanTokenEntropy

    stats = {
        "greedy_log_likelihoods": [[one["logprob"] for one in content] for content in contents(lines)],
        "entropy": [line["entropies"] for line in lines],
    }
    return {str(one): one(stats).tolist() for one in (MaximumSequenceProbability(), Perplexity(), MeanTokenEntropy())}


def truthtorchlm(lines: Lines) -> Columns:
    """Its two scoring functions, which its truth method `Confidence` returns as they are."""
    without_init("TruthTorchLM")
    from TruthTorchLM.scoring_methods import LengthNormalizedScoring, LogProbScoring

    given = [[one["logprob"] for one in content] for content in contents(lines)]
    functions = (LengthNormalizedScoring(), LogProbScoring())
    return {f"Confidence, {type(one).__name__}": [-float(one(logs)) for logs in given] for one in functions}


LIBRARIES: dict[str, tuple[str, Callable[[Lines], Columns]]] = {
    "semtoken": ("semtoken", semtoken),
    "uqlm": ("uqlm", uqlm),
    "artefactual": ("artefactual", artefactual),
    "lm_polygraph": ("lm-polygraph", lm_polygraph),
    "truthtorchlm": ("TruthTorchLM", truthtorchlm),
}


def main(library: str, replies: str, scores: str) -> None:
    """The command."""
    package, score = LIBRARIES[library]
    lines = [json.loads(line) for line in Path(replies).read_text("utf-8").splitlines()]
    said = package if library == "semtoken" else f"{package} {version(package)}"
    columns = {f"{said}: {name}": values for name, values in score(lines).items()}
    with Path(scores).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "right", *columns])
        for place, line in enumerate(lines):
            writer.writerow([line["id"], int(line["right"]), *(f"{values[place]:.9g}" for values in columns.values())])


if __name__ == "__main__":
    main(*sys.argv[1:])
