"""What scoring may cost, and what it costs: one table of ratios with the budget of each beside it.

    make bench                                     # prints the table and writes build/bench/budgets.json
    python benchmarks/budgets.py --out FILE        # the same, into another file

Every ratio is of processor times in the same run on one thread, the sides in turn, least time of each. The scripts
beside this one measure the same and more: scoring.py, generation.py, engines.py, proxy.py, serve.py. vLLM is measured
where `make test-engines` has installed it.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from string import ascii_lowercase
from typing import Annotated, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

import semtoken as st
from clustering import decision_cost, synthetic
from generation import cost, made_up_model, made_up_tokenizer, random_model
from kept_results import HEAD, kept_figures, kept_table
from proxy import BUDGET, costs_beyond_bare, payload_costs
from scoring import least_times, made_up_vocabulary, torch_log_softmax, two_threads
from semtoken.replies.checking import rank_replies
from semtoken.support.checkpoints.sources import fetched_path

console = Console()
OUT = Path(__file__).parents[1] / "build" / "bench" / "budgets.json"


@dataclass(frozen=True)
class Measured:
    """One line of the table."""

    what: str
    beside: str
    ratio: float
    budget: float | None
    """None for what is printed to compare with."""

    @property
    def kept(self) -> bool | None:
        """Whether the budget is kept, if there is one."""
        return None if self.budget is None else self.ratio <= self.budget

    def cells(self) -> list[str]:
        """A line of the table: what, beside what, the ratio and its budget."""
        return [self.what, self.beside, f"{self.ratio:.3f}", "" if self.budget is None else f"{self.budget:.3f}"]


def ratio(cost: Callable[[], Any], beside: Callable[[], Any], repeats: int) -> float:
    """Processor time of one side in times that of the other."""
    taken = least_times({"cost": cost, "beside": beside}, repeats)
    return taken["cost"] / taken["beside"]


def score_logits(clusters: st.TokenClusters, repeats: int, steps: int = 64) -> Iterator[Measured]:
    """Answers whose tokens are other ones in every run, by random logits and by peaked ones, as models have."""
    random, size = np.random.default_rng(1), clusters.vocabulary.size
    plain = random.standard_normal((steps, size), dtype=np.float32)
    peaked = plain.copy()
    for row in peaked:
        row[random.integers(0, size, 6)] = 12 + random.random(6)
    for name, rows, dtype, budget in (
        ("float32", plain, torch.float32, 1.0),
        ("float32, likely rivals", peaked, torch.float32, 1.0),
        ("bfloat16", plain, torch.bfloat16, 1.0),
    ):
        logits = torch.from_numpy(rows).to(dtype)

        def score(logits: torch.Tensor = logits) -> None:
            st.score_logits(logits, random.integers(0, size, steps).tolist(), clusters.vocabulary)

        found = ratio(score, partial(torch_log_softmax, logits), repeats)
        yield Measured(f"score_logits, {name}", "log-softmax of the same rows", found, budget)


def recorder(clusters: st.TokenClusters, repeats: int) -> Iterator[Measured]:
    """Generations of one and of many answers, their results included, and with the entropy of every step."""
    random, size = np.random.default_rng(5), clusters.vocabulary.size
    for batch, steps, budget in ((1, 48, 1.2), (64, 12, 1.3)):
        rows = torch.from_numpy(random.standard_normal((batch, size), dtype=np.float32))

        def record(results: bool, methods: Sequence[str] = (), batch: int = batch, steps: int = steps, rows=rows):  # type: ignore[no-untyped-def]
            ids = torch.from_numpy(random.integers(0, size, (batch, steps + 1)))  # the first is the prompt
            found = st.Recorder(clusters.vocabulary, methods=methods)
            for step in range(steps):
                found(ids[:, : step + 1], rows)
            if results:
                found.answers(ids)

        def softmax(steps: int = steps, rows: torch.Tensor = rows) -> None:
            for _ in range(steps):
                torch_log_softmax(rows)

        for name, most, side in (
            ("", budget, partial(record, False)),
            (" and results", budget, partial(record, True)),
            (" with mean_token_entropy", 1.1, partial(record, False, ["mean_token_entropy"])),
        ):
            what = f"Recorder, batch of {batch}{name}"
            yield Measured(what, "log-softmax of the same rows", ratio(side, softmax, repeats), most)


def threads(size: int, repeats: int) -> Iterator[Measured]:
    """Rows of a batch shared among two threads; wall times here, so only on an idle machine."""
    for rows in (32, 64):
        yield Measured(
            f"reading {rows} rows, two threads, wall time", "one thread", two_threads(size, rows, repeats), None
        )


def held_to_avx2(repeats: int) -> Iterator[Measured]:
    """The same in a process that may use no instructions beyond AVX2, on a processor that has more."""
    if instructions() != "AVX512":
        return
    features = "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+popcnt,+sse4.1,+sse4.2,+ssse3"
    held = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": features, "ATEN_CPU_CAPABILITY": "avx2"}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        script = [sys.executable, __file__, "--rows-only", "--repeats", str(repeats), "--out", str(out)]
        subprocess.run(script, env=os.environ | held, stdout=subprocess.DEVNULL, check=True)
        kept = json.loads(out.read_text())
    assert kept["instructions"] == "AVX2", kept["instructions"]
    for line in kept["measured"]:
        yield Measured(line["what"] + ", held to AVX2", line["beside"], line["ratio"], line["budget"])


def instructions() -> str:
    """Which vector instructions torch uses here, such as `AVX512` or `AVX2`; the kernel uses all that there are."""
    return torch.backends.cpu.get_cpu_capability()


def replies(repeats: int) -> Iterator[Measured]:
    """Replies and streams with 20 log-probabilities a token: their processor time in times that which is allowed."""
    for name, spent in payload_costs(repeats).items():
        if "json" not in name:
            yield Measured(f"score_reply, {name}", f"{BUDGET} ms a token", spent / BUDGET, 1.0)


def saved_replies(repeats: int, count: int = 200) -> Iterator[Measured]:
    """Replies of 40 tokens with 20 alternatives, beside Python's JSON parser: 2,000 of them in 5 s where that takes
    2.0 s, and `score_reply` in three times the parser's time.
    """
    random = np.random.default_rng(0)
    names = ["".join(random.choice(list(ascii_lowercase), size)) for size in random.integers(2, 9, 5_000)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "replies.jsonl"
        lines = [json.dumps(made_up_reply(random, names)) for _ in range(count)]
        path.write_text("".join(f"{line}\n" for line in lines))
        sides = {
            "check": lambda: rank_replies([str(path)], keep_tokens=False),
            "score_reply": lambda: [st.score_reply(line) and None for line in lines],
            "parser": lambda: [json.loads(line) and None for line in lines],
        }
        taken = least_times(sides, max(repeats // 2, 2))
    for name, budget in (("check", 2.5), ("score_reply", 3.0)):
        what = f"{name}, a reply of 40 tokens with 20 alternatives ({1000 * taken[name] / count:.1f} ms)"
        yield Measured(what, "json.loads of the reply", taken[name] / taken["parser"], budget)


def made_up_reply(random: np.random.Generator, names: Sequence[str]) -> dict[str, Any]:
    """A chat completion of random words, each step with 20 tokens that have nearly all the probability."""
    items = []
    for step in range(40):
        tokens = [("" if step == 0 else " ") + names[i] for i in random.choice(len(names), 20, replace=False)]
        logs = np.log(0.98 * np.sort(random.dirichlet(np.full(20, 0.2)) + 1e-6)[::-1])
        best = [
            {"token": t, "logprob": x, "bytes": list(t.encode())} for t, x in zip(tokens, logs.tolist(), strict=True)
        ]
        items.append(best[int(random.random() < 0.1)] | {"top_logprobs": best})
    message = {"role": "assistant", "content": "".join(item["token"] for item in items)}
    choice = {"index": 0, "message": message, "logprobs": {"content": items}, "finish_reason": "stop"}
    return {"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]}


def proxy() -> Iterator[Measured]:
    """Streams of 50 clients through the proxy, whose processor time is compared with that of a bare one."""
    found = costs_beyond_bare()
    for name in ("scored", "scored, values so far"):
        yield Measured(f"proxy, {name}, beyond a bare proxy", f"{BUDGET} ms a token", found[name] / BUDGET, 1.0)


def vllm(short: bool) -> Iterator[Measured]:
    """Time vLLM with random weights, small and of 0.5B parameters, with scores and without; if it is installed."""
    python = Path(__file__).parent.parent / ".venv-engines" / "bin" / "python"
    if not python.exists():
        console.print("vLLM is not measured: make test-engines installs it.")
        return
    for layers, width, fewer in ((2, 256, 0.1), (24, 896, 0.05)):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "seconds.json"
            options = f"--vocabulary 151936 --layers {layers} --width {width} --rounds {2 if short else 5} --no-whole"
            script = [str(python), str(Path(__file__).with_name("engines.py")), *options.split(), "--out", str(out)]
            if subprocess.run(script, stdout=subprocess.DEVNULL).returncode:
                console.print("vLLM could not be measured; its message stands above.")
                return
            seconds = json.loads(out.read_text())
        for way, budget in (("logits processor", 1 / (1 - fewer)), ("20 best", None)):
            found = seconds[way] / seconds["vLLM alone"]
            yield Measured(f"a token of vLLM, {layers} layers of width {width}, {way}", "vLLM alone", found, budget)


def generation(short: bool) -> Iterator[Measured]:
    """Whole generations of a model of 0.5B parameters on two threads: the time in semtoken beside the rest.

    `benchmarks/generation.py` also prints the ratio of generations with and without scores, which takes many pairs.
    """
    torch.set_num_threads(2)
    tokenizer = made_up_tokenizer(151_936)
    model, clusters = made_up_model(tokenizer, 896, 24, "float32")
    for batch, budget in ((1, 1.005), (32, 1.02)):
        found = cost(model, clusters, batch, tokens=4 if short else 8, pairs=1 if short else 3)
        yield Measured(f"generation, batch of {batch}", "the same without scores", 1 + found.share, budget)
    torch.set_num_threads(1)
    for name, limit in (("mean_token_entropy", 1.05), ("epr", None), ("self_certainty", None)):
        yield one_pass(name, limit, model, tokenizer, 2 if short else 5, "batch of 8")
    yield from entropy_of_wide_rows(tokenizer, 2 if short else 5)


def entropy_of_wide_rows(tokenizer: Any, repeats: int) -> Iterator[Measured]:
    """The entropy on rows as a model of 1.5B parameters has them, with one of its 28 layers; all would make it less."""
    for dtype in ("float32", "bfloat16"):
        model = random_model(tokenizer, 151_936, 1536, 1).to(getattr(torch, dtype))
        yield one_pass("mean_token_entropy", 1.05, model, tokenizer, repeats, f"width 1,536, one layer, {dtype}")


def one_pass(name: str, budget: float | None, model: Any, tokenizer: Any, repeats: int, shape: str) -> Measured:
    """The same answers with scores alone, and with what a method of one pass reads besides."""
    random = np.random.default_rng(0)
    prompts = ["".join(random.choice(list(ascii_lowercase), 32)) for _ in range(8)]  # a token a letter: no merges
    plain, more = st.ScoredModel(model, tokenizer), st.ScoredModel(model, tokenizer, methods=[name])
    found = ratio(lambda: more.generate(prompts, 4), lambda: plain.generate(prompts, 4), repeats)
    return Measured(f"generation with {name}, {shape}", "the same with scores alone", found, budget)


def decisions(rows: int) -> Iterator[Measured]:
    """Clustering with decisions in float64, on a made-up table of 576 columns."""
    _, whole, exact = decision_cost(synthetic(rows, 576, "medium"), [rows // 3])
    what = f"clustering of {rows:,} rows, decisions in float64"
    yield Measured(what, "the same without", whole / (whole - exact), 1.10)


def serve(short: bool) -> Iterator[Measured]:
    """Fifty clients of a server against one; wall times here, as waiting is what counts, and three rounds."""
    from serve import compared

    one, many = compared(rounds=1) if short else compared()
    yield Measured("a token of semtoken serve, 50 clients", "one client", one.rate / many.rate, 1 / 8)


def stall(short: bool) -> Iterator[Measured]:
    """The worst wait for a token of running streams while a long prompt is read, in medians of their waits before."""
    from serve import server, stalls

    if short or fetched_path("smollm2") is None:
        console.print(
            "The wait beside a long prompt is not measured: it takes a whole run, and semtoken fetch smollm2."
        )
        return
    with server("smollm2") as (url, _):
        stalls(url, 250, 2)  # warms up
        waits = sorted(stalls(url, 250))
    what = "worst wait for a token of serve, SmolLM2, while a prompt of 250 words is read"
    yield Measured(what, "the median wait before", waits[len(waits) // 2], 3.0)


def show(found: list[Measured], title: str) -> Table:
    """The table."""
    table = Table("what", "beside", "ratio", "budget", "kept", title=title)
    for one in found:
        table.add_row(*one.cells(), {True: "yes", False: "no", None: ""}[one.kept])
    return table


def main(
    size: Annotated[int, typer.Option(help="Tokens of the vocabulary.")] = 152_064,
    repeats: Annotated[int, typer.Option(help="Runs of each side; the least time counts.")] = 7,
    rows_only: Annotated[bool, typer.Option("--rows-only", help="Only what reads rows of logits.")] = False,
    short: Annotated[bool, typer.Option("--short", help="Fewer runs, for a look at each change.")] = False,
    out: Annotated[Path, typer.Option(help="Where the figures are kept; a table beside it, as .md.")] = OUT,
) -> None:
    """Measure what has a budget, print it, and keep it."""
    if out.suffix != ".json":
        raise typer.BadParameter(f"{out} must end in .json; the table goes beside it.", param_hint="--out")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    repeats = min(repeats, 3) if short else repeats
    labels = np.random.default_rng(4).integers(0, 16_000, size).astype(np.int32)
    clusters = st.TokenClusters(labels, made_up_vocabulary(size))
    parts = {"score_logits": score_logits(clusters, repeats), "recorder": recorder(clusters, repeats)}
    if not rows_only:
        parts |= {
            "threads": threads(size, repeats),
            "held to AVX2": held_to_avx2(repeats),
            "replies": replies(repeats),
            "saved replies": saved_replies(repeats),
            "serve": serve(short),
            "long prompt": stall(short),
            "proxy": proxy(),
            "vLLM": vllm(short),
            "generation": generation(short),
            "clustering": decisions(10_000 if short else 20_000),
        }
    found: list[Measured] = []
    for name, measured in parts.items():
        begun = time.perf_counter()
        found += measured
        console.print(f"{name}: {time.perf_counter() - begun:.0f} s")
    load = os.getloadavg()[0]
    title = f"V = {size:,}, one thread (generation: two), {platform.machine()} with {instructions()}, load {load:.1f}"
    console.print(show(found, title))
    console.print(kept_table())
    lines = [asdict(one) | {"kept": one.kept} for one in found]
    out.parent.mkdir(parents=True, exist_ok=True)
    kept = {"vocabulary": size, "repeats": repeats, "instructions": instructions(), "load": load, "measured": lines}
    out.write_text(json.dumps(kept, indent=2) + "\n")
    rows = [f"| {' | '.join(one.cells())} |" for one in found]
    head = [
        f"{datetime.now(UTC):%Y-%m-%d}, {title}",
        "",
        "| what | beside | ratio | budget |",
        "|---|---|---|---|",
    ]
    lines_of_kept = [f"| {' | '.join(one.cells())} |" for one in kept_figures()]
    below = [
        "",
        "From runs that take longer, kept:",
        "",
        f"| {' | '.join(HEAD)} |",
        "|---|---|---|---|",
        *lines_of_kept,
    ]
    out.with_suffix(".md").write_text("\n".join([*head, *rows, *below]) + "\n")


if __name__ == "__main__":
    typer.run(main)
