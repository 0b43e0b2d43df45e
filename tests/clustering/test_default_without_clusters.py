"""Under the rules that count no clusters, none are made, kept, fetched, looked up or named, by any way in.

The model is a copy of the embedded one in a folder of its own, for which nobody has clusters: whoever wants some has to
make them. Whatever touches clusters or their cache is watched, and the user's cache is an empty folder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import semtoken as st
from semtoken.decisions import Predicate
from semtoken.support.almanac import almanac_path, load_questions
from tests import tiny
from tests.cli.run import invoke
from tests.clustering.watched import watched
from tests.json_lines import write_lines
from tests.replies.recorded import recording
from tests.rows import each

QUESTIONS = load_questions("dev")[:3]
RULES = [st.ScoringRules("default"), st.ScoringRules(equality="surface"), st.ScoringRules(equality="exact")]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "mine"
    shutil.copytree(almanac_path(), folder, ignore=shutil.ignore_patterns("*.md"))
    return str(folder)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def unclustered(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Everything that was seen: nothing, as is checked at the end, and the cache is as empty as before."""
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.delenv("SEMTOKEN_CACHE", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    seen: list[str] = []
    with watched(seen.append):
        yield seen
    assert seen == []
    assert not list(home.rglob("*cluster*"))


def names_clusters(text: str) -> bool:
    """Whether a text speaks of clusters. That there are none (`null`, a switch that is off) and fields may be said."""
    return re.search(r"cluster(s(?!\": ?null)|ed|ing(?!:off))", text, re.IGNORECASE) is not None


def command(*words: object, stdin: str | None = None) -> str:
    """The output of a command, which names no clusters."""
    done = invoke([str(word) for word in words], stdin=stdin)
    assert done.exit_code == 0, (done.output, done.exception)
    assert not names_clusters(done.output), done.output
    return done.output


def without(folder: Path) -> None:
    """No file for people names clusters."""
    for file in folder.rglob("*"):
        if file.suffix in (".md", ".html", ".csv", ".tex", ".svg") or file.name.endswith(".scored.jsonl"):
            aside = r"<(pre|style)\b.*?</\1>|<script type=\"module\">.*?</script>|^    .*?$"
            text = re.sub(aside, "", file.read_text(encoding="utf-8"), flags=re.S | re.M)
            assert not names_clusters(text), (
                file
            )  # settings, styles, and the page's program with its words for any file


def test_the_watch_sees_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMTOKEN_CACHE", str(tmp_path))
    seen: list[str] = []
    tokenizer = tiny.byte_level_bpe()
    with watched(seen.append):
        st.ScoredModel(tiny.llama(len(tokenizer)), tokenizer, preset="paper").generate("Who?", 2)
    assert {"semtoken.clustering.cache.clusters_for_model", "semtoken.clustering.partition.cluster_table"} < set(seen)
    assert "clusters came to be" in seen and list(tmp_path.rglob("clusters.safetensors"))


@pytest.mark.parametrize("rules", [RULES[0], pytest.param(RULES[2], marks=pytest.mark.slow)], ids=["default", "exact"])
def test_a_model_in_python(unclustered: list[str], model: str, rules: st.ScoringRules) -> None:
    stc = st.ScoredModel.from_pretrained("almanac" if rules == RULES[0] else model, preset=rules)
    asked = [question.prompt() for question in QUESTIONS]
    answers = stc.generate(asked, 8, stop_at_newline=True)
    again = stc.score(asked, [answer.token_ids for answer in answers])
    assert [one.log_confidence for one in again] == pytest.approx([one.log_confidence for one in answers], abs=1e-4)
    recorder = st.Recorder(stc.tokenizer, preset=rules)
    inputs = stc.tokenizer(asked[0], return_tensors="pt")
    sequences = stc.model.generate(**inputs, max_new_tokens=4, do_sample=False, logits_processor=[recorder])
    recorded = recorder.answers(sequences)
    for answer in [*answers, *recorded]:
        assert not names_clusters(answer.signature + answer.to_json() + answer._repr_html_())
        assert all(token.log_meaning_probability is None for token in answer.tokens)
        answer.parts(by="word")
        answer.parts(by="phrase")
    assert stc.fingerprint().clusters is None
    stc.decide("Lima is in Peru.", [Predicate("Is it so?")])


@each(
    ("tokens", "rules"),
    [("model", RULES[0]), ("almanac", RULES[1]), ("model", RULES[2]), (None, RULES[0])],
)
def test_a_reply_in_python(unclustered: list[str], model: str, tokens: str | None, rules: st.ScoringRules) -> None:
    named = model if tokens == "model" else tokens
    reply = recording("vllm-chat")
    for answer in st.score_reply(reply.reply, named, preset=rules):
        assert not names_clusters(answer.signature + answer.to_json())


@pytest.fixture
def folder(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of files that the commands below read, and in which they run."""
    monkeypatch.chdir(tmp_path)
    write_lines(Path("in.jsonl"), [{"prompt": one.question, "id": i} for i, one in enumerate(QUESTIONS)])
    write_lines(Path("given.jsonl"), [{"prompt": "The capital of Peru is", "response": " Lima."}])
    write_lines(Path("items.jsonl"), [{"state": "Lima is in Peru."}])
    Path("questions.yaml").write_text('so: {type: predicate, instructions: "Is it so?"}\n')
    judged = [{"id": f"{i}", "question": q.question, "answers": [*q.answers]} for i, q in enumerate(QUESTIONS)]
    write_lines(Path("judged.jsonl"), judged)
    run = {"models": [model], "datasets": ["judged.jsonl"], "methods": ["confidence", "stc"], "preset": "default"}
    Path("run.yaml").write_text(json.dumps(run))
    Path("replies").mkdir()
    for name in ("vllm-chat", "llama-cpp"):
        Path("replies", f"{name}.json").write_text(json.dumps(recording(name).reply), encoding="utf-8")
    return tmp_path


COMMANDS = {
    "score": ["score in.jsonl --model MODEL --max-tokens 8 --tokens", "score given.jsonl --model MODEL"],
    "ask": ["ask --model MODEL --tokens --alternatives Who?", "ask Who?"],
    "check": [
        "check replies -o page.html",
        "check replies/vllm-chat.json --tokens",
        *(f"check replies/vllm-chat.json --tokenizer {one} --json" for one in ("MODEL", "almanac", "smollm2")),
    ],
    "decide": ["decide questions.yaml items.jsonl -o out.jsonl --model MODEL"],
    "compare": [
        "bench compare judged.jsonl --model MODEL --preset default --methods sequence_probability,perplexity"
        " --output it.md"
    ],
    "run": ["bench run run.yaml -o run", "bench report run --n-resamples 20"],
}


@pytest.mark.parametrize("commands", COMMANDS.values(), ids=list(COMMANDS))
def test_no_command_makes_or_names_clusters(
    unclustered: list[str], model: str, folder: Path, commands: list[str]
) -> None:
    for words in commands:
        command(*(model if word == "MODEL" else word for word in words.split()))
    without(folder)


@contextmanager
def served(log: Path, home: Path, *words: str) -> Iterator[str]:
    """The address of a server that is a process of its own, under watch, with what it says in a file beside the log."""
    process = [sys.executable, "-m", "tests.clustering.watched", str(log), *words, "--port", "0"]
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    kept = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "PYTHONPATH": paths}
    told = log.with_suffix(".txt")
    with told.open("w") as file, subprocess.Popen(process, stderr=file, stdout=file, env=os.environ | kept) as one:
        try:
            while not (found := re.search(r"http://127\.0\.0\.1:[0-9]+", told.read_text(encoding="utf-8"))):
                assert one.poll() is None, told.read_text(encoding="utf-8")
                time.sleep(0.1)
            yield found.group()
        finally:
            one.send_signal(signal.SIGTERM)
            one.wait(60)
    assert not log.exists(), log.read_text(encoding="utf-8")
    assert not names_clusters(told.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_servers(home: Path, unclustered: list[str], model: str, tmp_path: Path) -> None:
    chat = {"model": "mine", "messages": [{"role": "user", "content": QUESTIONS[0].question}]}
    question = {"type": "noul", "instructions": "Is it so?"}
    with (
        served(tmp_path / "serve", home, "serve", "--model", model) as server,
        served(tmp_path / "proxy", home, "proxy", "--base-url", server, "--tokenizer", model) as proxy,
    ):
        for url in (server, proxy):
            for more in ({}, {"stream": True}, {"semtoken": {"parts": "phrase"}}):
                reply = httpx.post(f"{url}/v1/chat/completions", json=chat | more, timeout=60)
                assert reply.status_code == 200 and '"sequence_uncertainty"' in reply.text, reply.text
                assert not names_clusters(reply.text)
            asked = {"model": "mine", "state": "Lima is in Peru.", "questions": {"so": question}}
            reply = httpx.post(f"{url}/v1/systemone", json=asked, timeout=60)
            assert reply.status_code == 200, reply.text
            for page in ("/", "/metrics", "/health"):
                assert not names_clusters(httpx.get(url + page, timeout=60).text)
