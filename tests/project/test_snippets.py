"""Every snippet of the README and the docs: Python is run, commands are read by the real command line and run.

What a reader is taken to have already (answers, a model in a folder, a server that runs) is set up for each page below.
What cannot run here is listed with the reason; it still has to be valid Python or a valid command.
tests/project/test_extending.py runs the recipes of docs/extending.md.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cyclopts import CycloptsError
from scripts import command_reference

from semtoken.cli.app import Words
from semtoken.cli.commands import SUBCOMMANDS, place_of, program
from semtoken.cli.help import command_at
from semtoken.cli.settings import KEYS, read_settings
from semtoken.guarantees.journal.store import Journal
from semtoken.support.almanac import almanac_clusters_path, almanac_path
from tests.cli.run import invoke
from tests.guarantees.made_up import filled, fitted
from tests.json_lines import read_lines, write_lines
from tests.rows import each

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^ *```(?P<language>\w*)\n(?P<text>.*?)^ *```\s*$", re.DOTALL | re.MULTILINE)
FILES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md", "examples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
)
RECIPES = "docs/extending.md"


@dataclass(frozen=True)
class Block:
    """A piece of code of a page."""

    page: str
    number: int
    """Of the Python blocks of its page, or of the other blocks."""
    language: str
    text: str


@cache
def blocks() -> tuple[Block, ...]:
    """All of them, in order."""
    found = []
    for path in FILES:
        counts = {True: 0, False: 0}
        for fence in FENCE.finditer(path.read_text("utf-8")):
            python = fence["language"] == "python"
            name = path.relative_to(ROOT).as_posix()
            found.append(Block(name, counts[python], fence["language"], fence["text"]))
            counts[python] += 1
    return tuple(found)


# --- Python ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Page:
    """The Python of a page, run block after block, as its reader would."""

    setup: str = ""
    """What the reader has: the page begins where it is there."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """Places and names of the reader -> what stands for them here."""
    left_out: Mapping[int, str] = field(default_factory=dict)
    """Number of a block -> why it cannot run here."""
    slow: bool = False


MODEL = """
import semtoken as st
model = st.ScoredModel.from_pretrained()
clusters = model.clusters
prompt = "Answer these questions:\\n\\nQuestion:\\nMumbai lies in what country?\\nAnswer:\\n"
prompts = [prompt]
"""
REPLY = """
import json
from pathlib import Path
from types import SimpleNamespace
from openai.types.chat import ChatCompletion
import semtoken as st
response = ChatCompletion.model_validate(json.loads(Path("reply.json").read_text("utf-8")))
content = [item.model_dump() for item in response.choices[0].logprobs.content]
items = content
"""
LABELED = """
import numpy as np
import semtoken as st
generator = np.random.default_rng(3)

def scores(n):
    return -generator.exponential(1.0, n)

scored, other_scored, more_scored, batch, recent_scores = scores(300), scores(200), scores(300), scores(50), scores(80)
correct, other_correct = generator.random(300) < np.exp(scored), generator.random(200) < np.exp(other_scored)
uncertainty = -scored
answer = -0.3
clusters = st.TokenClusters.from_pretrained("almanac")
small_model = large_model = st.ScoredModel.from_pretrained()
prompt = "Answer these questions:\\n\\nQuestion:\\nMumbai lies in what country?\\nAnswer:\\n"
prompts = [prompt]
small, large, more_small, more_large = scores(300), scores(300), scores(300), scores(300)
small_correct, large_correct = generator.random(300) < np.exp(small), generator.random(300) < np.exp(large)
"""
SERVER = {"http://127.0.0.1:8000": "SERVER"}
VLLM = "needs vLLM; tests/engines runs it"
LLAMA = "needs llama-cpp-python; tests/engines runs it"
PAGES = {
    "README.md": Page(
        setup=f"""{MODEL}
scored_model, model = model, model.model
inputs = scored_model.tokenizer(prompts, return_tensors="pt", return_token_type_ids=False)
""",
        instead={'"smollm2"': '"almanac"'},
    ),
    "docs/bench.md": Page(
        setup="""
