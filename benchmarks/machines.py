"""`score`, `check`, `decide` and `bench run` with 1, 2 and 4 Ray workers on one file, and with a worker killed.

    python benchmarks/machines.py                    # all four, some minutes; writes build/bench/machines.json and .md
    python benchmarks/machines.py --only check       # one of them; figures of the others stay
    python benchmarks/machines.py --only check --workers 1 --workers 2 --lines 512 --out FILE

The embedded model answers; nothing is downloaded. Ray listens on every network interface, so this program starts again
in a network namespace that has loopback alone, for which it needs `unshare` and `ip`. Every run is the command as
people type it, with one thread; the works that it hands to Ray are timed where they are done. "Model" is the time in
the model's own code, of `check` the time in `score_reply`. "Start" is what passes until the first shard is begun:
Ray's cluster is there already, its workers import torch and load the model. The load of the machine when a run ended is
kept with its figures.

In the last run of each command a worker is killed (SIGKILL) in the middle of its work. No line may be lost or doubled.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

console = Console()
OUT = Path(__file__).parents[1] / "build" / "bench" / "machines.json"
COMMANDS = ("score", "check", "decide", "bench")
CHECKED_TOKENS = 40
"""Tokens of a reply that is checked, each with 20 log-probabilities."""


class Clock:
    """Sums up the time in the model, or in what stands for it, in this process."""

    seconds = 0.0
    depth = 0

    @classmethod
    def timed(cls, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed; calls within calls count once."""

        def call(*arguments: Any, **options: Any) -> Any:
            begun, cls.depth = time.perf_counter(), cls.depth + 1
            try:
                return function(*arguments, **options)
            finally:
                cls.depth -= 1
                if not cls.depth:
                    cls.seconds += time.perf_counter() - begun

        return call

    @classmethod
    def install(cls, command: str) -> None:
        """Begin to time this process."""
        if command == "check":
            from semtoken.replies.checking import answers

            answers.score_reply = cls.timed(answers.score_reply)  # type: ignore[attr-defined]
            return
        from torch.nn import Module
        from transformers import PreTrainedModel

        PreTrainedModel.__call__ = cls.timed(Module.__call__)


@dataclass(frozen=True)
class TimedWork:
    """A work (`semtoken.support.executors.Work`) that notes how long its shards took; other processes open it."""

    work: Any
    notes: Path
    command: str

    def resolved(self) -> TimedWork:
        """The work with absolute paths."""
        return TimedWork(self.work.resolved(), self.notes.resolve(), self.command)

    def loader(self) -> Any:
        """The object that loads its models."""
        return self.work.loader()

    def open(self, loader: Any, answered: Callable[[int], None] = lambda count: None) -> Callable[[int], None]:
        """Get ready; returns the function that makes a shard and notes its times."""
        import importlib

        clock = importlib.import_module("machines").Clock
        if not getattr(clock, "installed", False):
            clock.install(self.command)
            clock.installed = True
        make = self.work.open(loader, answered)

        def noted(shard: int) -> None:
            begun, model, cpu = time.time(), clock.seconds, time.process_time()
            make(shard)
            note = {"pid": os.getpid(), "shard": shard, "begun": begun, "ended": time.time()}
            note |= {"model": clock.seconds - model, "cpu": time.process_time() - cpu}
            with (self.notes / f"{os.getpid()}.jsonl").open("a") as file:
                file.write(json.dumps(note) + "\n")

        return noted


@dataclass(frozen=True)
class Run:
    """The time and the workers that one run of a command took."""

    command: str
    workers: int
    """Ray's; 0 is the command without --executor."""
    lines: int
    seconds: float
    """The seconds of the command, Ray's cluster being there."""
    start: float
    """The part of these until the first shard was begun."""
    model: float
    """Share of the workers' time after that which was spent in the model."""
    rest_of_shard: float
    """Share that was spent on the rest of the shards: reading lines, scores, writing."""
    waiting: float
    """Share that was spent on no shard: other workers' models are loaded, shards are handed out, the last ones end."""
    cpu_ms: float
    """Processor time of a line, by whoever made the shards, in ms."""
    killed: bool = False
    """A worker was killed in the middle."""
    same: bool = True
    """Every line is there once and says what the run without Ray says."""
    day: str = ""
    load: float = 0.0
    """Load of the machine when it ended, over one minute."""


def notes_of(folder: Path) -> list[dict[str, Any]]:
    """All that workers noted."""
    return [json.loads(line) for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]


@contextmanager
def killing(notes: Path, *, wanted: bool) -> Iterator[list[int]]:
    """Kill the first worker that has made a shard, while it makes another one; the list holds it then."""
    killed: list[int] = []
    over = threading.Event()

    def wait() -> None:
        while not over.wait(0.02):
            if found := notes_of(notes):
                time.sleep(0.1)
                os.kill(found[0]["pid"], signal.SIGKILL)
                killed.append(found[0]["pid"])
                return

    thread = threading.Thread(target=wait, daemon=True)
    if wanted:
        thread.start()
    yield killed
    over.set()


