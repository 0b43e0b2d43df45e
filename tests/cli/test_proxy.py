"""`semtoken proxy` keeps to what it says when it starts."""

from __future__ import annotations

import re

import httpx

from tests.cli.run import invoke
from tests.rows import each
from tests.web.servers import commanded


@each("options", [(), ("--server.page=false",)])
def test_the_page_is_named_where_there_is_one(options: tuple[str, ...]) -> None:
    with commanded("proxy", "--base-url", "http://127.0.0.1:9", *options) as (url, said):
        assert f"health: {url}/health" in said
        pages = re.findall(r"a page to ask on: (http://\S+)", said)
        assert pages == ([] if options else [url]), said
        shown = httpx.get(url)
        assert (shown.headers["content-type"].startswith("text/html") and "semtoken" in shown.text) == bool(pages)


def test_more_processes_than_a_machine_carries_are_refused() -> None:
    """A mistyped number of them took all of its memory and time."""
    done = invoke(["proxy", "--base-url", "http://127.0.0.1:9", "--port", "0", "--workers", "1000000"])
    assert done.exit_code == 2 and not done.stdout
    assert "1,000,000 processes are more than this machine carries: give --workers at most" in done.stderr
