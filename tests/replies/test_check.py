"""Saved replies to ranked answers: recorded replies of real engines, joined with questions in every way."""

from __future__ import annotations

import csv
import gc
import inspect
import json
import math
import pickle
import random
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

import semtoken as st
from semtoken import Vocabulary
from semtoken.core.given_tokens import as_tokens
from semtoken.errors import InvalidInputError
from semtoken.guarantees.answer_records import read_answers
from semtoken.replies.checking import Doubt, doubt_of, rank_replies
from semtoken.replies.checking.answers import CheckSettings
from semtoken.replies.checking.doubts import in_message
from semtoken.replies.checking.finding import OpenedReplies
from semtoken.replies.checking.shards import checker
from semtoken.replies.formats import known_shapes
from semtoken.replies.formats.openai_choices import OpenAIChat
from semtoken.support.files.record_files import read_records, write_records
from tests.cli.run import invoke
from tests.json_lines import write_lines
from tests.replies.made import chat_chunk, chat_reply, listed

RECORDED = Path(__file__).parents[1] / "replies" / "data"


def reply(
    tokens: list[tuple[str, float]], *, others: dict[int, list[tuple[str, float]]] | None = None
) -> dict[str, Any]:
    """A chat reply of OpenAI's shape, with log-probabilities of the written tokens and of some others."""
    content = [listed(*one, *(others or {}).get(i, [])) for i, one in enumerate(tokens)]
    return chat_reply("".join(token for token, _ in tokens), content)


SURE = reply([("Lima", -0.01)])
TORN = reply([("It is ", -0.01), ("Ankara", -0.9)], others={1: [("Istanbul", -0.7), ("Izmir", -3.0)]})
CUT = reply([("Once upon", -0.3)])
CUT["choices"][0]["finish_reason"] = "length"


def written(folder: Path, **files: Any) -> Path:
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    return folder


def test_a_folder_is_ranked_by_its_doubt(tmp_path: Path) -> None:
    found = rank_replies([str(written(tmp_path, a=SURE, b=TORN, c=CUT))])
    assert [one.id for one in found.answers] == ["b", "c", "a"] and [one.rank for one in found.answers] == [1, 2, 3]
    assert [one.response.truncated for one in found.answers] == [False, True, False]
    confidences = [one.confidence for one in found.answers]
    assert confidences == sorted(confidences) and confidences[0] == pytest.approx(2.718281828**-0.91, rel=1e-6)


def test_the_sentence_names_the_stretch_and_what_else_was_likely(tmp_path: Path) -> None:
    [one] = rank_replies([str(written(tmp_path, b=TORN))]).answers
    assert (
        one.doubt is not None and one.doubt.text == "Ankara" and one.doubt.confidence == pytest.approx(0.4066, abs=1e-4)
    )
    assert one.explanation == "In doubt: “Ankara” (41%). Also likely there: “Istanbul” 50%, “Izmir” 5%."
    [sure] = st.score_reply(SURE)
    assert doubt_of(sure) is None


@pytest.mark.parametrize(
    ("line", "question"),
    [
        ({"id": "7", "question": "Which city?", "response": TORN}, "Which city?"),
        ({"custom_id": "7", "response": {"status_code": 200, "body": TORN}}, None),
        ({"id": "7", "request": {"messages": [{"role": "user", "content": "Which?"}]}, "response": TORN}, "Which?"),
        ({"id": "7", "request": {"input": [{"role": "user", "content": [{"text": "Eh?"}]}]}, "reply": TORN}, "Eh?"),
        (TORN | {"custom_id": "7"}, None),
        ({"id": "7", "question": "Which city?", "raw": TORN, "parsed": {"a": 1}}, "Which city?"),
        ({"id": "7", "prompt": "Which city?", "output": [TORN]}, "Which city?"),
        ({"id": "7", "response": json.dumps(TORN)}, None),
    ],
)
def test_lines_hold_replies_in_several_ways(tmp_path: Path, line: dict[str, Any], question: str | None) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text(f"{json.dumps(line)}\n\n{json.dumps(line)}\n", encoding="utf-8")
    found = [one.read() for one in OpenedReplies([str(path)])]
    assert [one.id for one in found] == ["7", "7"] and [one.question for one in found] == [question] * 2
    assert [one.where for one in found] == [f"{path}:1", f"{path}:3"]
    assert len(rank_replies([str(path)]).answers) == 2


