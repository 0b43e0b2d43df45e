"""The token of the proxy's own routes goes to no upstream, whether or not the proxy has those routes."""

from __future__ import annotations

from itertools import product

import httpx

from semtoken.web.callers import Gate
from semtoken.web.proxy.paths import is_own
from tests.rows import each
from tests.web.conftest import in_front
from tests.web.servers import response

PATHS = ("review?reviewer=a", "watch", "calibrator", "decision-calibrator", "anything/else", "")
SPELLINGS = ("/semtoken/", "/SEMTOKEN/", "//semtoken/", "/%73emtoken/", "/%2573emtoken/", "/semtoken;/", "/semtoken%2F")


def test_nothing_below_our_own_prefix_is_forwarded() -> None:
    with in_front(response(b"{}")) as (url, upstream), httpx.Client() as client:
        bearer = {"authorization": "Bearer a token"}
        for method, spelling, path in product(("GET", "POST", "DELETE"), SPELLINGS, PATHS):
            reply = client.request(method, url + spelling + path, headers=bearer)
            assert reply.status_code == 404, (method, spelling, path)
            assert reply.json()["error"]["code"] == "not_found"
        assert upstream.requests == []
        assert client.get(f"{url}/v1/semtoken", headers=bearer).status_code == 200
        assert len(upstream.requests) == 1


def test_a_gate_does_not_show_its_token() -> None:
    assert "secret" not in repr(Gate("secret"))


@each("path", ["/v1/models", "/v1/semtoken/x", "/semtokens", "/", "", "/upstream/"])
def test_other_paths_are_forwarded(path: str) -> None:
    assert not is_own(path)
