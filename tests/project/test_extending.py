"""The recipes of docs/extending.md work as they stand there, and its counts are those of its blocks.

The blocks of a recipe are applied to a copy of the package, as a stranger would do it, and the copy is run.
"""

from __future__ import annotations

import ast
import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet
import pytest

import semtoken
from semtoken.guarantees.journal.store import Journal
from tests.guarantees.made_up import entry, rows_of
from tests.json_lines import write_lines
from tests.web.servers import events

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
BLOCK = re.compile(r"```python\n# src/(?P<file>\S+): (?P<place>[^\n]+)\n(?P<code>.*?)```", re.DOTALL)
METHOD, STATISTIC = "### On what is recorded", "### With a new statistic of the answering model"
INSIDE, PAIRS = "### With attention or hidden states", "### With a statistic of pairs of texts"
DATASET = "## Recipe 2: a data set"
AGREEING = "## Recipe 4: which tokens agree"
QUIRK = "## Recipe 5: a quirk of an engine"
FIELD = "## Recipe 6: a field of the journal"
BACKEND, SHAPE = "### In this process: a backend", "### Over HTTP: the shape of its replies"


@dataclass(frozen=True)
class Block:
    """Code of the page, and where it says that it goes."""

    file: str
    place: str
    code: str

    def apply(self, source: Path) -> None:
        path = source / self.file
        if self.place == "new file":
            assert not path.exists()
            path.write_text(self.code, "utf-8")
            return
        text = path.read_text("utf-8")
        path.write_text(self._placed(text), "utf-8")

    def _placed(self, text: str) -> str:
        if self.place == "at the end":
            return f"{text}\n\n{self.code}"
        if self.place == "with the imports":
            first = "from __future__ import annotations\n"
            assert text.count(first) == 1
            return text.replace(first, first + self.code)
        where, quoted = re.fullmatch(r"(before|into) `(.+)`", self.place).groups()  # type: ignore[union-attr]
        return _before(text, quoted, self.code) if where == "before" else _into(text, quoted, self.code)


def _before(text: str, start: str, code: str) -> str:
    lines = text.splitlines(keepends=True)
    [at] = [number for number, line in enumerate(lines) if line.strip().startswith(start)]
    return "".join([*lines[:at], code, *lines[at:]])


def _into(text: str, name: str, entries: str) -> str:
    """The text with further entries before the closing bracket of a table (or of a type that lists names)."""
    nodes = [
        node
        for node in ast.walk(ast.parse(text))
        if (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name)
        or (isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name)
    ]
    [node] = nodes
    table = (ast.Tuple, ast.List, ast.Dict, ast.Subscript)
    held = node.value if isinstance(node.value, table) else node.annotation  # type: ignore[union-attr]
    if isinstance(held, ast.Subscript) and isinstance(held.slice, ast.Tuple) and ast.unparse(held.value) == "Annotated":
        held = held.slice.elts[0]
    assert isinstance(held, table) and held.end_lineno is not None and held.end_col_offset is not None
    lines = text.splitlines(keepends=True)
    end = len("".join(lines[: held.end_lineno - 1]).encode()) + held.end_col_offset - 1
    encoded = text.encode()
    kept = encoded[:end].decode().rstrip().removesuffix(",")
    return f"{kept},\n{entries}{encoded[end:].decode()}"


def blocks(heading: str) -> list[Block]:
    """The blocks between a heading of the page and the next one."""
    page = PAGE.read_text("utf-8")
    assert page.count(f"\n{heading}\n") == 1
    section = re.split(r"\n#{2,3} ", page.partition(f"\n{heading}\n")[2])[0]
    found = [Block(match["file"], match["place"], match["code"]) for match in BLOCK.finditer(section)]
    assert len(found) == section.count("```python")
    return found


Copy = Callable[..., Path]


@pytest.fixture
def edited(tmp_path: Path) -> Copy:
    """A copy of the package with the blocks of some sections applied."""

    def make(*headings: str) -> Path:
        shutil.copytree(Path(semtoken.__file__).parent, tmp_path / "semtoken")  # with what is compiled
        apply(tmp_path, *headings)
        return tmp_path

    return make