@pytest.mark.parametrize(
    "content",
    [
        json.dumps([SURE, TORN, CUT]),
        json.dumps([SURE, TORN, CUT], indent=2),
        "\n".join(json.dumps(one, indent=2) for one in (SURE, TORN, CUT)),  # as `jq` writes them
        "\n".join(map(json.dumps, (SURE, TORN, CUT))),
    ],
)
def test_several_whole_replies_in_a_file_are_read_one_by_one(tmp_path: Path, content: str) -> None:
    path = tmp_path / "all.json"
    path.write_text(f"{content}\n", encoding="utf-8")
    assert [one.read().reply for one in OpenedReplies([str(path)])] == [SURE, TORN, CUT]


def test_a_reply_is_not_named_by_what_is_in_it(tmp_path: Path) -> None:
    """The server's names for a message and its usage are those of parts of a reply; its own id names it."""
    lines = [
        reply([("Oslo", -0.1)]) | {"id": f"own-{k}", "message": {"id": f"inner-{k}"}, "usage": {"id": f"other-{k}"}}
        for k in range(2)
    ]
    (tmp_path / "replies.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = rank_replies([str(tmp_path / "replies.jsonl")])
    assert {answer.id for answer in found.answers} == {"own-0", "own-1"}


def test_an_error_beside_an_empty_body_is_the_reason(tmp_path: Path) -> None:
    line = {"custom_id": "7", "response": {"status_code": 400, "body": None}, "error": {"message": "too long"}}
    path = written(tmp_path, a=line, b=SURE)
    checked = rank_replies([str(path)])
    assert len(checked.answers) == 1 and "too long" in checked.refused[0].reason


def test_recorded_replies_of_every_engine_are_scored_or_refused_with_a_reason() -> None:
    found = rank_replies([str(RECORDED)])
    assert len(found.answers) > 20 and all(one.reason for one in found.refused)
    for one in found.answers:
        assert 0 <= one.confidence <= 1 and one.explanation


def test_parts_and_alternatives_are_those_of_the_records_without_making_them() -> None:
    scored = 0
    for found in OpenedReplies([str(RECORDED)]):
        saved = found.read()
        try:
            early, late = st.score_reply(saved.reply), st.score_reply(saved.reply)
        except st.SemtokenError:
            continue
        for one, other in zip(early, late, strict=True):
            assert other.tokens is not None  # the records are made before their parts are asked for
            for kind in ("word", "phrase", "sentence"):
                assert list(one.parts(kind)) == list(other.parts(kind))
            places = range(one.n_tokens)
            assert list(one.alternatives_at(places)) == [token.alternatives for token in other.tokens]
            scored += 1
    assert scored > 20


def test_a_reply_that_cannot_be_scored_hides_no_other(tmp_path: Path) -> None:
    silent = json.loads(json.dumps(SURE))
    del silent["choices"][0]["logprobs"]
    found = rank_replies([str(written(tmp_path, a=SURE, b=silent))])
    assert len(found.answers) == 1 and len(found.refused) == 1 and "b.json" in found.refused[0].where
    (tmp_path / "a.json").unlink()
    with pytest.raises(InvalidInputError, match="None of 1 replies can be scored"):
        rank_replies([str(tmp_path)])


def test_one_bad_file_or_line_ends_no_folder(tmp_path: Path) -> None:
    folder = written(tmp_path, sure=SURE, alien={"id": 3, "no": "reply"}).joinpath("more")
    folder.mkdir()
    (folder / "lines.jsonl").write_text(f'{json.dumps(TORN)}\n{{"broken\n{{"broken, too\n', encoding="utf-8")
    (folder / "empty.json").write_text("")
    (folder / "binary.json").write_bytes(bytes(range(256)))
    (folder / "shopping.txt").write_text("milk\nbread")
    (folder / "photo.png").write_bytes(b"\x89PNG")
    found = rank_replies([str(tmp_path)])
    assert {one.id for one in found.answers} == {"sure", "lines-1"}
    reasons = {Path(one.where).name: one.reason for one in found.refused}
    assert set(reasons) == {"alien.json", "lines.jsonl:2", "lines.jsonl:3", "empty.json", "binary.json", "shopping.txt"}
    assert "empty" in reasons["empty.json"] and "UTF" in reasons["binary.json"] and "JSON" in reasons["shopping.txt"]
    assert [Path(one).name for one in found.passed_over] == ["photo.png"]
    assert sum(count for count, _ in found.reasons()) == len(found.refused)
    assert max(found.reasons(), key=lambda one: one[0])[0] == 3  # the two broken lines, and the note

    for ending in ("csv", "jsonl", "html", "md"):
        target = tmp_path.with_suffix(f".{ending}")
        done = invoke(["check", str(tmp_path), "-o", str(target)])
        assert done.exit_code == 0 and "6 of 8 replies could not be scored" in done.stderr, done.output
        assert "photo.png" in done.stderr
        text = target.read_text(encoding="utf-8")
        for place, reason in reasons.items():
            assert place.split(":")[0] in text.replace("\\", "") and reason[:20] in text
    rows = list(csv.DictReader(tmp_path.with_suffix(".csv").read_text(encoding="utf-8").splitlines()))
    assert [bool(row["error"]) for row in rows] == [False] * 2 + [True] * 6
    assert [bool(row["sequence_uncertainty"]) for row in rows] == [True] * 2 + [False] * 6
    view = invoke(["check", str(tmp_path.with_suffix(".jsonl")), "-o", str(tmp_path.with_suffix(".view.html"))])
    assert view.exit_code == 0 and "2 answers" in view.stderr
    assert len(read_answers(tmp_path.with_suffix(".jsonl"))) == 2  # `label` and `calibrate` leave the others out

    strict = tmp_path.with_suffix(".strict.csv")
    done = invoke(["check", str(tmp_path), "-o", str(strict), "--strict"])
    assert done.exit_code == 1 and not strict.exists()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("indent", [None, 1])
def test_files_in_other_encodings_are_read(tmp_path: Path, encoding: str, indent: int | None) -> None:
    one = reply([("Zürich ", -0.1), ("東京", -0.2)])
    text = json.dumps(one, ensure_ascii=False, indent=indent)
    path = tmp_path / "one.json"
    for content, count in ((text, 1), (f"{text}\n", 1), (f"{text}\n{text}\n", 2), (f"[{text}, {text}]", 2)):
        path.write_bytes(content.encode(encoding))
        found = rank_replies([str(path)])
        assert [one.text for one in found.answers] == ["Zürich 東京"] * count and not found.refused


def chunks_of_ollama() -> list[dict[str, Any]]:
    """The chunks of a stream of Ollama's `/api/chat`, one a line in what it sends."""
    steps = TORN["choices"][0]["logprobs"]["content"]
    chunks = [{"model": "m", "message": {"content": one["token"]}, "done": False, "logprobs": [one]} for one in steps]
    end: dict[str, Any] = {"model": "m", "message": {"content": ""}, "done": True, "done_reason": "stop"}
    return [*chunks, end]


def chunks_of_openai(name: str) -> list[dict[str, Any]]:
    steps = TORN["choices"][0]["logprobs"]["content"]
    return [one | {"id": name} for one in (*map(chat_chunk, steps), chat_chunk(finish_reason="stop"))]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_lines_that_are_chunks_of_streams_are_joined(tmp_path: Path, encoding: str) -> None:
    """Two streams of Ollama's, two of OpenAI's, a whole reply, and a stream that broke off."""
    lines = [*chunks_of_ollama() * 2, *chunks_of_openai("a"), *chunks_of_openai("b"), SURE, *chunks_of_ollama()[:-1]]
    path = tmp_path / "streams.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding=encoding)
    found = rank_replies([str(path)])
    whole = sorted(one.response.text for one in found.answers)
    assert whole == ["It is Ankara"] * 4 + ["Lima"]
    [torn] = st.score_reply(TORN)
    assert all(
        one.response.log_confidence == pytest.approx(torn.log_confidence) for one in found.answers if one.text != "Lima"
    )
    [broken] = found.refused
    assert "ended before" in broken.reason


def test_json_as_python_writes_it_is_read(tmp_path: Path) -> None:
    one = json.loads(json.dumps(TORN))
    one["choices"][0]["logprobs"]["content"][1]["top_logprobs"][2]["logprob"] = -math.inf
    path = tmp_path / "lines.jsonl"
    path.write_text(f"{json.dumps(one)}\n{json.dumps(SURE)}\n")
    assert "Infinity" in path.read_text() and len(rank_replies([str(path)]).answers) == 2


@pytest.mark.parametrize(
    ("ids", "asked", "told"),
    [
        (["a", "b"], ["b", "a", "z"], "by id"),
        ([None, None], [None, None], "by order"),
        (["a", "b"], [None, None], "the questions none"),
        (["a", "b"], ["b", "x"], "Replies whose id no question has: 1, such as 'a'"),
        (["a", "b"], ["b", "b"], "more than once"),
        (["a", "b"], ["b", None], "1 of the questions have no id"),
        ([None, None], [None], "neither have ids"),
    ],
)
@pytest.mark.parametrize("own", [False, True])
def test_questions_are_joined_by_what_both_sides_have(
    tmp_path: Path, ids: list[str | None], asked: list[str | None], told: str, own: bool
) -> None:
    """By the ids of lines, and by the ids of the replies themselves, which are all that a raw reply has."""
    replies, questions = tmp_path / "replies.jsonl", tmp_path / "questions.jsonl"
    bodies = [SURE, TORN]
    if own:
        lines = [body | ({} if name is None else {"id": name}) for body, name in zip(bodies, ids, strict=True)]
        told = told.replace("the questions none", "by order")  # such ids are made up by the server and join no one
    else:
        lines = [{"response": body} | ({} if n is None else {"id": n}) for body, n in zip(bodies, ids, strict=True)]
    replies.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    texts = [{"question": f"of {n or i}"} | ({} if n is None else {"id": n}) for i, n in enumerate(asked)]
    questions.write_text("".join(f"{json.dumps(one)}\n" for one in texts))
    if not told.startswith("by"):
        with pytest.raises(InvalidInputError, match=told):
            rank_replies([str(replies)], questions=questions)
        return
    found = rank_replies([str(replies)], questions=questions)
    assert told in found.joined
    by_answer = {one.text: one.question for one in found.answers}
    expected = ["of a", "of b"] if "by id" in told else ["of 0", "of 1"]
    assert [by_answer[text] for text in ("Lima", "It is Ankara")] == expected


def test_the_terminal_shows_flags_and_says_no_nonsense(tmp_path: Path) -> None:
    bare = reply([("Lima", -0.01)])
    bare["choices"][0]["logprobs"]["content"][0]["top_logprobs"] = []
    odd = reply([("the", -9.0), (" ", -0.01), ("of", -8.0)])  # function words alone, and hardly likely
    done = invoke(["check", str(written(tmp_path, bare=bare, odd=odd))])
    assert done.exit_code == 0, done.output
    flags = [flag.message for one in rank_replies([str(tmp_path)]).answers for flag in one.response.flags]
    assert flags and all(flag in done.stdout for flag in flags)
    assert done.stdout.count("fairly sure of each") == 1  # said of Lima


def test_pieces_of_characters_are_shown_from_the_message() -> None:
    doubts = tuple(Doubt("", a, b, 0.5, ()) for a, b in ((0, 3), (4, 6), (7, 9)))
    moved, text = in_message(doubts, "It\ufffd is\ufffd\ufffd!", "It東 is大京!")
    assert text == "It東 is大京!" and [one.text for one in moved] == ["It東", "is", "大京!"]
    assert in_message(doubts, "plain text", "other text") == (doubts, "plain text")
    assert in_message(doubts, "no \ufffd match", "at all") == (doubts, "no \ufffd match")


def test_every_option_of_a_check_arrives_wherever_replies_are_checked() -> None:
    """The settings are one object; what is no setting says where replies come from and where they go."""
    options = set(inspect.signature(rank_replies).parameters) - {"sources", "questions", "on_checked"}
    assert options == {one.name for one in fields(CheckSettings)}
    vocabulary = as_tokens("almanac")
    assert isinstance(vocabulary, Vocabulary)
    chosen = CheckSettings(
        format="vllm-chat",
        schema={"properties": {}},
        keep_tokens=False,
        distribution="processed",
        vocabulary=vocabulary,
        rules=st.ScoringRules("paper"),
        methods=("perplexity",),
        temperature=0.5,
        answering_model="acme/model",
    )
    [(name, arrived)] = pickle.loads(pickle.dumps(checker(chosen))).keywords.items()
    assert name == "settings" and arrived.vocabulary.texts == vocabulary.texts  # it is compared by identity
    assert replace(arrived, vocabulary=vocabulary) == chosen
    assert all(getattr(chosen, one.name) != one.default for one in fields(chosen) if one.name != "calibrator")


@pytest.mark.parametrize(
    ("content", "told"), [("", "is empty"), ("nonsense", "is no JSON"), (b"\xff\xfe\x00", "not UTF-8")]
)
def test_files_that_are_no_replies_are_refused(tmp_path: Path, content: str | bytes, told: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InvalidInputError, match=told):
        rank_replies([str(path)])
    with pytest.raises(InvalidInputError, match="no file, folder or match"):
        rank_replies([str(tmp_path / "none*.json")])


def test_sources_may_be_paths_and_no_reply_is_one(tmp_path: Path) -> None:
    """A list of Paths was refused, and a reply in place of its file ended in an OSError for its length."""
    path = tmp_path / "x.json"
    path.write_text(json.dumps(SURE))
    assert [one.text for one in rank_replies([path])] == [one.text for one in rank_replies(path)] == ["Lima"]
    with pytest.raises(InvalidInputError, match=r"no file, folder or match for .*: File name too long"):
        rank_replies(path.read_text() + " " * 5000)


@pytest.mark.parametrize("ending", ["html", "md", "csv", "jsonl"])
def test_the_command_writes_what_the_ending_says(tmp_path: Path, ending: str) -> None:
    folder = tmp_path / "replies"
    folder.mkdir()
    hostile = reply([("<b>|", -0.01), ("x", -2.0)])
    written(folder, a=SURE, b=TORN, c=hostile)
    target = tmp_path / f"out.{ending}"
    done = invoke(["check", str(folder), "--limit", "2", "-o", str(target)])
    assert done.exit_code == 0, done.output
    text = target.read_text(encoding="utf-8")
    if ending == "csv":
        assert [row["rank"] for row in csv.DictReader(text.splitlines())] == ["1", "2", "3"]
    elif ending == "jsonl":
        assert [json.loads(line)["rank"] for line in text.splitlines()] == [1, 2, 3]
    else:
        assert "Istanbul" in text and "<b>" not in text
    if ending == "md":
        assert "&lt;b\\>\\|" in text
    if ending == "html":
        assert len(text) < 95_000 and "\\u003cb>" in text


def run(*arguments: object) -> str:
    done = invoke([*map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.output


def decided(folder: Path, make: Callable[[float], Any], *options: object) -> list[dict[str, Any]]:
    """Replies -> table -> labels -> calibrator -> decisions, as the page of the documentation says: the last table.

    `make` gives a reply of a drawn probability.
    """
    draw = random.Random(0)
    source, answers, calibrator = (folder / name for name in ("many.jsonl", "answers.csv", "calibrator"))
    drawn = [draw.uniform(0.2, 0.999) for _ in range(80)]
    lines = [{"id": str(i), "question": f"Q{i}?", "response": make(p)} for i, p in enumerate(drawn)]
    source.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    run("check", source, *options, "-o", answers)
    rows = [dict(record.fields) for record in read_records(answers)]
    for row in rows:
        row["correct"] = int(draw.random() < float(row["confidence"]))
    write_records(folder / "labeled.csv", rows)
    run("calibrate", folder / "labeled.csv", "-o", calibrator, "--alpha", "0.4")
    run("check", source, *options, "-o", folder / "decided.csv", "--calibrator", calibrator)
    found = [dict(record.fields) for record in read_records(folder / "decided.csv")]
    probabilities = [float(row["probability_correct"]) for row in found]
    assert probabilities == sorted(probabilities)
    return found


def test_a_calibrator_of_labeled_answers_decides_on_the_next_replies(tmp_path: Path) -> None:
    def made(p: float) -> Any:
        return reply([("It is ", -0.01), ("X", math.log(p))], others={1: [("Other", math.log(1 - p) - 1e-3)]})

    assert {row["decision"] for row in decided(tmp_path, made)} == {"answer", "abstain"}


def test_a_request_beside_a_reply_says_what_was_asked(tmp_path: Path) -> None:
    written(tmp_path, a=SURE, b=TORN)
    request = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Capital of Peru?"}]}]}
    (tmp_path / "a.request.json").write_text(json.dumps(request), encoding="utf-8")
    saved = [one.read() for one in OpenedReplies([str(tmp_path)])]
    assert {one.id: one.question for one in saved} == {"a": "Capital of Peru?", "b": None}


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(("stop", "told"), [("###", False), ("elsewhere", True)])
def test_the_stop_string_of_a_saved_request_tells_where_the_answer_ends(
    tmp_path: Path, beside: bool, stop: str, told: bool
) -> None:
    """Tokens behind the answer that no stop string explains are flagged."""
    cut = reply([("Lima", -0.1), ("###", -0.2), (" more", -0.3)])
    cut["choices"][0]["message"]["content"] = "Lima"
    request = {"messages": [{"role": "user", "content": "Capital of Peru?"}], "stop": [stop]}
    (tmp_path / "a.json").write_text(json.dumps(cut if beside else {"request": request, "response": cut}))
    if beside:
        (tmp_path / "a.request.json").write_text(json.dumps(request))
    [found] = rank_replies([str(tmp_path)]).answers
    assert any("not in the message" in flag.message for flag in found.response.flags) == told


def test_a_reply_takes_little_memory_once_it_is_scored(tmp_path: Path) -> None:
    """Parsed it takes several times its text, and the records of its tokens as much again."""
    tokens = [(f" word{i}", -0.5) for i in range(30)]
    others = {i: [(f" other{i}{k}", -2.0 - k) for k in range(6)] for i in range(30)}
    line, path = json.dumps(reply(tokens, others=others)), tmp_path / "lines.jsonl"
    path.write_text(f"{line}\n")
    rank_replies([str(path)])  # loads what is loaded once
    path.write_text(f"{line}\n" * 20)
    tracemalloc.start()
    try:
        found = rank_replies([str(path)], keep_tokens=False)
        _, peak = tracemalloc.get_traced_memory()
        gc.collect()  # else chance decides how much of what is left is waste
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.answers) == 20
    assert left / 20 < len(line) / 3 and peak / 20 < 2.5 * len(line), (
        f"{len(line)} bytes, {left / 20:.0f}, {peak / 20:.0f}"
    )


def test_an_answer_weighs_little_on_the_page(tmp_path: Path) -> None:
    """A tenth of the 30 kB that an answer with its tokens took: measured as what 9 more answers add."""
    draw = random.Random(0)
    lines = []
    for number in range(10):
        shares = [draw.uniform(0.2, 0.99) for _ in range(60)]
        tokens = [(f" word{draw.randrange(1000)}", math.log(share)) for share in shares]
        others = {
            i: [(f" other{i}{k}", math.log((1 - share) * 0.5**k) - 1e-3) for k in range(1, 6)]
            for i, share in enumerate(shares)
        }
        lines.append({"id": str(number), "question": f"Question {number}?", "response": reply(tokens, others=others)})
    sizes = []
    for count in (1, 10):
        source, page = tmp_path / f"{count}.jsonl", tmp_path / f"{count}.html"
        source.write_text("\n".join(map(json.dumps, lines[:count])), encoding="utf-8")
        assert invoke(["check", str(source), "-o", str(page)]).exit_code == 0
        sizes.append(page.stat().st_size)
    assert (sizes[1] - sizes[0]) / 9 < 3_000, f"{(sizes[1] - sizes[0]) / 9:.0f} bytes an answer"


def test_a_shape_may_keep_everything_under_a_name_that_saved_lines_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Pieces(OpenAIChat):
        formats: ClassVar[dict[str, str]] = {"pieces": "pieces"}

        @classmethod
        def detects(cls, replies: Sequence[Any]) -> bool:
            return "pieces" in replies[0].get("reply", {})

    monkeypatch.setattr("semtoken.replies.formats.registry.known_shapes", lambda: (*known_shapes(), Pieces))
    own: dict[str, Any] = {"reply": {"pieces": []}}
    of_another: dict[str, Any] = {"id": "7", "reply": {"choices": []}}
    path = write_lines(tmp_path / "lines.jsonl", (own, of_another))
    first, second = (one.read() for one in OpenedReplies([str(path)]))
    assert first.reply == own
    assert (second.reply, second.id) == ({"choices": []}, "7")


def test_a_check_seldom_looks_for_garbage(tmp_path: Path) -> None:
    """A reply is thousands of objects, all of which go with it, and a user's process may hold a million others."""

    def collections() -> int:
        return sum(generation["collections"] for generation in gc.get_stats())

    path = tmp_path / "replies.jsonl"
    path.write_text(f"{json.dumps(TORN)}\n" * 200)
    before, thresholds = collections(), gc.get_threshold()
    rank_replies([str(path)], keep_tokens=False)
    assert collections() - before <= 2 and gc.get_threshold() == thresholds
