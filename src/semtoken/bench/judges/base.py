"""The base of judges, which are their own settings: checked values that say all that decides a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from semtoken.bench.judges import AnswerToJudge, OnJudged, Verdict
from semtoken.support.extras import require

require("pydantic", extra="bench")

from pydantic import BaseModel, ConfigDict, field_serializer, model_validator  # noqa: E402


class Strict(BaseModel):
    """The base of all settings: unknown names are rejected, and values cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, ignored_types=(cached_property,))


class JudgeBase(Strict):
    """The base of judges, each of which has a field `kind` and a method `judge`."""

    name: str = ""
    """The judge's name in files and tables; its kind if not given. Two judges of a kind need different ones."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        return {**given, "name": given.get("name") or cls.model_fields["kind"].default}

    @field_serializer("name")
    def _written(self, name: str) -> str | None:
        return None if name == type(self).model_fields["kind"].default else name

    @property
    def settings(self) -> Mapping[str, Any]:
        """Plain values of everything that decides the verdicts."""
        return self.model_dump(exclude={"name"})


class JudgeOfOne(JudgeBase):
    """The base of judges that look at one answer at a time."""

    def judge(self, items: Sequence[AnswerToJudge], on_judged: OnJudged | None = None) -> list[Verdict]:
        """One verdict for each item, in the same order."""
        verdicts = []
        for item in items:
            verdicts.append(self._verdict(item))
            if on_judged is not None:
                on_judged(len(verdicts))
        return verdicts

    def _verdict(self, item: AnswerToJudge) -> Verdict:
        raise NotImplementedError