from tests.cli.run import invoke
arguments = "bench run --model almanac --dataset almanac-dev --limit 12 --methods stc,perplexity --output runs/almanac"
assert invoke(arguments.split()).exit_code == 0
""",
        slow=True,
    ),
    "docs/calibration.md": Page(
        f"{LABELED}\nlanguages = [('de', 'en')[place % 2] for place in range(len(scored))]\nanswers = scored\n",
        instead={
            "from cascade import": "from examples.cascade import",  # a copy beside the reader's own code
        },
    ),
    "docs/check-an-extraction.md": Page(
        setup=f"""{MODEL}
import math
from datetime import date
from typing import Literal
from pydantic import BaseModel
from semtoken.models.probing import with_choices
model = "almanac"
messages = [{{"role": "user", "content": "Which country is Kyoto in?"}}]
"""
    ),
    "docs/choosing.md": Page(f"{MODEL}answers = model.generate([prompt] * 3)\nanswer = answers[0]\n"),
    "docs/clusters.md": Page(
        setup="""
import numpy as np
from semtoken import TokenClusters
from transformers import AutoTokenizer
rows = np.random.default_rng(0).standard_normal((400, 8)).astype(np.float32)
table = np.concatenate([rows, rows], axis=1)
input_rows_bf16 = output_rows_bf16 = rows
made = TokenClusters.from_pretrained("almanac")
labels, vocabulary = made.labels, made.vocabulary
tokenizer = AutoTokenizer.from_pretrained("path/to/model")
""",
        instead={
            'clusters.members("TV")': 'clusters.members("USA")',
            'clusters.push_to_hub("me/my-clusters", private=True)\n': "",  # uploads
            '"me/my-clusters"': '"my-clusters"',
            "16_000": "160",
            "12_000": "120",
            "8_000": "80",
        },
        left_out={0: "16,000 clusters of a model of the hub; tests/clustering/test_clusters.py runs from_model"},
    ),
    "docs/doctor.md": Page(
        "import semtoken as st\nvocabulary = st.TokenClusters.from_pretrained('almanac').vocabulary",
        instead=SERVER,
        slow=True,
    ),
    "docs/almanac.md": Page(slow=True),
    "docs/models.md": Page(
        left_out={0: "no weights of an image-text model; tests/models/test_images.py has tiny ones"}
    ),
    "docs/engines.md": Page(MODEL, left_out={0: LLAMA, 1: LLAMA, 5: VLLM, 6: VLLM}),
    "docs/judging.md": Page(),
    "docs/method.md": Page(),
    "docs/methods.md": Page(
        setup="""
import numpy as np
import semtoken as st
uncertainty, correct = [0.1, 0.7, 0.3, 0.9, 0.2], [1, 0, 1, 0, 1]
generation = st.Generation(
    "Paris", [1], sample_texts=["Paris", "Rome"], sample_token_ids=[[1], [2]],
    sample_log_probs=[np.array([-0.1]), np.array([-0.9])], nli_logits=np.zeros((2, 2, 3)),
)
"""
    ),
    "docs/gate-a-tool-call.md": Page(
        setup=f"""{MODEL}
import random
from semtoken.decisions import Predicate, ReadingOptions
from semtoken.decisions.answers import Answer
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.records import answer_values, records_of
MAY_RUN = Predicate("May this tool call run as it is?", name="may_run")
messages = [{{"role": "user", "content": "Delete notes.txt."}}]
[reply] = model.score(prompt, '{{"name": "delete_file", "arguments": {{"path": "notes.txt"}}}}')
records = [
    record
    for n in range(100)
    for answer in [Answer(MAY_RUN, (n / 100, 1 - n / 100))]
    for record in records_of({{
        "state": n,
        "labels": {{"may_run": random.Random(n).random() < n / 100}},
        "answers": {{"may_run": answer_values(answer, ReadingOptions())}},
    }})
]
DecisionCalibrator.fit(records).save(__import__("pathlib").Path("may-run"))
"""
    ),
    "docs/parts.md": Page(
        setup=f"""{MODEL}
from datetime import date
from types import SimpleNamespace

def nlp(text):  # what spaCy gives, as far as the page uses it
    return SimpleNamespace(ents=[SimpleNamespace(start_char=0, end_char=2, label_="GPE")])
""",
        instead={
            "model.generate(prompt)": """model.score(prompt, '{"seller": "Oslo", "total": 1.5, "due_date": null}')""",
        },
    ),
    "docs/replies.md": Page(
        setup=f"""{REPLY}
