"""The gate for tool calls: the calls that a reply proposes, one by one, and for each whether it may run.

    proposed_calls(reply) -> your predicate about `call.state(messages)` -> gate(calls, answers, calibrator)

A call runs only if nothing speaks against it. What speaks against one is never an error but a reason to ask a person.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from semtoken.choices import SegmentKind
from semtoken.core.parts import CallConfidence, Part, ToolCall, call_confidences
from semtoken.core.parts.fields import ARGUMENTS
from semtoken.core.parts.json_values import all_json
from semtoken.core.results import ScoredAnswer
from semtoken.decisions.answers import Answer
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.questions import ReadingOptions
from semtoken.decisions.records import DecisionRecord
from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.replies import Reply, ReplyChoice, read_reply, score_reply
from semtoken.replies.segments import is_whole
from semtoken.support.files.strict_json import dump_json, parse_json
from semtoken.support.inputs import instance, listed, real
from semtoken.support.text import with_noun

LEAST = 0.8
"""A person looks at a call with a part of less confidence, however the predicate is answered."""
CUT_OFF = "the answer was cut off"
END_UNKNOWN = "it is not known whether the answer was cut off"
NO_OBJECT = "its arguments are no whole JSON object with each name once"
UNCLEAR = "the answer is not whole tool calls as JSON, and nothing else"
_MARKUP = re.compile(r"<[^<>]*>|\[/?[A-Z_]+\]|```\w*")
"""The markup that models write around a call: <tool_call>, [TOOL_CALLS], a fence."""


@dataclass(frozen=True)
class ProposedCall:
    """One tool call that a model proposes."""

    name: str
    """The name of the function to call."""
    written: str
    """Its arguments as the server gave them or the model wrote them."""
    arguments: Mapping[str, Any] | None
    """The same, decoded; None where they are no whole JSON object."""
    parts: tuple[Part, ...]
    """Its name and the values of its arguments, with their confidences."""
    choice: int = 0
    """The number of the answer in the reply that holds it, from 0."""
    doubt: str | None = None
    """Why it may not run, whatever the numbers say; None if nothing is known."""

    @property
    def confidence(self) -> CallConfidence | None:
        """The product over its name and argument values, and the weakest of them; None where there are no parts."""
        return next(iter(call_confidences(self.parts)), None)

    def state(self, conversation: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The state to ask a predicate about: the messages of the conversation that led to this call, then this call.

        Other calls of the same reply are not in it.
        """
        arguments = self.written if self.arguments is None else dict(self.arguments)
        call = {"type": "function_call", "call_id": "1", "name": self.name, "arguments": arguments}
        return [*map(dict, conversation), call]


@dataclass(frozen=True)
class CallVerdict:
    """The decision whether one call may run, with its reason."""

    runs: bool
    """True: run it. False: ask a person."""
    reason: str
    """The guarantee for a call that runs, else what speaks against it."""

    def __str__(self) -> str:
        return f"{'run it' if self.runs else 'ask a person'}: {self.reason}"


def proposed_calls(reply: Any) -> list[ProposedCall]:
    """Every tool call in a reply, choice after choice, with what speaks against running it.

    The calls are those that the server gives apart (`message.tool_calls`), since programs run these. If a choice has
    none, they are read from the text of its answer, which then may hold nothing but calls.

    Parameters
    ----------
    reply
        Whatever `read_reply` reads, or what it made of it; or an answer of `ScoredModel.generate`.

    Returns
    -------
    list of ProposedCall
        In the order of the reply. Empty where no call was proposed.

    Raises
    ------
    InvalidInputError
        The reply cannot be read.
    """
    if isinstance(reply, ScoredAnswer):
        doubt = None if reply.truncated is False else CUT_OFF if reply.truncated else END_UNKNOWN
        parts, why = _parts_of(reply)
        return list(_spelled(reply.text, parts, 0, doubt or why))
    parsed_reply = reply if isinstance(reply, Reply) else read_reply(reply)
    return [
        call for choice in parsed_reply.choices for call in _calls_of(replace(parsed_reply, choices=(choice,)), choice)
    ]


def gate(
    calls: Sequence[ProposedCall],
    answers: Sequence[Answer | None],
    calibrator: DecisionCalibrator | None,
    *,
    least: float = LEAST,
    options: ReadingOptions | None = None,
) -> list[CallVerdict]:
    """For each call whether it may run: nothing speaks against it, no part is in doubt, and a guarantee covers it.

    Parameters
    ----------
    calls
        What `proposed_calls` gives.
    answers
        For each call the answer to your predicate about its `state`, in the same order; None where there is none. An
        answer about several calls is evidence for none of them: if there are not as many answers as calls, none runs.
    calibrator
        Fitted on labeled answers to this predicate; without one, nothing runs.
    least
        The least confidence of the name and of each argument, in [0, 1]. It guarantees nothing.
    options
        How the answers were read. Default: `ReadingOptions()`.

    Returns
    -------
    list of CallVerdict
        One for each call.

    Raises
    ------
    InvalidInputError
        A question that is no predicate, or a `least` outside of [0, 1].
    """
    limit = real(least, "least", low=0.0, high=1.0)
    given = [instance(call, ProposedCall, f"calls[{i}]") for i, call in enumerate(listed(calls, "calls"))]
    said = listed(answers, "answers")
    # Nobody can tell which of the calls an answer is about.
    if len(said) != len(given):
        counts = f"{with_noun(len(given), 'call')} and {with_noun(len(said), 'answer')} to whether they may run"
        return [
            CallVerdict(False, call.doubt or f"there are {counts}: ask about each call by itself") for call in given
        ]
    how = options or ReadingOptions()
    return [_verdict(call, answer, calibrator, limit, how) for call, answer in zip(given, said, strict=True)]