def run(command: str, words: Sequence[str], lines: int, workers: int, *, kill: bool = False) -> Run:
    """Run one command in this process and time it."""
    from semtoken.cli.app import launch
    from semtoken.support.executors.ray import RayExecutor

    clock = sys.modules["machines"].Clock
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder)
        inner = RayExecutor.run

        def timed(self: RayExecutor, work: Any, shards: Sequence[int], *rest: Any) -> None:
            inner(self, TimedWork(work, notes, command), shards, *rest)

        RayExecutor.run = timed  # type: ignore[method-assign, assignment]
        ray = ["--executor.kind=ray", f"--executor.workers={workers}"] if workers else []
        begun, model, cpu = time.time(), clock.seconds, time.process_time()
        try:
            with killing(notes, wanted=kill) as killed:
                launch([*words, *ray])
        finally:
            RayExecutor.run = inner  # type: ignore[method-assign]
        ended = time.time()
        found = notes_of(notes)
    seconds = ended - begun
    if not workers:
        share, spent = (clock.seconds - model) / seconds, time.process_time() - cpu
        return Run(command, 0, lines, seconds, 0.0, share, 1 - share, 0.0, 1000 * spent / lines)
    first = min(note["begun"] for note in found)
    whole = workers * (ended - first)
    model, made = (sum(one) for one in zip(*((n["model"], n["ended"] - n["begun"]) for n in found), strict=True))
    spent = sum(note["cpu"] for note in found)
    shares = (model / whole, (made - model) / whole, 1 - made / whole)
    return Run(command, workers, lines, seconds, first - begun, *shares, 1000 * spent / lines, bool(killed))


