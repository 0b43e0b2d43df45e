"""What the commands that listen on a port have in common."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from semtoken.cli.console import tell

if TYPE_CHECKING:
    from semtoken.web.access import Gate
    from semtoken.web.running import Address

LOOPBACK = "127.0.0.1"

HostOption = Annotated[
    str, typer.Option(help="Address to listen on. The default can be reached from this machine only.")
]
GraceOption = Annotated[
    float, typer.Option(min=1, help="Seconds that running answers get to finish after the signal to stop.")
]


def gate_from_environment() -> Gate:
    """Who may read and write the journal: whoever has the token in SEMTOKEN_TOKEN, where it is set."""
    from semtoken.web.access import Gate

    return Gate(os.environ.get("SEMTOKEN_TOKEN") or None)


def warn_if_open(address: Address) -> None:
    """Say so where other machines can reach a server."""
    if not address.is_loopback:
        tell(
            f"Warning: {address.host} can be reached from other machines, and there is no password. Without a firewall "
            f"or a reverse proxy that asks for one, use --host {LOOPBACK}.",
            style="yellow",
        )
