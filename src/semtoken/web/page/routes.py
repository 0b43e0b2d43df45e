"""The page as routes of a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from semtoken.support.extras import require
from semtoken.web.page.static import FILES, page_file

require("fastapi", extra="serve")

from fastapi import FastAPI, Response  # noqa: E402

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
TYPES = {".js": "text/javascript", ".css": "text/css"}


def add_page(app: FastAPI, info: Callable[[], dict[str, Any]]) -> None:
    """Serve the page at `/`, its files under `/page/`, and its facts at `/semtoken/info`; see facts.py."""

    @app.get("/")
    async def page() -> Response:
        return Response(page_file("index.html"), media_type="text/html", headers=HEADERS)

    @app.get("/page/{name}")
    async def file(name: str) -> Response:
        if name not in FILES:
            return Response("There is no such file.", status_code=404, media_type="text/plain", headers=HEADERS)
        return Response(page_file(name), media_type=TYPES[PurePath(name).suffix], headers=HEADERS)

    @app.get("/semtoken/info")
    async def facts() -> dict[str, Any]:
        return info()
