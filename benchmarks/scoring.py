"""What scoring costs beside the log-softmax that any likelihood method needs, and that prefix sets are linear.

    python benchmarks/scoring.py

A made-up vocabulary of 152,064 tokens, random logits, random answers; nothing is downloaded. Each pair of figures
comes from the same run, the two sides measured in turn, and the least time of each is taken.
"""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread for both sides; set it to measure with more

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

import semtoken as st
from semtoken.choices import Preset
from semtoken.clustering.function_words import english_stopwords
from semtoken.clustering.vocabulary import Vocabulary, neutral_mask, normalize
from semtoken.core import GrowingAnswer, scorer_for
from semtoken.core.prefixes import PrefixIndex
from semtoken.core.rows import normalized_rows
from semtoken.core.rules import ScoringRules
from semtoken.support.arrays import log_normalizers

console = Console()


def made_up_vocabulary(size: int) -> Vocabulary:
    """An end token, white space, stopwords as byte-level tokenizers spell them, pieces of characters, random words."""
    random = np.random.default_rng(0)
    letters = random.integers(ord("a"), ord("z") + 1, (3 * size, 8)).astype("u1")
    lengths = random.integers(1, 9, 3 * size)
    forms = [form for word in sorted(english_stopwords()) for form in (word, word.title())]
    words = [blank + form.encode() for form in forms for blank in (b"", b" ")]
    pieces = dict.fromkeys([b"", b"\n", b"\n\n", *(b" " * k for k in range(1, 64)), *words])
    pieces |= dict.fromkeys(bytes([byte]) for byte in range(128, 256))
    for k, (row, length) in enumerate(zip(letters, lengths, strict=True)):
        pieces[b" " * (k % 2) + bytes(row[:length])] = None
        if len(pieces) == size:
            break
    texts = tuple(piece.decode("utf-8", "replace") for piece in pieces)
    return Vocabulary(texts, tuple(pieces), neutral_mask(texts, english_stopwords()), np.zeros(size, dtype=bool))


