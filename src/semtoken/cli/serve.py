"""`semtoken serve`: an OpenAI-compatible API over a model in this process, with exact scores."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from semtoken.cli.console import tell
from semtoken.cli.journals import recorder_for
from semtoken.cli.listening import LOOPBACK, warn_if_open, with_events
from semtoken.cli.loading import by_kind, load_calibrator
from semtoken.cli.model import ModelChoice, ModelOptions
from semtoken.cli.parameters import Calibrators, Host, JournalUrl, Port
from semtoken.cli.settings import Read, SettingsInUse
from semtoken.cli.statuses import UsageError
from semtoken.support.files.safe_files import MEBIBYTE

if TYPE_CHECKING:
    from semtoken.web.running import Address


def serve(
    *,
    choice: ModelOptions = ModelOptions(),  # noqa: B008
    calibrator: Calibrators = (),
    journal: JournalUrl = None,
    host: Host = LOOPBACK,
    port: Port = 8000,
    served_model_name: str | None = None,
    mcp: bool = False,
    in_use: Read[SettingsInUse],
) -> None:
    """Serve a local model over an OpenAI-compatible API.

    Every choice carries its confidence under the key semtoken. Open the address in a browser to ask questions on a
    page. For many users of a large model, run vLLM or llama-server with semtoken proxy in front.

    Example: `semtoken serve --model smollm2`

    Parameters
    ----------
    served_model_name
        The model's name in requests.
    mcp
        Speak MCP over standard input and output instead of HTTP.
    """
    settings = in_use.settings
    model = choice.with_settings(settings)
    of_answers, of_decisions = by_kind(calibrator, settings.calibration.decisions)
    if mcp:
        typed: dict[str, object] = {"--journal": journal, "--served-model-name": served_model_name}
        typed |= {"--host": host != LOOPBACK, "--port": port != 8000}
        if useless := [name for name, value in typed.items() if value]:
            raise UsageError(f"{', '.join(useless)}: --mcp listens on no port and records nothing; leave it out.")
        _serve_agents(model, of_answers)
        return
    from semtoken.models.prompts import how_to_ask, template_of
    from semtoken.web.calibrators import calibrator_slots
    from semtoken.web.callers import Gate, hosts_for
    from semtoken.web.running import listen, run
    from semtoken.web.serve.app import ServeLimits, serve_app
    from semtoken.web.serve.engine import Engine
    from semtoken.web.serve.service import Offer

    listener = listen(host, port)
    stc = model.load(calibrator=of_answers)
    asking = how_to_ask(model.name, stc.tokenizer, raw=False)
    known, abstain_text = stc.fingerprint(model.name), settings.calibration.abstain_text
    load = partial(load_calibrator, clusters=stc.scorer.clusters, known=known, abstain_text=abstain_text)
    answering, deciding = calibrator_slots(of_answers, of_decisions, load)
    about = {"model": known.model, "engine": known.engine}
    recorder = recorder_for(journal or settings.journal.url, settings.journal, "serve", **about)
    called, stops = served_model_name or _name_of(model.name), asking.stop_at_newline
    most, seconds = settings.serve.max_logprobs, settings.limits.part_seconds
    offer = Offer(called, template_of(asking), stops, most, answering, deciding, seconds)
    engine = Engine(stc)
    engine.warm_up()
    app = serve_app(
        engine,
        offer,
        page=settings.server.page,
        recorder=recorder,
        gate=Gate.from_environment(),
        allowed_hosts=hosts_for(host, settings.server.allowed_hosts),
        limits=ServeLimits(round(settings.limits.request_mb * MEBIBYTE), settings.limits.connections),
    )
    app = with_events(app, settings.telemetry, recorder)
    grace = settings.limits.shutdown_seconds
    run(app, listener, lambda address: _announce(address, offer.name), grace=grace, strict=False)


def _serve_agents(model: ModelChoice, calibrator: Path | None) -> None:
    """Speak the Model Context Protocol over stdin and stdout until the agent ends it."""
    from semtoken.integrations.mcp import server

    stc = model.load(calibrator=calibrator)
    applied = load_calibrator(calibrator, stc.scorer.clusters, stc.fingerprint(model.name))
    server(stc, model.name, applied).run("stdio")


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
