"""The token of the proxy's own routes goes to no upstream, whether or not the proxy has those routes."""

from __future__ import annotations

from itertools import product

import httpx
import pytest

from semtoken.web.proxy.app import is_own, proxy_app
from semtoken.web.proxy.settings import ProxySettings
from tests.web.servers import answering, raw_upstream, response, running

PATHS = ("review?reviewer=a", "watch", "calibrator", "decision-calibrator", "anything/else", "")
SPELLINGS = ("/semtoken/", "/SEMTOKEN/", "//semtoken/", "/%73emtoken/", "/%2573emtoken/", "/semtoken;/", "/semtoken%2F")


def test_nothing_below_our_own_prefix_is_forwarded() -> None:
    with raw_upstream(answering(response(b"{}"))) as upstream:
        with running(proxy_app(ProxySettings(upstream.url), page=False)) as url, httpx.Client() as client:
            bearer = {"authorization": "Bearer a token"}
            for method, spelling, path in product(("GET", "POST", "DELETE"), SPELLINGS, PATHS):
                reply = client.request(method, url + spelling + path, headers=bearer)
                assert reply.status_code == 404, (method, spelling, path)
                assert reply.json()["error"]["code"] == "not_found"
            assert upstream.requests == []
            assert client.get(f"{url}/v1/semtoken", headers=bearer).status_code == 200
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("path", ["/v1/models", "/v1/semtoken/x", "/semtokens", "/", "", "/upstream/"])
def test_other_paths_are_forwarded(path: str) -> None:
    assert not is_own(path)
