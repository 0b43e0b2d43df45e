"""Small numbers around decisions, by hand: bounds from a list, lengths of requests, usage, sizes, defaults."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from semtoken.cli.settings import GuaranteeSection
from semtoken.decisions import Choice, DecisionRequest, Predicate, Question, ReadingOptions, Score
from semtoken.decisions.answers import Answer
from semtoken.decisions.asked_texts import asked_texts
from semtoken.decisions.audit_results import SetAudit, SideAudit
from semtoken.decisions.deciding import prepare, run_to_end, shared_size
from semtoken.decisions.options import PredictionSets
from semtoken.decisions.prompts import OrderedQuestion, plain_tokens, prompt_tokens
from semtoken.decisions.reading import PreparedPrompt, _of_list, _of_row, option_masses
from semtoken.decisions.remote import asker_of_endpoint
from semtoken.decisions.spellings import OptionReader, OptionSpelling
from semtoken.decisions.wire.extension import WireRequest
from semtoken.decisions.wire.shapes import OPENAI, SGLANG, SYSTEM_ONE
from semtoken.errors import InvalidInputError, InvalidLogits
from semtoken.guarantees.auditing import AuditLimits
from semtoken.guarantees.drift import Drift
from semtoken.guarantees.judge import KINDS, Claim, Share, judge
from semtoken.methods.observers.steps import Observer, Step
from semtoken.replies import read_reply
from tests.decisions.models import tiny
from tests.rows import each
from tests.tiny import byte_level_bpe


def test_an_unlisted_token_has_at_most_what_is_left_and_what_the_last_one_has() -> None:
    ids = np.array([3, 5, 9])
    low, high = _of_list(np.array([5, 2]), np.log([0.5, 0.3]), ids)
    assert low.tolist() == [-math.inf, math.log(0.5), -math.inf]
    assert np.exp(high) == pytest.approx([0.2, 0.5, 0.2])
    low, high = _of_list(np.array([5, 2]), np.log([0.5, 0.1]), ids)
    assert np.exp(high) == pytest.approx([0.1, 0.5, 0.1])
    assert np.exp(_of_list(np.array([5]), np.array([0.0]), ids)[1]) == pytest.approx([0.0, 1.0, 0.0], abs=1e-12)


@each(
    ("question", "reading", "length"),
    [
        (Predicate("So?"), "labels", 1),
        (Predicate("So?"), "words", 1),
        (Choice("Which?", ["red", "green"]), "labels", 1),
        (Choice("Which?", ["red", "green"]), "words", 5),
        (Score("How?", ["low", "high"]), "labels", 1),
        *((Choice("Which?", ["b", "a" * longest]), "words", min(longest, 16)) for longest in (15, 16, 17)),
    ],
)
def test_a_server_is_asked_for_as_many_tokens_as_an_answer_can_need(
    question: Question, reading: Any, length: int
) -> None:
    """At most 16, each with 20 log-probabilities; and ten minutes are waited."""
    ask: Any = asker_of_endpoint("http://localhost:1/v1/chat/completions")
    assert ask.top == 20 and ask.server.client._client.timeout.read == 600
    for text in asked_texts("x", [question], ReadingOptions(reading)).texts:
        body = text.request(ask.shape, "a state", top=ask.top, model="m")
        assert body["max_tokens"] == length and body["temperature"] == (1.0 if length == 1 else 0.0)


def test_what_replies_say_of_their_tokens() -> None:
    questions = (Predicate("So?", name="a"),)
    request = WireRequest("m", "state", questions, None, {"questions": {"a": {}}})
    answers = [Answer(questions[0], (0.7, 0.3), 0.9)]
    told = OPENAI.reply(request, "m", answers, None, [{}], 42)["usage"]
    assert told == {
        "input_tokens": 42,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 42,
    }
    other = SGLANG.reply(request, "m", answers, None, [{}], 42)
    assert other["usage"] == {"prompt_tokens": 42, "completion_tokens": 0, "total_tokens": 42}
    assert other["prompt_format_version"] == 1
    assert SYSTEM_ONE.reply(request, "m", answers, None, [{}], 42)["usage"] == {"input_tokens": 42, "output_tokens": 0}


def test_shared_beginnings_count_once() -> None:
    assert shared_size([[1, 2, 3], [1, 2, 4, 5], [1, 2, 4, 5], [9]]) == 3 + 2 + 0 + 1
    asked = DecisionRequest("A letter.", [Predicate("Is it late?"), Predicate("Is it so?")])
    prepared = prepare(tiny(), asked)
    assert prepared.input_tokens == shared_size([prompt.ids for prompt in prepared.prompts])


def test_settings_have_the_usual_levels() -> None:
    usual = GuaranteeSection()
    assert (usual.alpha, usual.delta, usual.kind) == (0.1, 0.1, "selective_risk")
    options = ReadingOptions()
    assert (options.reading, options.orders) == ("labels", 1)


def test_a_prompt_gets_no_token_that_the_tokenizer_would_put_around_a_text() -> None:
    from tokenizers.processors import TemplateProcessing

    own = byte_level_bpe()
    plain = plain_tokens(own, "Is it late?")
    assert own("<|end|>")["input_ids"] == [0] and 0 not in plain_tokens(own, "a<|end|>b"), "it stays plain text"
    before = own.backend_tokenizer.post_processor
    try:
        own.backend_tokenizer.post_processor = TemplateProcessing(single="<|end|> $A", special_tokens=[("<|end|>", 0)])
        assert own("Is it late?")["input_ids"] == [0, *plain]
        assert plain_tokens(own, "Is it late?") == plain
    finally:
        own.backend_tokenizer.post_processor = before


def test_control_tokens_are_refused_where_a_tokenizer_cannot_read_them_as_text() -> None:
    own = pytest.importorskip("transformers").ByT5Tokenizer()
    assert plain_tokens(own, "ab") == [ord("a") + 3, ord("b") + 3]  # bytes behind three control tokens
    with pytest.raises(InvalidInputError, match="holds '</s>', which is a control token"):
        plain_tokens(own, "a</s>b")

    class Older:
        """The tokenizer as releases of transformers have it that cannot clean a text."""

        def __getattr__(self, name: str) -> Any:
            if name == "_get_control_tokens":
                raise AttributeError(name)
            return getattr(own, name)

        def __call__(self, text: str, **options: Any) -> Any:
            return own(text, **options)

    own.chat_template = "({{ messages[0]['content'] }}){% if add_generation_prompt %}:{% endif %}"
    assert prompt_tokens(Older(), "ab") == [ord(letter) + 3 for letter in "(ab):"]
    with pytest.raises(InvalidInputError, match="holds '</s>', which is a control token"):
        prompt_tokens(Older(), "a</s>b")


@pytest.mark.parametrize(("share", "read"), [(0.011, True), (0.009, False)])
def test_spellings_of_a_hundredth_of_the_likeliest_are_read_on(share: float, read: bool) -> None:
    nothing = np.empty(0, dtype=np.int64)
    reader = OptionReader([OptionSpelling(((10,), (11, 12)), nothing)])
    start = np.log([0.5, 0.5 * share])
    assert ((11,) in reader.first((start, start))) == read


@each(
    ("limits", "said"),
    [
        ({}, []),
        ({"distance": 0.11}, ["The distance exceeds the limit of 0.11."]),
        ({"accepted": 0.952}, ["It accepts fewer than the limit of 95.2%."]),  # the exact interval of 90 ends at 95.1%
        ({"undecided": False}, ["The limits ask for labels that can tell."]),
    ],
)
def test_a_side_says_which_limits_it_does_not_keep(limits: dict[str, Any], said: list[str]) -> None:
    """The ends of the intervals, which decide, are tested with the limits."""
    drift, fired = Drift(0.2, 0.12, 0.4, 400, 100), Share(90, 100)
    one: Any = SimpleNamespace(fitted=SimpleNamespace(claim="one"), verdict="cannot be told", drift=drift, fired=fired)
    assert SideAudit.exceeded(one, AuditLimits(**limits)) == said
    one.fitted.claim = None
    assert SideAudit.exceeded(one, AuditLimits(**limits)) == []


@each("alpha", [0.1, 0.25])
@each("fitted", [3, 7, 19, 60])
def test_sets_do_not_hold_where_so_many_misses_are_rarer_than_one_in_twenty(fitted: int, alpha: float) -> None:
    """A fit on n labels misses a share of Beta(a, n + 1 - a), a = alpha (n + 1): probabilities of k misses in
    gammas."""
    a = alpha * (fitted + 1)
    b = fitted + 1 - a

    def probability_correct(k: int, n: int) -> float:
        logs = [math.lgamma(x) for x in (k + a, n - k + b, a + b)] + [-math.lgamma(x) for x in (n + a + b, a, b)]
        return math.comb(n, k) * math.exp(sum(logs))

    for n in (1, 5, 40):
        at_least = 1.0
        for missed in range(n + 1):
            for own in (0, 2):  # labels of thresholds of their own count, too
                sets = PredictionSets(alpha, (0.2, 0.2), (own, 0), fitted - own)
                found = SetAudit("q", sets, Share(n - missed, n), 1.5)
                [verdict] = judge([(found.claim, found.missed)])
                assert (verdict == "does not hold") == (at_least < 0.05), (n, missed)
            at_least -= probability_correct(missed, n)


@each(
    ("wrong", "of", "alpha", "delta", "verdict"),
    [  # none of n wrong: at most 1 - delta^(1/n) are, with confidence 1 - delta; all of n: a probability of alpha^n
        (0, 22, 0.1, 0.1, "holds"),  # 1 - 0.1^(1/22) = 0.0994
        (0, 21, 0.1, 0.1, "cannot be told"),  # 0.1039
        (0, 29, 0.1, 0.05, "holds"),  # 0.0981
        (0, 28, 0.1, 0.05, "cannot be told"),  # 0.1015
        (2, 2, 0.22, 0.1, "does not hold"),  # 0.22^2 = 0.0484, at a level of 0.05 whatever delta is
        (2, 2, 0.23, 0.1, "cannot be told"),  # 0.0529
        (2, 2, 0.22, 0.01, "does not hold"),
        (0, 0, 0.1, 0.1, "nothing was measured"),
    ],
)
def test_a_guarantee_holds_or_not_by_exact_tests_on_its_own_side_of_the_share(
    wrong: int, of: int, alpha: float, delta: float, verdict: str
) -> None:
    assert judge([(Claim(KINDS["selective_risk"], alpha, delta), Share(wrong, of))]) == [verdict]


def logs(*probabilities: float) -> np.ndarray[Any, Any]:
    with np.errstate(divide="ignore"):
        return np.array(np.log(probabilities))


def at(path: tuple[int, ...], **known: tuple[float, float]) -> dict[Any, Any]:
    """Least and greatest log-probability of tokens behind a path."""
    return {path: {int(token[1:]): (math.log(low), math.log(high)) for token, (low, high) in known.items()}}


def test_masses_of_options_are_sums_over_their_spellings() -> None:
    none = np.empty(0, dtype=np.int64)
    one = OptionSpelling(((1,), (2,), (3, 4)), none)
    other = OptionSpelling(((5,), (6, 7, 8), (9, 4, 2)), none)
    reader = OptionReader([one, other])
    assert reader.first_tokens.tolist() == [1, 2, 3, 5, 6, 9]
    start = logs(0.2, 0.1, 0.05, 0.3, 0.001, 0.1)  # 6 has less than a hundredth of what 5 has: it is not read on
    wanted = reader.first((start, start))
    over = OptionReader([OptionSpelling(((1,), (2,)), none)])
    over.first((logs(0.6, 0.41), logs(0.6, 0.41)))
    assert [end.tolist() for end in over.masses({})] == [[1.0], [1.0]]
    assert {path: ids.tolist() for path, ids in wanted.items()} == {(3,): [4], (9,): [4], (9, 4): [2]}
    further = at((3,), t4=(0.5, 0.5)) | at((9,), t4=(0.25, 0.25)) | at((9, 4), t2=(0.5, 0.8))
    low, high = reader.masses(further)
    assert low == pytest.approx([0.3 + 0.05 * 0.5, 0.3 + 0.1 * 0.25 * 0.5])
    assert high == pytest.approx([0.3 + 0.05 * 0.5, 0.3 + 0.1 * 0.25 * 0.8 + 0.001])


def test_an_option_that_others_go_on_from_counts_as_far_as_the_model_stops_there() -> None:
    york = OptionSpelling(((1,), (4,), (2, 3)), np.array([5, 6]))
    reader = OptionReader([york])
    start = logs(0.4, 0.2, 0.002)  # of 1, 2 and 4, the last of which is not read on
    wanted = reader.first((start, start))
    assert {path: ids.tolist() for path, ids in wanted.items()} == {(1,): [5, 6], (2,): [3], (2, 3): [5, 6]}
    further = (
        at((1,), t5=(0.1, 0.2), t6=(0.3, 0.3)) | at((2,), t3=(0.5, 0.5)) | at((2, 3), t5=(0.6, 0.7), t6=(0.3, 0.6))
    )
    low, high = reader.masses(further)
    assert low == pytest.approx([0.4 * (1 - 0.5)])  # behind 2 and 3 all may go on
    assert high == pytest.approx([0.4 * (1 - 0.4) + 0.2 * 0.5 * (1 - 0.9) + 0.002])
    surely = at((1,), t5=(1, 1), t6=(1e-9, 1e-9)) | at((2,), t3=(0.5, 0.5)) | at((2, 3), t5=(0.4, 0.4), t6=(0.6, 0.6))
    low, high = reader.masses(surely)
    assert low == pytest.approx([0]) and high == pytest.approx([0.002])


def test_log_probabilities_of_a_row_leave_its_padding_out() -> None:
    torch = pytest.importorskip("torch")
    row = np.array([800.0, 801.0, 799.0, 5000.0])
    wanted = np.log(np.exp([1.0, -1.0]) / np.exp([0.0, 1.0, -1.0]).sum())
    for given in (row, torch.tensor(row, dtype=torch.float32)):
        low, high = _of_row(given, np.array([1, 2]), 3)
        assert low == pytest.approx(wanted, abs=1e-4) and high == pytest.approx(wanted, abs=1e-4)
    for bad in (math.nan, math.inf):
        with pytest.raises(InvalidLogits), np.errstate(invalid="ignore"):
            _of_row(np.array([0.0, bad]), np.array([0, 1]), 2)


@pytest.mark.parametrize("count", [0, 1, 32, 33, 64, 65])
def test_thirty_two_texts_are_read_together_by_engines_without_trees(count: int) -> None:
    together: list[list[int]] = []

    class Engine:
        """Gives three tokens the same probability."""

        def read(self, prompts: Any, replies: Any, observers: list[Observer], **options: Any) -> None:
            together.append([ids[0] for ids in prompts])
            for observer, (number, [token]) in itertools.product(observers, enumerate(replies)):
                observer.observe(Step([number], [token], 3, np.zeros((1, 3)), [0]))

    none = np.empty(0, dtype=np.int64)
    spellings = (OptionSpelling(((1,),), none), OptionSpelling(((2,),), none))
    shown = OrderedQuestion(Predicate("Is it so?"), (0, 1), "labels")
    engine: Any = Engine()
    prompts = [PreparedPrompt(0, shown, (number,), spellings) for number in range(count)]
    masses = run_to_end(option_masses(engine, prompts))
    assert [number for some in together for number in some] == list(range(count)) and len(masses) == count
    assert [len(some) for some in together] == [32] * (count // 32) + [count % 32] * bool(count % 32)
    assert np.ravel(masses) == pytest.approx([1 / 3] * 4 * count)


def test_masses_are_in_the_questions_order_and_of_the_first_text_of_a_reply() -> None:
    def said(index: int, *tokens: tuple[str, float]) -> dict[str, Any]:
        listed = [{"token": text, "logprob": math.log(p)} for text, p in tokens]
        content = [listed[0] | {"top_logprobs": listed}]
        return {
            "message": {"role": "assistant", "content": tokens[0][0]},
            "logprobs": {"content": content},
            "index": index,
        }

    reply = read_reply({"choices": [said(0, ("red", 0.5), ("green", 0.3), ("blue", 0.2)), said(1, ("blue", 1.0))]})
    texts = asked_texts("x", [Choice("Which?", ["red", "green", "blue"])], ReadingOptions("words", 3)).texts
    assert len({text.shown.order for text in texts}) == 3
    for text in texts:
        low, high = text.masses(reply)
        assert low == pytest.approx([0.5, 0.3, 0.2]) and high == pytest.approx([0.5, 0.3, 0.2])


def test_addresses_of_a_whole_api() -> None:
    for known in ("http://localhost:1", "http://localhost:1/", "https://localhost/v1", "http://localhost/own/v1/"):
        assert callable(asker_of_endpoint(known))
    with pytest.raises(InvalidInputError, match="An endpoint ends with /v1"):
        asker_of_endpoint("http://localhost/other")
    with pytest.raises(InvalidInputError, match="must be like http"):
        asker_of_endpoint("ftp://localhost/v1")


def test_a_question_none_of_whose_options_was_listed_has_no_answer_but_a_reason() -> None:
    questions = [Predicate("So?"), Predicate("And?")]
    found = asked_texts("x", questions, ReadingOptions()).answers(
        [(np.zeros(2), np.array([0.1, 0.1])), (np.array([0.6, 0.2]), np.array([0.6, 0.2]))]
    )
    assert [one.question for one in found] == questions
    assert found[0].refusal is not None and found[0].refusal.startswith("None of its options is surely among")
    assert found[0].probabilities == () and found[1].probabilities == pytest.approx((0.75, 0.25))
