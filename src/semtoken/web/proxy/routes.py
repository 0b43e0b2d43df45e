"""The endpoints that the upstream has, as far as its answers say, and what is remembered of that."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping

from semtoken.decisions.wire.shapes import NO_ROUTE, QuestionShape, says_no_route
from semtoken.web.proxy.memory import new_memory
from semtoken.web.proxy.upstream import UpstreamAnswer

logger = logging.getLogger("semtoken.proxy")


class NoRoute(Exception):
    """The upstream has no endpoint at a path."""


class AbsentRoutes:
    """The paths at which the upstream has no endpoint, and shapes that it refuses, so that it is not asked again."""

    def __init__(self) -> None:
        self._absent: MutableMapping[str, bool] = new_memory()
        self._said: set[str] = set()

    def add(self, path: str) -> None:
        """Remember a path."""
        self._absent[path] = True

    def refuse(self, shape: QuestionShape, model: str | None, said: str) -> None:
        """Remember that the upstream does not answer a shape with a model, and say so once."""
        self.add(_refused(shape, model))
        if shape.name not in self._said:
            self._said.add(shape.name)
            logger.warning("The upstream rejects %s, so questions are asked in another way: %s", shape.what, said)

    def lacks(self, shape: QuestionShape, model: str | None) -> bool:
        """Return True if the upstream is known not to answer a shape."""
        return shape.path in self or _refused(shape, model) in self

    def __contains__(self, path: str) -> bool:
        return path in self._absent


def _refused(shape: QuestionShape, model: str | None) -> str:
    return f"{shape.name} {model}"


async def has_no_route(answer: UpstreamAnswer) -> bool:
    """Return True if an answer says that the upstream has no endpoint at its path."""
    return answer.status in NO_ROUTE and says_no_route(answer.status, await answer.said())
