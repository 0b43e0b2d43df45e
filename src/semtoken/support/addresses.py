"""Addresses that users give."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from semtoken.errors import InvalidInput


def split_address(url: str) -> SplitResult:
    """The parts of an address.

    Raises
    ------
    InvalidInput
        It is no address, such as `http://[bad/`, or its port is no number below 65,536.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port  # asking checks it
        if " " in url or not url.isprintable():
            raise ValueError("it holds a blank or a control character")
    except ValueError as error:
        raise InvalidInput(f"{url!r:.200} is no address: {error}.") from error
    return parts