def input_of(command: str, folder: Path, lines: int) -> tuple[int, Callable[[Path], list[str]]]:
    """Write the input of a command: how many lines it has, and the command's words for an output."""
    from semtoken.support.almanac import load_questions

    questions = [one.question for one in load_questions("test")]
    source = folder / f"{command}.jsonl"

    def write(records: Sequence[dict[str, Any]]) -> None:
        source.write_text("".join(json.dumps(one) + "\n" for one in records), "utf-8")

    if command == "score":
        write([{"id": i, "question": questions[i % len(questions)]} for i in range(lines)])
        return lines, lambda out: ["score", str(source), "-o", f"{out}.jsonl"]
    if command == "check":
        reply = recorded_reply(CHECKED_TOKENS)
        write([{"id": str(i), "response": reply} for i in range(lines)])
        return lines, lambda out: ["check", str(source), "-o", f"{out}.jsonl", "--limit", "1"]
    if command == "decide":
        write([{"id": i, "state": f"Parcel {i} is {i % 9} days late."} for i in range(lines)])
        asked = folder / "questions.json"
        asked.write_text('{"late": {"type": "noul", "instructions": "Is the parcel late?"}}')
        return lines, lambda out: ["decide", str(asked), str(source), "-o", f"{out}.jsonl"]
    most, settings = lines // 8, folder / "bench.yaml"
    plan = {"models": ["almanac"], "datasets": ["almanac"], "limit": most, "shard_size": max(1, most // 8)}
    settings.write_text(json.dumps(plan | {"methods": ["stc", "perplexity"], "judges": ["exact"]}))  # JSON is YAML
    return most, lambda out: ["bench", "run", str(settings), "--output", str(out)]


def recorded_reply(tokens: int) -> dict[str, Any]:
    """A reply in OpenAI's shape with 20 log-probabilities a token, as the benchmark of the proxy makes them."""
    from proxy import prepared_chunks

    chunks = [json.loads(chunk.removeprefix(b"data: ")) for _, chunk in prepared_chunks(tokens)]
    choices = [chunk["choices"][0] for chunk in chunks]
    items = [item for choice in choices for item in (choice["logprobs"] or {"content": []})["content"]]
    message = {"role": "assistant", "content": "".join(choice["delta"].get("content", "") for choice in choices)}
    choice = {"index": 0, "message": message, "logprobs": {"content": items}, "finish_reason": "stop"}
    return {"object": "chat.completion", "model": "m", "choices": [choice]}


def lines_of(out: Path) -> list[Any]:
    """The lines that a run wrote, in the order of the file."""
    if (file := out.with_name(out.name + ".jsonl")).exists():
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    import pyarrow.parquet

    files = sorted(out.rglob("*.parquet"))
    return [(str(file.relative_to(out)), pyarrow.parquet.read_table(file).to_pylist()) for file in files]


def agree(one: Any, other: Any) -> bool:
    """Whether two outputs say the same; numbers may differ by rounding, since workers have other numbers of threads."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-4 * max(1.0, abs(one)) or one != one
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(agree(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(agree, one, other))
    return bool(one == other)


def alone() -> None:
    """Start this program again where nothing but loopback can be reached, unless it is there."""
    if [name for _, name in socket.if_nameindex()] == ["lo"]:
        return
    shell = 'ip link set lo up && exec "$@"'
    words = ["unshare", "--net", "--map-root-user", "sh", "-c", shell, "alone", sys.executable, *sys.argv]
    raise SystemExit(subprocess.run(words, check=False).returncode)


def main(
    lines: Annotated[int, typer.Option(help="Lines of each file; of `bench run` an eighth.")] = 2048,
    only: Annotated[list[str] | None, typer.Option(help="score, check, decide or bench. Repeatable.")] = None,
    workers: Annotated[list[int] | None, typer.Option(help="Ray workers. Repeatable; 1, 2 and 4 by default.")] = None,
    out: Annotated[Path, typer.Option(help="Where the figures are kept; a table beside it, as .md.")] = OUT,
) -> None:
    """Measure, print the table, and keep it."""
    alone()
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # also of workers, to which Ray would give as many as cores
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    commands = only or COMMANDS
    found: list[Run] = []
    from semtoken.support.executors.ray import RayExecutor

    begun = time.time()
    RayExecutor()._ready()
    console.print(f"Ray's cluster was there after {time.time() - begun:.1f} s")
    for command in commands:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            count, words = input_of(command, folder, lines)
            installed(command)
            for number in (0, *(workers or (1, 2, 4))):
                found.append(checked(run, command, words, count, number, folder))
            found.append(checked(partial(run, kill=True), command, words, count, 2, folder))
    keep(found, out)


def installed(command: str) -> None:
    """Time the model in this process, too, for the command without Ray."""
    import machines

    if command == "check" or not getattr(machines.Clock, "installed", False):
        machines.Clock.install(command)
        machines.Clock.installed = command != "check"  # type: ignore[attr-defined]


def checked(
    ran: Callable[..., Run], command: str, words: Callable[[Path], list[str]], count: int, workers: int, folder: Path
) -> Run:
    """One run, and whether its output is that of the run without Ray."""
    out = folder / f"out-{len(list(folder.iterdir()))}-{workers}"
    if not workers:
        out = folder / "here"
    one = ran(command, words(out), count, workers)
    here, there = lines_of(folder / "here"), lines_of(out)
    same = agree(here, there) and (command == "bench" or len(there) == count)
    console.print(f"{command}, {workers} workers: {one.seconds:.1f} s{'' if same else ', OTHER OUTPUT'}")
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    return Run(**asdict(one) | {"same": same, "day": day, "load": round(os.getloadavg()[0], 1)})


HEADINGS = (
    "command",
    "workers",
    "lines",
    "seconds",
    "start",
    "lines/s after it",
    "model",
    "rest",
    "waiting",
    "CPU ms a line",
    "same lines",
    "load",
)


def cells(one: Run) -> list[str]:
    """A row of the table."""
    who = "without Ray" if not one.workers else f"{one.workers}{', one killed' if one.killed else ''}"
    shares = [f"{100 * share:.0f} %" for share in (one.model, one.rest_of_shard, one.waiting)]
    rate = one.lines / (one.seconds - one.start)
    name = f"{one.command} run" if one.command in ("decide", "bench") else one.command
    times = [f"{one.lines:,}", f"{one.seconds:.1f}", f"{one.start:.1f}", f"{rate:.0f}"]
    return [
        name,
        who,
        *times,
        *shares,
        f"{one.cpu_ms:.2f}",
        "yes" if one.same else "NO",
        f"{one.load:.1f}",
    ]


def keep(found: list[Run], out: Path) -> None:
    """Print the table; write it and the figures, in place of former ones of the same commands."""
    rows = [f"| {' | '.join(cells(one))} |" for one in found]
    table = Table(*HEADINGS)
    for one in found:
        table.add_row(*cells(one))
    Console(width=140).print(table)
    now = {one.command for one in found}
    kept = json.loads(out.read_text())["runs"] if out.exists() else []
    runs = [one for one in kept if one["command"] not in now] + [asdict(one) for one in found]
    runs.sort(key=lambda one: COMMANDS.index(one["command"]))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(
        json.dumps({"cores": os.cpu_count(), "tokens of a reply": CHECKED_TOKENS, "runs": runs}, indent=2) + "\n"
    )
    days = ", ".join(sorted({one["day"] for one in runs}))
    head = [f"{days}, {os.cpu_count()} cores, one thread a worker", "", f"| {' | '.join(HEADINGS)} |"]
    head.append("|---|---|" + "---:|" * 8 + "---|---:|")
    rows = [f"| {' | '.join(cells(Run(**one)))} |" for one in runs]
    out.with_suffix(".md").write_text("\n".join([*head, *rows]) + "\n")


if __name__ == "__main__":
    typer.run(main)