def least_times(sides: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Least seconds of processor time of each side, taken in turn after one run that does not count."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(repeats + 1):
        for name, side in sides.items():
            start = time.process_time()
            side()
            if repeat:
                times[name].append(time.process_time() - start)
    return {name: min(taken) for name, taken in times.items()}


def numpy_log_softmax(rows: np.ndarray[Any, np.dtype[np.float32]]) -> None:
    """Row by row, as a decoding loop would."""
    for row in rows:
        shifted = row - row.max()
        shifted -= np.log(np.exp(shifted).sum())


def torch_log_softmax(rows: torch.Tensor) -> None:
    """Row by row, in float32."""
    for row in rows:
        torch.log_softmax(row, -1, dtype=torch.float32)


def needed_by(preset: Preset, clusters: st.TokenClusters) -> st.TokenClusters | st.Vocabulary:
    """What a preset reads: clusters, or their vocabulary alone."""
    return clusters if preset == "paper" else clusters.vocabulary


def time_table(clusters: st.TokenClusters, steps: int, repeats: int) -> Table:
    """Microseconds a step of the log-softmax and of all that scoring does, its own normalizers included."""
    random = np.random.default_rng(1)
    size = clusters.vocabulary.size
    rows = random.standard_normal((steps, size), dtype=np.float32)
    tensor = torch.from_numpy(rows)
    forms: dict[str, tuple[Callable[[Any], None], Any]] = {
        "numpy float32": (numpy_log_softmax, rows),
        "torch float32": (torch_log_softmax, tensor),
        "torch bfloat16": (torch_log_softmax, tensor.bfloat16()),
    }

    def score(logits: Any, preset: Preset) -> None:
        ids = random.integers(0, size, steps).tolist()  # other ones in each run: what is kept of tokens helps little
        st.score_logits(logits, ids, needed_by(preset, clusters), preset=preset)

    table = Table(title=f"µs a step, V = {size:,}, {steps} steps, {torch.get_num_threads()} thread(s)")
    for heading in ("logits", "log-softmax", "normalizers", "default", "paper", "default / softmax", "paper / softmax"):
        table.add_column(heading, justify="left" if heading == "logits" else "right")
    for name, (log_softmax, logits) in forms.items():
        sides: dict[str, Callable[[], Any]] = {
            "softmax": partial(log_softmax, logits),
            "normalizers": partial(log_normalizers, logits, size),
            "default": partial(score, logits, "default"),
            "paper": partial(score, logits, "paper"),
        }
        taken = {side: seconds / steps * 1e6 for side, seconds in least_times(sides, repeats).items()}
        ratios = (taken[preset] / taken["softmax"] for preset in ("default", "paper"))
        table.add_row(name, *(f"{value:.0f}" for value in taken.values()), *(f"{ratio:.2f}" for ratio in ratios))
    return table


def two_threads(size: int, rows: int, repeats: int) -> float:
    """Wall time of reading rows of logits with two threads, in that with one; the sides in turn, least time of each."""
    logits = np.random.default_rng(6).standard_normal((rows, size), dtype=np.float32)
    before, times = os.environ["OMP_NUM_THREADS"], {"2": np.inf, "1": np.inf}
    for repeat in range(repeats + 1):
        for threads in times:
            os.environ["OMP_NUM_THREADS"] = threads  # read at every call
            start = time.perf_counter()
            normalized_rows(logits, size)
            if repeat:
                times[threads] = min(times[threads], time.perf_counter() - start)
    os.environ["OMP_NUM_THREADS"] = before
    return float(times["2"] / times["1"])


def record(clusters: st.TokenClusters, preset: Preset, rows: torch.Tensor, ids: torch.Tensor) -> None:
    """Feed a recorder with a generation whose steps all have the same logits [B, V]; its tokens are `ids` [B, n]."""
    recorder = st.Recorder(needed_by(preset, clusters), preset)
    for step in range(ids.shape[1]):
        recorder(ids[:, : step + 1], rows)


def recorder_table(clusters: st.TokenClusters, repeats: int) -> Table:
    """Microseconds a sequence and step of `Recorder`, the copy of the rows that it keeps included."""
    random = np.random.default_rng(5)
    size = clusters.vocabulary.size
    table = Table(title=f"Recorder, µs a sequence and step, V = {size:,}")
    for heading in ("batch", "log-softmax", "default", "paper", "default / softmax", "paper / softmax"):
        table.add_column(heading, justify="right")
    for batch, steps in ((1, 24), (8, 6), (64, 2)):
        rows = torch.from_numpy(random.standard_normal((batch, size), dtype=np.float32))
        ids = torch.from_numpy(random.integers(0, size, (batch, steps + 1)))  # the first is the prompt

        def softmax(rows: torch.Tensor = rows, steps: int = steps) -> None:
            for _ in range(steps):
                torch_log_softmax(rows)

        sides: dict[str, Callable[[], Any]] = {
            "softmax": softmax,
            "default": partial(record, clusters, "default", rows, ids),
            "paper": partial(record, clusters, "paper", rows, ids),
        }
        taken = {side: seconds / steps / batch * 1e6 for side, seconds in least_times(sides, repeats).items()}
        ratios = (taken[preset] / taken["softmax"] for preset in ("default", "paper"))
        table.add_row(str(batch), *(f"{value:.0f}" for value in taken.values()), *(f"{ratio:.2f}" for ratio in ratios))
    return table


def bytes_a_step(clusters: st.TokenClusters, steps: int) -> float:
    """Memory that an answer in progress holds, divided by its steps."""
    random = np.random.default_rng(2)
    size = clusters.vocabulary.size
    row = random.standard_normal((1, size), dtype=np.float32)
    scorer = scorer_for(clusters.vocabulary, ScoringRules())
    ids = random.integers(0, size, steps).tolist()
    tracemalloc.start()
    answer = GrowingAnswer(scorer)
    for token in ids:
        answer.add_row(row, 0, token)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / steps


def decoded_heads(vocabulary: Vocabulary, ids: list[int]) -> list[str]:
    """What the prefix sets are looked up with when every suffix is decoded whole."""
    return [normalize(vocabulary.decode(ids[step:])) for step in range(len(ids))]


def prefix_table(vocabulary: Vocabulary, lengths: list[int], repeats: int) -> Table:
    """Milliseconds for all prefix sets of one answer, and for decoding alone of every suffix."""
    index = PrefixIndex(vocabulary)
    random = np.random.default_rng(3)
    table = Table(title="prefix sets of one answer, ms")
    for heading in ("tokens", "prefix_sets", "every suffix decoded whole", "ratio"):
        table.add_column(heading, justify="right")
    for length in lengths:
        ids = random.integers(0, vocabulary.size, length).tolist()
        taken = least_times(
            {"linear": partial(index.prefix_sets, ids), "whole": partial(decoded_heads, vocabulary, ids)},
            repeats,
        )
        ratio = taken["whole"] / taken["linear"]
        table.add_row(f"{length:,}", f"{taken['linear'] * 1e3:.1f}", f"{taken['whole'] * 1e3:.1f}", f"{ratio:.1f}")
    return table


def main(
    size: Annotated[int, typer.Option(help="Tokens of the vocabulary.")] = 152_064,
    n_clusters: Annotated[int, typer.Option(help="Clusters, filled at random.")] = 16_000,
    steps: Annotated[int, typer.Option(help="Tokens of the answer.")] = 64,
    repeats: Annotated[int, typer.Option(help="Runs of each side; the least time counts.")] = 7,
) -> None:
    """Measure scoring against the log-softmax, its memory, and prefix sets against decoding every suffix."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    vocabulary = made_up_vocabulary(size)
    labels = np.random.default_rng(4).integers(0, n_clusters, size).astype(np.int32)
    clusters = st.TokenClusters(labels, vocabulary)
    console.print(f"{vocabulary.neutral.sum():,} neutral tokens of {size:,}")
    console.print(time_table(clusters, steps, repeats))
    console.print(recorder_table(clusters, repeats))
    held = bytes_a_step(clusters, 4 * steps)
    console.print(f"held by an answer in progress: {held:,.0f} bytes a step; a row in float32 has {4 * size:,}")
    console.print(prefix_table(vocabulary, [50, 100, 200, 400, 800], repeats=3))


if __name__ == "__main__":
    typer.run(main)
