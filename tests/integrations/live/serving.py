"""`semtoken serve` in this process, for hosts that are clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from semtoken import ScoredModel
from semtoken.models.prompts import how_to_ask, template_of
from semtoken.web.serve.app import serve_app
from semtoken.web.serve.engine import Engine
from semtoken.web.serve.service import Offer
from tests.web.servers import running


@contextmanager
def served(stc: ScoredModel, behind: Callable[[Any], Any] = lambda app: app) -> Iterator[str]:
    """The address of a server of the embedded model in its own format; `behind` puts something before it."""
    asking = how_to_ask("almanac", stc.tokenizer, raw=False)
    app = serve_app(Engine(stc), Offer("almanac", template_of(asking), asking.stop_at_newline))
    with running(behind(app)) as url:
        yield url