def apply(source: Path, *headings: str, but: str = "") -> None:
    """Apply the blocks of some sections to a copy, but for those of one file."""
    for block in (block for heading in headings for block in blocks(heading)):
        if not but or but not in block.file:
            block.apply(source)


def run(source: Path, code: str, *arguments: str) -> str:
    """The output of a program that runs on the copy."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{PAGE.parents[1]}"},
        cwd=source,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def command(source: Path, *arguments: str) -> str:
    return run(source, "from semtoken.cli import main; main()", *arguments)


def compared(source: Path, *arguments: str) -> set[str]:
    """The settings in the table of `semtoken bench compare` on a few questions."""
    table = source / "compared.csv"
    command(source, "bench", "compare", "--model", "almanac", "--limit", "8", "--output", str(table), *arguments)
    with table.open() as file:
        return {row["setting"] for row in csv.DictReader(file)}


SCORE_OF_AN_ANSWER = """
import numpy as np
from semtoken import Generation, methods
print(methods.score("first_token", Generation("a b c", [1, 2, 3], log_probs=np.array([-0.5, -2.0, -1.0]))))
"""


def test_a_method(edited: Copy) -> None:
    assert run(edited(METHOD), SCORE_OF_AN_ANSWER).split() == ["0.5"]


@pytest.mark.slow
def test_methods_are_compared(edited: Copy) -> None:
    found = compared(edited(METHOD, STATISTIC, INSIDE, PAIRS), "--methods", "first_token,mean_margin,departure")
    assert {"First token", "Mean margin", "Departure"} <= found


SCORES_OF_ANSWERS = """
import json
import numpy as np
import torch
import semtoken as st

prompt = "Answer these questions:\\n\\nQuestion:\\nWhat is the capital of France?\\nAnswer:\\n"
stc = st.ScoredModel.from_pretrained("almanac", device="cpu", methods=["mean_margin", "largest_state_move"])
[made] = stc.generate(prompt, 6)
[read] = stc.score(prompt, [made.token_ids])
ids = stc.tokenizer(prompt)["input_ids"]
with torch.no_grad():
    whole = stc.model(torch.tensor([ids + made.token_ids]), output_hidden_states=True)
