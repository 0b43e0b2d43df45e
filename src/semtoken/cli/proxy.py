"""`semtoken proxy`: a reverse proxy that adds an uncertainty to what any OpenAI-compatible server answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from semtoken.cli.console import tell
from semtoken.cli.listening import LOOPBACK, GraceOption, HostOption, warn_if_open
from semtoken.cli.options import FunctionWords, FunctionWordsOption, Preset, PresetOption
from semtoken.cli.payload import load_clusters

if TYPE_CHECKING:
    from semtoken.web.proxy.settings import ProxySettings
    from semtoken.web.running import Address

MEBIBYTE = 2**20


def proxy(
    upstream: Annotated[
        str, typer.Option(help="The server to forward to, such as http://127.0.0.1:8000 or https://api.openai.com.")
    ],
    clusters: Annotated[
        str,
        typer.Option("--clusters", "-c", help="Clusters of its model's tokens: a directory, a hub id, or 'almanac'."),
    ],
    host: HostOption = LOOPBACK,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any that is free.")] = 8001,
    top_logprobs: Annotated[
        int, typer.Option(min=1, help="Log-probabilities a token to ask for; fewer where the upstream gives fewer.")
    ] = 20,
    token_ids: Annotated[
        bool, typer.Option("--token-ids", help="Ask for token ids, which vLLM and SGLang give and others may refuse.")
    ] = False,
    proxy_for: Annotated[
        str | None,
        typer.Option(help="The upstream's model, if the clusters come from another one with the same tokenizer."),
    ] = None,
    preset: PresetOption = Preset.default,
    function_words: FunctionWordsOption = FunctionWords.paper,
    max_request_mb: Annotated[float, typer.Option(min=0.001, help="Longest request, in MiB.")] = 32,
    max_scored_mb: Annotated[float, typer.Option(min=0.001, help="Longest reply that is scored, in MiB.")] = 64,
    connect_timeout: Annotated[float, typer.Option(min=0.01, help="Seconds to reach the upstream.")] = 10,
    read_timeout: Annotated[float, typer.Option(min=0.01, help="Seconds without a byte from the upstream.")] = 600,
    max_connections: Annotated[int, typer.Option(min=1, help="Connections with the upstream at one time.")] = 1000,
    grace: GraceOption = 10.0,
) -> None:
    """Put a proxy in front of an OpenAI-compatible server; every choice gets its uncertainty under `semtoken`.

    It asks the server for log-probabilities, adds the uncertainty with its interval, takes out what the client did not
    ask for, and passes everything else through unchanged, streams included. If an answer cannot be scored, it arrives
    with the reason. Keys are forwarded and never logged. It has /health and /metrics (Prometheus) of its own.

    For example:

    - `semtoken proxy --upstream http://127.0.0.1:8000 --clusters ./clusters`
    - `semtoken proxy --upstream https://api.openai.com --clusters ./gpt-oss-clusters --proxy-for gpt-4o`
    """
    from semtoken.scoring.rules import ScoringRules
    from semtoken.web.proxy.app import proxy_app
    from semtoken.web.proxy.settings import ProxySettings
    from semtoken.web.running import listen, run

    settings = ProxySettings(
        upstream=upstream,
        top_logprobs=top_logprobs,
        token_ids=token_ids,
        proxy_for=proxy_for,
        max_request_bytes=round(max_request_mb * MEBIBYTE),
        max_scored_bytes=round(max_scored_mb * MEBIBYTE),
        connect_timeout=connect_timeout,
        read_timeout=read_timeout,
        max_connections=max_connections,
    )
    rules = ScoringRules(preset.value, function_words.value)
    app = proxy_app(settings, load_clusters(clusters, None), rules)
    run(app, listen(host, port), lambda address: _announce(address, settings), grace=grace)


def _announce(address: Address, settings: ProxySettings) -> None:
    tell(f"semtoken proxy at {address.url}/v1 in front of {settings.shown_upstream} (stop with Ctrl-C).")
    tell(f"  health: {address.url}/health   figures: {address.url}/metrics")
    warn_if_open(address)