def _verdict(
    call: ProposedCall,
    answer: Answer | None,
    calibrator: DecisionCalibrator | None,
    least: float,
    options: ReadingOptions,
) -> CallVerdict:
    if call.doubt is not None:
        return CallVerdict(False, call.doubt)
    weak = [part for part in call.parts if part.confidence is None or part.confidence < least]
    if weak or not call.parts:
        return CallVerdict(
            False, f"{weak[0].path} is in doubt" if weak else "nothing is known of its name and arguments"
        )
    if answer is None or answer.refusal is not None:
        return CallVerdict(False, "no answer says whether it may run")
    if answer.question.kind != "predicate":
        raise InvalidInputError(
            f"Whether a call may run is a predicate. Got the kind {answer.question.kind!r} instead."
        )
    if calibrator is None:
        return CallVerdict(False, "no calibrator says what the probability is worth")
    block = calibrator.block(DecisionRecord(answer, options))
    if "probability_correct" not in block:
        return CallVerdict(False, block["guarantee"])
    # A guarantee covers the answer no as well: being sure that a call must not run is no reason to run it.
    if not answer.value:
        return CallVerdict(False, "the model says no")
    if block["decision"] != "answer":
        return CallVerdict(False, "the model is less sure than the guarantee needs")
    return CallVerdict(True, block["guarantee"])


def _calls_of(parsed_reply: Reply, choice: ReplyChoice) -> Iterator[ProposedCall]:
    """The calls of one choice, which is all that the reply holds."""
    end = END_UNKNOWN if choice.finish_reason is None else f"{CUT_OFF} (its end: {choice.finish_reason!r})"
    doubt = None if is_whole(choice.finish_reason) else end
    segment = choice.segment("tool_call" if choice.calls else "answer")
    if segment is None:
        return
    parts, why = _parts_of(parsed_reply, segment.kind, choice.calls or None)
    if not choice.calls:
        yield from _spelled(segment.text, parts, choice.index, doubt or why)
    for number, call in enumerate(choice.calls):
        arguments = _decode(call.arguments)
        whole = arguments if isinstance(arguments, dict) else None
        own = tuple(part for part in parts if part.call == number)
        against = doubt or (NO_OBJECT if whole is None else why)
        yield ProposedCall(call.name, call.arguments, whole, own, choice.index, against)


def _parts_of(
    source: Reply | ScoredAnswer, segment: SegmentKind = "answer", calls: Sequence[ToolCall] | None = None
) -> tuple[list[Part], str | None]:
    """The names and values of all calls of one answer; none, and the reason, where their confidence is not known."""
    try:
        answer = source if isinstance(source, ScoredAnswer) else score_reply(source, segment=segment)[0]
        return answer.parts(by="tool_call", calls=calls), None
    except SemtokenError as error:  # no log-probabilities, a broken stream, a text that takes too long
        return [], str(error)


def _spelled(text: str, parts: Sequence[Part], choice: int, doubt: str | None) -> Iterator[ProposedCall]:
    """The calls that a text spells; it is to hold nothing else. `parts` are empty where nothing is known of them."""
    calls, alone = _read(text)
    numbers = sorted({part.call for part in parts if part.call is not None}) or range(len(calls))
    readable = alone and len(calls) == len(numbers)
    for place, number in enumerate(numbers):
        own = tuple(part for part in parts if part.call == number)
        if readable:
            name, arguments = calls[place]
            yield ProposedCall(name, dump_json(arguments).decode(), arguments, own, choice, doubt)
        else:
            name = next((str(part.value) for part in own if part.kind == "tool_name"), "")
            yield ProposedCall(name, text, None, own, choice, doubt or UNCLEAR)


def _read(text: str) -> tuple[list[tuple[str, dict[str, Any]]], bool]:
    """Name and arguments of each call that a text spells, and whether it holds whole calls and nothing else."""
    calls, beside, end = [], [], 0
    alone = True
    for document in all_json(text):
        start, stop = document.begin or 0, len(text) if document.end is None else document.end
        value = _decode(text[start:stop])
        for item in value if isinstance(value, list) else [value]:
            given = item if isinstance(item, dict) else {}
            arguments = next((given[key] for key in ARGUMENTS if key in given), None)
            if isinstance(given.get("name"), str) and isinstance(arguments, dict):
                calls.append((given["name"], arguments))
            else:
                alone = False
        beside.append(text[end:start])
        end = stop
    words = _MARKUP.sub("", "".join([*beside, text[end:]]))
    return calls, alone and not words.strip()


def _decode(text: str) -> Any:
    """The value of a JSON text; None if it is none, or names something twice, since readers of JSON differ there."""
    try:
        parse_json(text)
        return json.loads(text, object_pairs_hook=_each_once)
    except ValueError:
        return None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name is there twice")
    return dict(pairs)