import httpx
from openai import OpenAI
from semtoken.replies import read_reply
client = OpenAI(base_url="SERVER/v1", api_key="none")
asked = {{"model": "almanac", "messages": [{{"role": "user", "content": "Who wrote Emma?"}}]}}
streamed = asked | {{"stream": True, "logprobs": True, "top_logprobs": 5}}
response = httpx.post("SERVER/v1/chat/completions", json=streamed, timeout=600)
from semtoken.support.almanac import is_correct, load_questions
questions, replies = load_questions("dev")[:60], []
for one in questions:
    said = [{{"role": "user", "content": one.question}}]
    replies.append(client.chat.completions.create(model="almanac", messages=said, logprobs=True, top_logprobs=20))
correct = [is_correct(one.choices[0].message.content, q) for one, q in zip(replies, questions)]
""",
        instead={"create(...,": "create(**asked,", '"smollm2"': '"almanac"', 'segment="reasoning"': 'segment="answer"'},
    ),
    "docs/serving.md": Page("from openai import OpenAI", instead=SERVER),
}
"""Pages with Python. A page that is not here runs as it stands."""
ELSEWHERE = "docs/integrations/"
"""Pages of tools that exclude each other: `make test-integrations` runs them with the tool installed."""
PYTHON = sorted({b.page for b in blocks() if b.language == "python"} - {RECIPES})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the pages speak of."""
    (tmp_path / "path" / "to").mkdir(parents=True)
    for name in ("path/to/model", "my-model", "MODEL"):
        (tmp_path / name).symlink_to(almanac_path())
    for name in ("path/to/clusters", "clusters-of-the-model", "qwen-clusters", "gpt-oss-clusters"):
        shutil.copytree(almanac_clusters_path(), tmp_path / name)
    recorded = json.loads((ROOT / "tests" / "replies" / "data" / "vllm-chat.json").read_text("utf-8"))
    (tmp_path / "reply.json").write_text(json.dumps(recorded["reply"]), "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEMTOKEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


@contextmanager
def server() -> Iterator[str]:
    """The embedded model behind `semtoken serve`."""
    from semtoken import ScoredModel
    from semtoken.web.serve.app import serve_app
    from semtoken.web.serve.engine import Engine
    from semtoken.web.serve.service import Offer
    from tests.web.servers import running

    with running(serve_app(Engine(ScoredModel.from_pretrained()), Offer("almanac"))) as url:
        yield url


def params(pages: list[str]) -> list[Any]:
    return [pytest.param(p, marks=[pytest.mark.slow] if p in PAGES and PAGES[p].slow else []) for p in pages]


@pytest.mark.parametrize("page", params([page for page in PYTHON if not page.startswith(ELSEWHERE)]))
def test_python_of_a_page_runs(page: str, here: Path) -> None:
    how = PAGES.get(page, Page())
    code = [(f"{page}, setup", how.setup)]
    code += [
        (f"{page}, Python block {b.number}", b.text)
        for b in blocks()
        if b.page == page and b.language == "python" and b.number not in how.left_out
    ]
    for old in how.instead:
        assert any(old in text for _, text in code), f"{page} no longer says {old}: correct its Page"
    if "SERVER" in f"{how.setup}{how.instead}":
        with server() as url:
            run(code, {**how.instead, "SERVER": url})
    else:
        run(code, how.instead)


def run(code: list[tuple[str, str]], instead: Mapping[str, str]) -> None:
    """Run pieces of Python one after another in one place; a traceback names the block."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for name, text in code:
        for old, new in instead.items():
            text = text.replace(old, new)
        exec(compile(text, name, "exec", dont_inherit=True), names)


@each("block", [b for b in blocks() if b.language == "python" and b.page != RECIPES])
def test_python_that_is_left_out_is_python(block: Block) -> None:
    """The recipes are pieces of files, put together by tests/project/test_extending.py."""
    ast.parse(block.text)


def test_what_is_left_out_is_there() -> None:
    for page, how in PAGES.items():
        numbers = {b.number for b in blocks() if b.page == page and b.language == "python"}
        assert numbers, f"{page} holds no Python"
        assert set(how.left_out) <= numbers


def test_code_of_the_readme_is_not_cut_off() -> None:
    """GitHub shows 88 columns of code on a laptop; longer lines have to be scrolled."""
    wide = [line for b in blocks() if b.page == "README.md" for line in b.text.splitlines() if len(line) > 88]
    assert not wide


# --- commands ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """A command of a page."""

    page: str
    text: str
    """As it stands there, without the prompt sign."""
    output: str
    """What the page says that it prints; empty where it says nothing."""

    @property
    def steps(self) -> list[list[str]]:
        """The words of each program of a pipe or a sequence; remarks and redirections are left out."""
        found: list[list[str]] = [[]]
        words = iter(shlex.split(self.text, comments=True))
        for word in words:
            if word in ("|", "&&"):
                found.append([])
            elif word == ">":
                next(words)
            else:
                found[-1].append(word)
        return [step for step in found if step]


PROGRAMS = ("ray", "semtoken", "pip", "make", "python", "hf", "export", "vllm", "git", "cat", "curl", "head", "kill")
INLINE = re.compile(r"`(semtoken [a-z][^`\n]*)`")


@cache
def commands() -> tuple[Command, ...]:
    """The commands of all blocks that are no Python: after a `$`, or lines that begin with a program."""
    found = []
    for block in blocks():
        if block.language in ("", "sh", "bash", "console"):
            text = re.sub(r" *\\\n *", " ", block.text)
            if block.language == "console":
                shown = re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)
            else:
                shown = [(line, "") for line in text.splitlines() if line.startswith(tuple(f"{p} " for p in PROGRAMS))]
            found += [Command(block.page, line, output) for line, output in shown]
    return tuple(found)


@cache
def examples() -> tuple[Command, ...]:
    """The examples in the help of all commands, which the site shows with their options."""
    shown = re.findall(r"^```text\n(.*?)^```", command_reference.reference(), re.DOTALL | re.MULTILINE)
    lines = [re.split("[,:] ", line)[0] for text in shown for line in text.splitlines()]
    return tuple(Command("help", re.sub(r"^[A-Z_]+=\S+ ", "", line), "") for line in lines)


def test_commands_are_found() -> None:
    texts = [command.text for command in commands()]
    assert any(text.startswith("semtoken ask --tokens") for text in texts) and len(texts) > 40


def check_words(words: list[str]) -> None:
    """Raise if the command line would not take these words: unknown commands and options, values that are none."""
    given = Words(words)
    group = len(given.command) == 1 and given.command[0] in SUBCOMMANDS
    if given.flags & {"help", "version"} or group or not given.command:
        return
    program().parse_args(given.command, exit_on_error=False, print_error=False)
    read_settings(None, given.settings)
    assert {word[2:].partition(".")[0] for word in given.settings} <= set(place_of(given.place).reads)


def test_words_that_are_wrong_are_found() -> None:
    for wrong in ("aks Paris", "ask --tokns Paris", "bench runs", "ask --preset papr Paris", "serve --port none"):
        with pytest.raises(Exception) as raised:
            check_words(wrong.split())
        assert isinstance(raised.value, CycloptsError), raised
    check_words(["ask", "--tokens", "--preset", "paper", "Paris"])


@each("command", [*commands(), *examples()])
def test_a_command_is_one(command: Command) -> None:
    for called, *words in command.steps:
        match called:
            case "semtoken":
                check_words(words)
            case "git" | "cd":
                assert words
            case "pip":
                extras = re.findall(r"\[([a-z,-]+)\]", " ".join(words))
                assert words[0] == "install" and {e for found in extras for e in found.split(",")} <= declared("extra")
            case "make":
                assert {word for word in words if "=" not in word} <= declared("target")
            case "python":
                assert (ROOT / words[0]).is_file(), words[0]
            case _:
                assert called in PROGRAMS, f"{called}: run it here, or list it"


@each(
    ("page", "text"),
    sorted({(p.relative_to(ROOT).as_posix(), text) for p in FILES for text in INLINE.findall(p.read_text("utf-8"))}),
)
def test_a_command_in_a_sentence_is_one(page: str, text: str) -> None:
    """Its words may be names such as FILE; its command and options have to be there."""
    words = [word for word in re.split(r"[\s,]+", text.removeprefix("semtoken ")) if re.match(r"-|[a-z]", word)]
    given = Words(words)
    assert given.place or not given.command, f"{page}: {text}"
    place = given.place
    group = len(place) == 1 and place[0] in SUBCOMMANDS
    collection = command_at(place).assemble_argument_collection() if place and not group else ()
    known = {name for one in collection for name in one.names}
    named = {word.partition("=")[0] for word in given.command if word.startswith("-") and len(word) > 1}
    assert named <= known, f"{page}: {text}"
    assert {word.partition("=")[0][2:].replace("-", "_") for word in given.settings} <= set(KEYS), f"{page}: {text}"


def test_no_command_writes_over_a_file_of_the_repository() -> None:
    """Kept files change by `make keep` alone, a step of a release."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = set(listed.stdout.split("\0"))
    pages = [
        name for name in tracked if name.endswith(".md") or re.match(r"(research|benchmarks|scripts)/.*\.py$", name)
    ]
    written = re.compile(r"^.*\b(?:python|semtoken) .*(?: > |--out |--csv |-o )([\w./-]+)", re.MULTILINE)
    found = {page: set(written.findall((ROOT / page).read_text("utf-8"))) for page in pages}
    assert sum(map(len, found.values())) > 10
    assert not {page: names & tracked for page, names in found.items() if names & tracked}


@cache
def declared(kind: str) -> frozenset[str]:
    """Extras of the package, or targets of the Makefile."""
    if kind == "target":
        return frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    section = (ROOT / "pyproject.toml").read_text("utf-8").partition("[project.optional-dependencies]")[2]
    return frozenset(re.findall(r"^([a-z-]+) = \[", section.partition("\n[")[0], re.MULTILINE))


# --- commands that are run ---------------------------------------------------------------------------------------

INSTEAD = {
    " --model Qwen/Qwen2.5-3B": "",
    "--model smollm2": "--model almanac",
    "--model MODEL": "--model almanac",
    "semtoken cluster make MODEL": "semtoken cluster make almanac",
    "journal delete journal.db": "journal delete --yes journal.db",
    "spread,perplexity,stc --limit 100": "spread,perplexity,stc --limit 20",
    "--methods stc,sequence_probability,perplexity --controls": "--methods stc,sequence_probability --limit 12",
    "--dataset almanac --out": "--dataset almanac-dev --methods stc,perplexity --limit 12 --out",
    "examples/": f"{ROOT}/examples/",
    "research/": f"{ROOT}/research/",
    "tests/replies/data/": f"{ROOT}/tests/replies/data/",
}
"""Words of the pages -> what stands for them here: a model that is there, and less of it."""
NOT_RUN = {
    r"semtoken (serve|proxy|doctor)\b": "serves or asks until it is stopped; tests/web runs it",
    r"semtoken fetch\b": "downloads",
    r"-j llm": "needs a language model as a judge",
    r"paper\.yaml|runs/(qwen|paper)": "hours on GPUs",
    r"--imported people\.csv": "needs labels of people; tests/bench/test_judges.py gives some",
    r"--checksum 3f9c21": "names a calibrator of the author's journal; tests/guarantees/test_watch.py puts one back",
    r"--executor.gpus": "needs GPUs; tests/bench/test_score_shards.py runs Ray",
    r"--model\.backend llama-cpp": "needs llama-cpp-python; tests/engines runs it",
    r"model\.gguf": "needs a GGUF file; tests/support/test_checkpoints.py makes one",
    r"-o grounded\b": "needs labeled answers; tests/decisions/test_commands.py runs it",
    r"--rewordings\b": "asks a server; tests/decisions/test_live.py runs one",
    r"semtoken decide\b": "needs labeled answers; tests/decisions/test_commands.py runs it",
}
LEARNS = "python examples/learn_a_number.py learn "
QUESTIONS = ("Who wrote Emma?", "Mumbai lies in what country?", "What is the capital of Japan?")


def runnable(page: str) -> list[Command]:
    """The semtoken commands of a page that can run here."""
    if page == "help":
        few = r"semtoken (ask (?!--calibrator|--image).*\?\"|cluster (show USA|list))$"
        return [one for one in examples() if re.match(few, one.text)]
    return [
        command
        for command in commands()
        if command.page == page
        and (command.steps[-1][0] == "semtoken" or LEARNS in command.text)
        and not any(re.search(pattern, command.text) for pattern in NOT_RUN)
    ]


def test_every_reason_is_needed() -> None:
    for pattern in NOT_RUN:
        assert any(re.search(pattern, command.text) for command in commands()), pattern


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({c.page for c in [*commands(), *examples()] if runnable(c.page)}))
def test_the_commands_of_a_page_run(page: str, here: Path) -> None:
    prepare(here, page)
    for command in runnable(page):
        text = command.text
        verdicts, former = here / "answers.judged.jsonl", here / "former.jsonl"
        if verdicts.exists() and verdicts.name not in text:  # the page shows alternatives
            verdicts.replace(former)
        elif former.exists() and verdicts.name in text:
            former.replace(verdicts)
        if "not JSON" in command.output:
            (here / "in.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n{"prompt": c}\n', "utf-8")
            (here / "out.jsonl").unlink()
            (here / "out.jsonl.settings.jsonl").unlink()
        if text.startswith("semtoken label"):
            label_all(here / "answers.jsonl")
            continue
        for old, new in INSTEAD.items():
            text = text.replace(old, new)
        if command.text.startswith(LEARNS):
            learn(shlex.split(text)[1:], here / "answers.labeled.jsonl", here / "learned.jsonl")
            continue
        words = Command(page, text, "").steps[-1][1:]
        stdin = "\n".join(QUESTIONS) if "-" in words else None
        done = invoke(words, stdin=stdin)
        expected = int(command.output.startswith("Error:"))
        if done.exit_code == 1 and re.search(r"Broken since|does not hold", done.output):
            continue  # a verdict about this model's answers, which the exit status says too
        assert done.exit_code == expected, f"{command.text}\n{done.output}\n{done.exception!r}"
        if expected:
            assert done.stderr.split()[:6] == command.output.split()[:6]


def learn(words: Sequence[str], labeled: Path, learned: Path) -> None:
    """Run the example; where that keeps confidence, what it would have written is the answers with that as a score."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, cwd=labeled.parent)
    kept = "Kept the confidence" in done.stderr
    assert (done.returncode, learned.exists()) == ((1, False) if kept else (0, True)), done.stderr
    if not learned.exists():
        write_lines(learned, (one | {"score_learned": one["sequence_uncertainty"]} for one in read_lines(labeled)))


def label_all(path: Path) -> None:
    """The file that `semtoken label` writes, with the labels of string match instead of a person's."""
    from semtoken.support.almanac import is_correct, load_questions

    known = {question.id: question for question in load_questions("dev")}
    labeled = [one | {"correct": is_correct(one["response"], known[one["id"]])} for one in read_lines(path)]
    write_lines(path.with_suffix(".labeled.jsonl"), labeled)


def prepare_journal(path: Path) -> None:
    """A journal with labeled answers of the last hours, right ones the likelier the surer they are."""
    journal = Journal.open(str(path))
    correct = [number % 100 < 60 or number % 3 == 0 for number in range(400)]
    filled(journal, fitted(), correct, begin=time.time() - 3600, step=1.0)
    journal.close()


def prepare(folder: Path, page: str) -> None:
    """The files that the commands of a page read, with as much in them as the commands need."""
    from semtoken.support.almanac import load_questions

    def lines(name: str, records: list[dict[str, Any]]) -> None:
        write_lines(folder / name, records)

    asked = load_questions("dev")[:60]
    golden = [{"id": q.id, "question": q.question, "answers": list(q.answers)} for q in asked]
    lines("questions.jsonl", golden)
    lines("in.jsonl", [{"id": q.id, "prompt": q.prompt()} for q in asked[:3]])
    if page == "docs/calibration.md":  # it makes its own answers
        lines("questions.jsonl", [{"id": q.id, "question": q.question} for q in load_questions("dev")[:300]])
        return
    if page == "docs/watch.md":
        prepare_journal(folder / "journal.db")
        made = [sys.executable, str(ROOT / "examples" / "calibrate.py"), "my-calibrator", "recent.jsonl"]
        subprocess.run(made, cwd=folder, check=True)
    lines("answers.jsonl", [one | {"answer": one["answers"][0], "prompt": "Who?"} for one in golden[:10]])
    if page == "docs/report.md":
        run([("a run", PAGES["docs/bench.md"].setup)], {})
