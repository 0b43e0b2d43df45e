"""A language model as the judge, with the paper's prompt."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from semtoken.bench.judges.base import AnswerToJudge, OnJudged, Verdict
from semtoken.bench.judges.endpoint import Endpoint, Usage

DEFAULT_JUDGE_MODEL = "gpt-4.1-2025-04-14"
"""The model that judged answers in the paper."""
SYSTEM = """# Task
Evaluate whether the proposed answer to the question is correct based on real-world factual knowledge. \
Reference answers are provided to assist in your evaluation.

# Output
Respond strictly with a single token:
- `True' if the proposed answer is correct.
- `False' if the proposed answer is incorrect or only partially correct."""
_AROUND = " \t\r\n'\"`.,"
_VERDICTS = {"true": 1.0, "false": 0.0}


@dataclass
class LLMJudge:
    """Asks a language model whether an answer is correct; also about empty answers, as the paper names no exception.

    Each reference answer stands on a line of its own, in the order of the question set. A reply counts as True or False
    in any case and with blanks, quotes, full stops or commas around it; every other reply is NaN.
    """

    model: str = DEFAULT_JUDGE_MODEL
    endpoint: Endpoint = field(default_factory=Endpoint)
    temperature: float | None = 0.0
    """Temperature of the reply. None: not sent, for models that refuse it."""
    max_tokens: int | None = 16
    """Most tokens of a reply. None: not sent."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """More fields of the request, such as `{"reasoning_effort": "low"}`."""
    name: str = "llm"
    spent: Usage = field(default_factory=Usage, init=False)
    """What this object asked for. Replies from disk are not in it."""
    relied_on: Usage = field(default_factory=Usage, init=False)
    """All replies behind its verdicts, those from disk too: what they cost when they were asked for."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The model, its address and the form of the request. Speed, folders and the key do not decide verdicts."""
        return {"kind": "llm", "url": self.endpoint.url, "system": SYSTEM, **self._options, "model": self.model}

    @property
    def _options(self) -> dict[str, Any]:
        options = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        return {name: value for name, value in options.items() if value is not None} | dict(self.extra)

    def judge(self, items: Sequence[AnswerToJudge], on_judged: OnJudged | None = None) -> list[Verdict]:
        """Judge answers by a language model; each verdict holds the text of the model's reply.

        Raises
        ------
        BackendError
            The endpoint failed, with all retries. Replies that came are on disk; the next call asks for the rest.
        InvalidInput
            There is no key for OpenAI, or the folder of replies cannot be used.
        """
        told = on_judged or (lambda _: None)
        found = self.endpoint.ask([self.request(item) for item in items], told)
        told(len(items))
        self.spent += found.spent
        self.relied_on += found.relied_on
        return [Verdict(verdict_of(reply.text), reply=reply.text) for reply in found.replies]

    def request(self, item: AnswerToJudge) -> dict[str, Any]:
        """The body of the request that asks the model about one answer."""
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user_message(item)}]
        return {"model": self.model, "messages": messages, **self._options}


def user_message(item: AnswerToJudge) -> str:
    """The message about one answer, in the wording of the paper."""
    references = "\n".join(item.question.answers)
    return (
        f"Question:\n{item.question.question}\n\nReference Answer(s):\n{references}\n\n"
        f"Proposed Answer:\n{item.answer.strip()}\n\nTrue/False:"
    )


def verdict_of(reply: str) -> float:
    """Read the verdict from a reply: 1 for True, 0 for False, NaN for anything else.

    >>> verdict_of(" 'true'."), verdict_of("False"), verdict_of("True, but only partially")
    (1.0, 0.0, nan)
    """
    return _VERDICTS.get(reply.strip(_AROUND).lower(), math.nan)