top = whole.logits[0, len(ids) - 1 : -1, : stc.clusters.vocabulary.size].softmax(-1).topk(2).values
middle = whole.hidden_states[(stc.model.config.num_hidden_layers + 1) // 2][0, len(ids) - 1 : -1]
near = torch.nn.functional.cosine_similarity(middle[1:], middle[:-1])
by_hand = {
    "mean_margin": 1 - float((top[:, 0] - top[:, 1]).mean()),
    "largest_state_move": float((1 - near).max()),
}
print(json.dumps([made.scores, read.scores, by_hand]))
"""


@pytest.mark.slow
def test_statistics_of_the_answering_model(edited: Copy) -> None:
    """Generated and read answers have the numbers that a pass by hand has."""
    made, read, by_hand = json.loads(run(edited(STATISTIC, INSIDE), SCORES_OF_ANSWERS))
    assert made == pytest.approx(by_hand, abs=1e-4)
    assert read == pytest.approx(by_hand, abs=1e-4)


@pytest.mark.slow
def test_an_old_run_gains_methods_by_the_same_command(edited: Copy) -> None:
    source = edited()
    out = source / "run"
    flags = ("--model", "almanac", "--dataset", "almanac", "--limit", "8", "--output", str(out))
    command(source, "bench", "run", *flags, "--methods", "perplexity")
    answers = {path: path.stat().st_mtime_ns for path in out.glob("stages/greedy-*/*.parquet")}
    apply(source, STATISTIC, INSIDE, PAIRS)
    command(source, "bench", "run", *flags, "--methods", "perplexity,mean_margin,largest_state_move,departure")
    for name in ("mean_margin", "largest_state_move", "departure"):
        [scores] = out.glob(f"stages/score-{name}-*/00000.parquet")
        assert len(pyarrow.parquet.read_table(scores)) == 8
    assert answers == {path: path.stat().st_mtime_ns for path in out.glob("stages/greedy-*/*.parquet")}


@pytest.mark.slow
def test_a_forgotten_piece_fails_at_import(edited: Copy) -> None:
    source = edited()
    apply(source, PAIRS, but="steps.py")
    with pytest.raises(
        AssertionError, match=r"The method departure needs 'answer_similarity' .*which no step or statistic fills"
    ):
        run(source, "import semtoken.bench.statistics")


CAPITALS = [("France", ["Paris"]), ("Bolivia", ["Sucre", "La Paz"]), ("Japan", ["Tokyo"])]


READ_CAPITALS = """
import json, sys
from semtoken.bench.datasets import read_dataset
found = read_dataset("capitals", path=sys.argv[1])
print(json.dumps([found.label, [[q.id, q.question, q.answers] for q in found.questions], found.notes]))
"""


def capitals(source: Path) -> Path:
    """A folder with the layout of the hub."""
    folder = source / "capitals"
    folder.mkdir()
    rows = [{"country": country, "capitals": capitals} for country, capitals in CAPITALS]
    write_lines(folder / "test.jsonl", rows)
    return folder


def test_a_data_set(edited: Copy) -> None:
    source = edited(DATASET)
    label, questions, notes = json.loads(run(source, READ_CAPITALS, str(capitals(source))))
    assert (label, notes) == ("Capitals", [])
    asked = [f"What is the capital of {country}?" for country, _ in CAPITALS]
    assert [question[1:] for question in questions] == [
        [question, accepted] for question, (_, accepted) in zip(asked, CAPITALS, strict=True)
    ]


@pytest.mark.slow
def test_a_data_set_is_run(edited: Copy) -> None:
    source = edited(DATASET)
    folder, out = capitals(source), source / "run"
    flags = ("--model", "almanac", "--methods", "perplexity", "--dataset", f"capitals={folder}")
    command(source, "bench", "run", *flags, "--output", str(out))
    [answers] = out.glob("stages/greedy-*/00000.parquet")
    asked = pyarrow.parquet.read_table(answers).to_pylist()
    assert [row["id"] for row in asked] == ["capitals_0000", "capitals_0001", "capitals_0002"]


ANSWERS_OF_THE_TOY = """
import json
import numpy as np
import semtoken as st
from semtoken.support.almanac import almanac_clusters_path, almanac_path
from semtoken.models.base import Backend
from semtoken.models.toy import ToyBackend

clusters = st.TokenClusters.from_pretrained(almanac_clusters_path())
toy = ToyBackend(str(almanac_path()))
assert isinstance(toy, Backend)
stc = st.ScoredModel(toy, clusters=clusters)
[made] = stc.generate("The capital of France", max_new_tokens=6)
[read] = stc.score("The capital of France", [made.token_ids])
before = [toy.tokenizer("The capital of France")["input_ids"][-1], *made.token_ids[:-1]]
exact = st.score_logits(np.stack([toy._logits(last) for last in before]), made.token_ids, clusters)
joint = toy.next_log_probs(["The capital of France"], [made.token_ids])[0, 0]
three = [one.sequence_uncertainty for one in (made, read, exact)]
print(json.dumps([*three, made.log_probability, joint, made.truncated]))
"""


@pytest.mark.slow
def test_a_backend(edited: Copy) -> None:
    source = edited(BACKEND)
    made, read, exact, log_probability, joint, truncated = json.loads(run(source, ANSWERS_OF_THE_TOY))
    assert 0 < made < 1
    assert read == pytest.approx(made, abs=1e-9)
    assert exact == pytest.approx(made, abs=1e-9)
    assert joint == pytest.approx(log_probability, abs=1e-9)
    assert truncated in (True, False)


@pytest.mark.slow
def test_a_backend_by_name(edited: Copy) -> None:
    assert "Perplexity" in compared(edited(BACKEND), "--model.backend", "toy", "--methods", "perplexity")


SCORES_OF_ACME = """
import json
import semtoken as st
from semtoken.support.almanac import almanac_clusters_path
from semtoken.replies import ReplyStream
from semtoken.web.doctor import examine
from semtoken.web.proxy.app import proxy_app
from semtoken.web.proxy.settings import ProxySettings
from starlette.testclient import TestClient
from tests.web.asking import events_in
from tests.web.servers import answering, events, raw_upstream, response, streamed

clusters = st.TokenClusters.from_pretrained(almanac_clusters_path())
vocabulary = clusters.vocabulary
first, second = [next(i for i, text in enumerate(vocabulary.texts) if text == word) for word in (" Paris", " is")]

def item(token, log_prob):
    text = vocabulary.texts[token]
    return {"token": text, "id": token, "bytes": list(text.encode()), "logprob": log_prob, "top_logprobs": []}

def reply(tokens, finish="stop"):
    texts = "".join(vocabulary.texts[token] for token, _ in tokens)
    items = [item(*token) for token in tokens]
    for one in items:
        one["top_logprobs"] = [dict(one)]
    return {"acme": {"text": texts, "tokens": items, "finish": finish}}

[whole] = st.score_reply(reply([(first, -0.25), (second, -0.5)]), clusters)
stream = ReplyStream()
stream.feed(reply([(first, -0.25)], None))
stream.feed(reply([(second, -0.5)]))
[by_events] = st.score_reply(stream.finish(), clusters)

both = [(first, -0.25), (second, -0.5)]

def acme(received):
    if received.line.startswith(b"GET"):
        return response(b'{"data": [{"id": "toy"}]}')
    if b"/v1/acme " not in received.line:
        return response(b'{"error": "no such page"}', status=b"404 Not Found")
    asked = received.json()
    if asked.get("stream"):
        assert asked["top"] == 20
        return streamed(events(reply(both[:1], None), reply(both[1:]), done=False))
    return response(json.dumps(reply(both[:1] if asked.get("max_tokens") == 1 else both)).encode())

with raw_upstream(answering(acme)) as upstream:
    found = examine(f"{upstream.url}/v1", vocabulary=vocabulary)
    settings = ProxySettings(upstream.url, allowed_hosts=("*",))
    with TestClient(proxy_app(settings, clusters, page=False)) as client:
        passed = client.post("/v1/acme", json={"prompt": "x"}).json()["acme"]
        shown = client.post("/v1/acme", json={"prompt": "x", "top": 1}).json()["acme"]
        said = client.post("/v1/acme", json={"prompt": "x", "stream": True, "semtoken": {}}).text
print(json.dumps({
    "log_probability": whole.log_probability,
    "bounds": whole.sequence_uncertainty_interval,
    "same": whole == by_events,
    "best": found.best,
    "answers": [page.name for page in found.pages if page.answers],
    "passed": passed,
    "shown": shown["tokens"] == reply(both)["acme"]["tokens"],
    "events": [event["acme"] for event in events_in(said)],
}))
"""


def test_a_payload_shape(edited: Copy) -> None:
    found = json.loads(run(edited(SHAPE), SCORES_OF_ACME))
    assert found["log_probability"] == pytest.approx(-0.75)
    low, high = found["bounds"]
    assert 0 <= low <= high <= 1
    assert (found["same"], found["best"], found["answers"]) == (True, "acme", ["acme"])
    block = found["passed"].pop("semtoken")
    assert block["sequence_uncertainty_interval"] == found["bounds"]
    assert found["passed"] == {"text": " Paris is", "finish": "stop"} and found["shown"]
    begun, ended = found["events"]
    assert (begun["text"], ended["text"]) == (" Paris", " is") and not {"tokens"} & {*begun, *ended}
    assert begun["semtoken"]["final"] == ended["semtoken"]["final"] is True  # the last content has it, too
    assert ended["semtoken"]["sequence_uncertainty_interval"] == found["bounds"]


@pytest.mark.slow
def test_the_tests_of_recordings_need_no_word_about_a_new_shape(edited: Copy) -> None:
    """A recording of the toy's engine is all that they get; they run on a copy, as the package does."""
    source = edited(SHAPE)
    tests = source / "tests"
    shutil.copytree(Path(__file__).parents[1], tests, ignore=shutil.ignore_patterns("__pycache__"))
    other = {"token": " the", "logprob": -5.0123453}
    best = [{"token": text, "logprob": at} for text, at in ((" Paris", -0.2513377), (" is", -0.4987123))]
    tokens = [one | {"top_logprobs": [one, other]} for one in best]
    said = [
        {"acme": {"text": token["token"], "tokens": [token], "finish": finish}}
        for token, finish in zip(tokens, (None, "stop"), strict=True)
    ]
    recorded = {
        "engine": "a toy",
        "expected": {"format": "acme", "steps": 2, "ids": False, "gone": ["tokens"]},
        "reply": {"acme": {"text": " Paris is", "tokens": tokens, "finish": "stop"}},
        "stream": events(*said, done=False).decode(),
    }
    (tests / "replies" / "data" / "acme.json").write_text(json.dumps(recorded), "utf-8")
    code = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    over_recordings = ("tests/replies", "tests/web/test_proxy_shapes.py", "tests/web/test_proxy_editing.py")
    tests_of_all = "acme or test_recordings or test_streams"  # in these two a test goes through all recordings
    printed = run(source, code, *over_recordings, "-q", "-k", tests_of_all, "-p", "no:cacheprovider")
    assert int(re.findall(r"(\d+) passed", printed)[-1]) >= 25, printed


AGREEING_LETTERS = """
import math
import numpy as np, torch
from semtoken import ScoringRules, Vocabulary, score_logits, score_logprobs
from semtoken.core.engine_tokens import TopToken, TopStep
from semtoken.core import LogitsStream, rows

texts = ("", " TV", "tv.", "T-V", " t", ".", "!", " 7", "7)", "radio", " Radio", "the")
pieces = tuple(text.encode() for text in texts)
flags = np.zeros(len(texts), dtype=bool)
vocabulary, rules = Vocabulary(texts, pieces, flags, flags), ScoringRules(equality="letters")
random = np.random.default_rng(0)
logits = random.normal(0, 2, (len(texts), len(texts))).astype(np.float32)
probabilities = np.exp(logits.astype(float)) / np.exp(logits.astype(float)).sum(1, keepdims=True)
letters = ["".join(c for c in text.lower() if c.isalnum()) for text in texts]
all_ids = range(len(texts))
alike = [[a == b or (letters[a] != "" and letters[a] == letters[b]) for b in all_ids] for a in all_ids]
expected = [math.fsum(probabilities[t][alike[t]]) for t in all_ids]


def check(way, scored):
    found = [token.agreeing_probability for token in scored.tokens]
    assert np.allclose(found, expected, rtol=1e-5), (way, found, expected)
    assert [part.equality for part in scored.parts("word")][:1] == ["surface"]


for compiled_from in (0, 1 << 60):
    rows.COMPILED_FROM = compiled_from
    for given in (logits, torch.from_numpy(logits), torch.from_numpy(logits).double()):
        check(compiled_from, score_logits(given, range(len(texts)), vocabulary, rules))
    stream = LogitsStream(vocabulary, rules)
    for token, row in enumerate(logits):
        stream.add(row, token)
    check("stream", stream.finish())
logs = np.log(probabilities)
check("ids", score_logprobs([(t, dict(enumerate(logs[t]))) for t in range(len(texts))], vocabulary, rules))


def named(t, i):
    return TopToken(logs[t][i], text=texts[i] or "<|end|>", bytes=pieces[i] or None)


steps = [TopStep(named(t, t), [named(t, i) for i in range(len(texts))]) for t in all_ids]
check("names", score_logprobs(steps, None, rules))
print(rules.signature)
"""


def test_a_rule_of_which_tokens_agree(edited: Copy) -> None:
    """It counts the same in every way of scoring: compiled, in numpy and torch, from lists, and from names alone."""
    signature = run(edited(AGREEING), AGREEING_LETTERS).strip()
    assert signature == "preset:default|words:off|clustering:off|prefix:off|spelling:letters"


PADDED_NAMES = """
import json
from semtoken import score_reply, score_logprobs
from semtoken.replies import ReplyStream


def items(padding):
    return [
        {
            "token": text + padding,
            "logprob": number,
            "bytes": None,
            "top_logprobs": [
                {"token": name + padding, "logprob": at, "bytes": None} for name, at in (*others, (text, number))
            ],
        }
        for text, number, others in (
            ("Oslo", -0.2512345, [("oslo", -2.0123456), ("Bergen", -4.5123456)]),
            (".", -0.0512345, [("!", -3.5123456)]),
        )
    ]


def reply(padding, part):
    choice = {"index": 0, "finish_reason": "stop", "logprobs": {"content": items(padding)}}
    return {"choices": [{**choice, part: {"content": "Oslo."}}]}


def streamed(padding):
    stream = ReplyStream()
    event = {"object": "chat.completion.chunk", **reply(padding, "delta")}
    stream.feed(f"data: {json.dumps(event)}" + 2 * chr(10) + "data: [DONE]" + 2 * chr(10))
    return stream.finish()


for score in (
    lambda padding: score_logprobs(items(padding)),
    lambda padding: score_reply(reply(padding, "message"))[0],
    lambda padding: score_reply(streamed(padding))[0],
):
    assert score(chr(0)) == score(""), (score(chr(0)), score(""))
    print(score(chr(0)).text, score(chr(0)).sequence_uncertainty)
"""


def test_a_quirk(edited: Copy) -> None:
    lines = run(edited(QUIRK), PADDED_NAMES).splitlines()
    expected = 1 - (math.exp(-0.2512345) + math.exp(-2.0123456)) * math.exp(-0.0512345)
    assert [line.split()[0] for line in lines] == ["Oslo."] * 3
    assert [float(line.split()[1]) for line in lines] == pytest.approx([expected] * 3)


KEEPING_WHAT_WAS_KNOWN = """
import dataclasses, json, sys
import semtoken as st
from semtoken.guarantees.journal.entries import AnswerOrigin, Recording, SamplingRule
from semtoken.guarantees.journal.store import Journal

items = [{"token": "Paris", "logprob": -0.1, "top_logprobs": [{"token": "Paris", "logprob": -0.1}]}]
choice = {"message": {"role": "assistant", "content": "Paris"}, "logprobs": {"content": items}, "finish_reason": "stop"}
[answer] = st.score_reply({"object": "chat.completion", "choices": [choice]})
recording = Recording(AnswerOrigin("check"), SamplingRule("seed", 1.0), b"salt")
journal = Journal.open(sys.argv[1])
answers = [dataclasses.replace(answer, question=question) for question in (None, "The capital?")]
journal.add([json.loads(recording.entry(one, {}).line()) for one in answers])
print(json.dumps([row["question_known"] for row in journal.entries()]))
"""


def test_a_field_of_the_journal(edited: Copy, tmp_path: Path) -> None:
    """A journal that the package made before it had the field is read and written on."""
    path = str(tmp_path / "journal.db")
    before = Journal.open(path)
    before.add(rows_of([entry(0)]))
    before.close()
    assert json.loads(run(edited(FIELD), KEEPING_WHAT_WAS_KNOWN, path)) == [None, False, True]


def test_the_counts_are_those_of_the_blocks() -> None:
    def changed(heading: str) -> set[str]:
        return {block.file for block in blocks(heading)}

    rows = {
        "a method on what is recorded": (1, METHOD),
        "a method with a new statistic of the answering model": (3, STATISTIC),
        "a method that reads attention or states": (3, INSIDE),
        "a method with a statistic of pairs of texts": (2, PAIRS),
        "a data set": (1, DATASET),
        "a reply shape, in the proxy as well": (2, SHAPE),
        "which tokens agree": (3, AGREEING),
        "a quirk of an engine": (1, QUIRK),
        "a field of the journal": (2, FIELD),
    }
    page = PAGE.read_text("utf-8")
    for what, (ideas, heading) in rows.items():
        assert f"| {what} | {ideas} | {len(changed(heading))} |" in page
    assert f"| a backend | 3 | 1; {len(changed(BACKEND))} with `[model] backend` everywhere |" in page
