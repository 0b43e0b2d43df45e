"""`semtoken serve`: an OpenAI-compatible API over a model in this process, with exact scores."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semtoken.cli.console import tell
from semtoken.cli.journal_options import ServerJournalChoice, server_journal_options
from semtoken.cli.listening import ServerChoice, gate_from_environment, server_options, warn_if_open
from semtoken.cli.options import ModelChoice, decision_slot, load_calibrator_for, model_options
from semtoken.models.prompts import how_to_ask, template_of

if TYPE_CHECKING:
    from semtoken.web.running import Address


@server_journal_options()
@model_options()
@server_options()
def serve(
    *,
    choice: ModelChoice,
    server: ServerChoice,
    name: Annotated[
        str | None, typer.Option(help="The model's name in requests. Default: --model, or the last part of its path.")
    ] = None,
    max_logprobs: Annotated[
        int, typer.Option(min=0, help="Most log-probabilities for each token that a request may ask for.")
    ] = 20,
    max_part_seconds: Annotated[
        float, typer.Option(min=0, help="Time for finding the parts of one answer; beyond it, it has none and says so.")
    ] = 10,
    mcp: Annotated[
        bool,
        typer.Option("--mcp", help="Offer ask, score and check to agents, over stdin and stdout: no port."),
    ] = False,
    keeping: ServerJournalChoice,
) -> None:
    """Serve a model over an OpenAI-compatible API; every choice carries a confidence under the key `semtoken`.

    Open the address in a browser to ask questions on a page. Programs use
    POST /v1/chat/completions and /v1/completions (streams, logprobs, n, stop, temperature, top_p, seed),
    /v1/decisions and /v1/systemone (typed questions), GET /v1/models and /health. Decoding is greedy unless a request
    asks for a temperature; log-probabilities are the model's own, before temperature. There is no password: keep it on
    this machine, or put one in front.

    For example:

    - `semtoken serve`
    - `semtoken serve --model Qwen/Qwen2.5-3B-Instruct --port 9000`
    - `semtoken serve --mcp --model Qwen/Qwen2.5-3B-Instruct`, in an agent's configuration; pip install mcp
    """
    calibrator, abstain_text = server.calibrator, server.abstain_text
    if mcp:
        _serve_agents(choice, calibrator)
        return
    from semtoken.web.calibrators import CalibratorSlot, reload_on_hangup
    from semtoken.web.running import listen, run
    from semtoken.web.serve.app import ServeLimits, serve_app
    from semtoken.web.serve.engine import Engine
    from semtoken.web.serve.service import Offer

    listener = listen(server.host, server.port)
    stc = choice.load(calibrator=calibrator)
    asking = how_to_ask(choice.model, stc.tokenizer, raw=False)
    load = partial(load_calibrator_for, stc, calibrator, choice.model, abstain_text)
    slot = CalibratorSlot(load(), load)
    deciding = decision_slot(server.decision_calibrator)
    reload_on_hangup(slot, deciding)
    known = stc.fingerprint(choice.model)
    recorder = keeping.recorder("serve", model=known.model, engine=known.engine)
    called, stops = name or _name_of(choice.model), asking.stop_at_newline
    offer = Offer(called, template_of(asking), stops, max_logprobs, slot, deciding, max_part_seconds)
    engine = Engine(stc)
    engine.warm_up()
    limits = ServeLimits(request_bytes=server.request_bytes, requests=server.max_connections)
    app = serve_app(
        engine,
        offer,
        page=server.page,
        recorder=recorder,
        gate=gate_from_environment(),
        allowed_hosts=server.hosts,
        limits=limits,
    )
    app = server.with_events(app, recorder)
    run(app, listener, lambda address: _announce(address, offer.name), grace=server.grace, strict=False)


def _serve_agents(choice: ModelChoice, calibrator: Path | None) -> None:
    """Speak the Model Context Protocol over stdin and stdout until the agent ends it."""
    from semtoken.integrations.mcp import server
    from semtoken.support.extras import quiet_libraries

    if not choice.verbose:
        quiet_libraries()
    stc = choice.load(calibrator=calibrator)
    server(stc, choice.model, load_calibrator_for(stc, calibrator, choice.model)).run("stdio")


def _name_of(model: str) -> str:
    folder = Path(model).expanduser()
    return folder.resolve().name if folder.is_dir() else model


def _announce(address: Address, name: str) -> None:
    tell(f"semtoken serves '{name}' at {address.url}/v1 (stop with Ctrl-C). Open {address.url} in a browser, or try:")
    tell(
        f"""  curl {address.url}/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{{"model": "{name}", "messages": [{{"role": "user", "content": "What is the capital of Japan?"}}]}}'"""
    )
    warn_if_open(address)
