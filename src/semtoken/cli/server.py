"""The server that a command is about: whose address it is, whether a key may go there, and how it is asked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from semtoken.cli.console import tell
from semtoken.cli.settings import EndpointSection, SettingsInUse
from semtoken.cli.statuses import UsageError
from semtoken.support.http_client import key_from
from semtoken.support.inputs import shown_address

if TYPE_CHECKING:
    from semtoken.decisions.remote import Asker


@dataclass(frozen=True)
class NamedServer:
    """A server that the user named: plain data, which can be sent to other processes."""

    url: str
    model: str | None
    """The name of the model there; None where nobody gave one."""
    takes_key: bool
    """True if the key may go there; false for an address in a settings file that was merely found."""
    endpoint: EndpointSection

    @property
    def name(self) -> str:
        """The model and the address, as outputs may hold them: without a password."""
        address = shown_address(self.url)
        return address if self.model is None else f"{self.model} at {address}"

    @property
    def key(self) -> str | None:
        """The key that goes to it, if there is one that may."""
        return key_from(self.endpoint.key_env) if self.takes_key else None

    def announce(self, what: str, in_use: SettingsInUse) -> None:
        """Say what is sent where, before anything is sent, and of a key that stays here how to send it."""
        kept = ""
        if not self.takes_key and key_from(self.endpoint.key_env):
            kept = (
                f" No key goes to a server that only {in_use.file} names: give --base-url, or --config {in_use.file}."
            )
        tell(f"Sending {what}{' with the key' if self.key else ''} to {shown_address(self.url)}.{kept}")

    def ask(self) -> Asker:
        """The function that puts typed questions to this server.

        vLLM is asked for the tokens of the options, by their ids, where its tokenizer is on this machine.
        """
        from semtoken.decisions.remote import ModelTokens, asker_of_endpoint
        from semtoken.web.proxy.upstream_tokenizer import tokens_of_server

        by_id = self.endpoint.token_ids in ("auto", "yes")
        tokens = partial(tokens_of_server, self.url) if by_id else ModelTokens
        top = self.endpoint.top_logprobs
        return asker_of_endpoint(self.url, self.model, key=self.key, top=top, tokens=tokens, say=tell)


def named_server(
    base_url: str | None, model: str | None, in_use: SettingsInUse, *, variable: bool
) -> NamedServer | None:
    """The server to ask: the typed one, else that of `[endpoint]`, else with `variable` that of OPENAI_BASE_URL.

    Raises
    ------
    UsageError
        The address comes from a settings file that was found in a folder above this one.
    """
    endpoint, takes_key = in_use.settings.endpoint, True
    url = base_url
    if not url and endpoint.base_url:
        url, takes_key = endpoint.base_url, not in_use.is_found("endpoint.base_url")
        if not takes_key and in_use.file is not None and in_use.file.parent != Path.cwd():
            raise UsageError(
                f"{in_use.file} was found above this folder: nothing is sent to the server that it names. "
                f"To send it, name the file: --config {in_use.file}"
            )
    if not url and variable:
        url = os.environ.get("OPENAI_BASE_URL")
    return NamedServer(url, model or endpoint.model or None, takes_key, endpoint) if url else None
