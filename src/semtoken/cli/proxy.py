"""`semtoken proxy`: a reverse proxy that adds an uncertainty to what any OpenAI-compatible server answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semtoken.cli.console import tell
from semtoken.cli.journal_options import ServerJournalChoice, server_journal_options
from semtoken.cli.listening import ServerChoice, gate_from_environment, server_options, warn_if_open
from semtoken.cli.one_by_one import load_tokens
from semtoken.cli.options import (
    ClustersOption,
    DistributionOption,
    EqualityOption,
    FunctionWordsOption,
    MethodsOption,
    ModelChoice,
    PresetOption,
    TokenizerOption,
    as_methods,
    decision_slot,
    load_calibrator,
    option_group,
)
from semtoken.errors import InvalidInput
from semtoken.files.safe_files import MEBIBYTE, parse_json

if TYPE_CHECKING:
    from semtoken.tokens.rules import ScoringRules
    from semtoken.web.proxy.reading import Reader
    from semtoken.web.proxy.settings import ProxySettings
    from semtoken.web.running import Address


@dataclass(frozen=True)
class UpstreamChoice:
    """What the upstream is asked for, and how long all may take: options that are `ProxySettings` of the same name."""

    top_logprobs: Annotated[
        int,
        typer.Option(min=1, help="Log-probabilities to ask for at each token; fewer where the upstream gives fewer."),
    ] = 20
    token_ids: Annotated[
        bool | None,
        typer.Option(
            "--token-ids/--no-token-ids",
            help="Ask for token ids, as vLLM and SGLang give them; needs --tokenizer. [if the upstream is vLLM]",
            show_default=False,
        ),
    ] = None
    distribution: DistributionOption = None
    proxy_for: Annotated[
        str | None,
        typer.Option(help="The upstream's model, if the vocabulary is another one's with the same tokenizer."),
    ] = None
    connect_timeout: Annotated[float, typer.Option(min=0.01, help="Seconds to reach the upstream.")] = 10
    read_timeout: Annotated[float, typer.Option(min=0.01, help="Seconds without a byte from the upstream.")] = 600
    request_timeout: Annotated[float, typer.Option(min=0.01, help="Seconds for the whole of a request.")] = 3600
    header_timeout: Annotated[
        float, typer.Option(min=0.01, help="Seconds for a client to send the head of a request.")
    ] = 30
    max_scored_tokens: Annotated[int, typer.Option(min=1, help="Longest answer that is scored, in tokens.")] = 32_768
    max_scoring_seconds: Annotated[
        float, typer.Option(min=0.01, help="Time for reading and scoring one answer; the rest of it passes unscored.")
    ] = 30
    hold: Annotated[
        float,
        typer.Option(min=0, help="Seconds to hold the last piece of a stream back, so that it has the final score."),
    ] = 0.25
    decisions: Annotated[
        str,
        typer.Option(
            help="How /v1/decisions and /v1/systemone are answered: pass (by the upstream), chat or completions (asked "
            "as texts there), auto (by the upstream if it can, else as texts)."
        ),
    ] = "auto"
    decision_requests: Annotated[
        int, typer.Option(min=1, help="Typed questions that are asked as texts at one time.")
    ] = 8


@server_journal_options()
@option_group(UpstreamChoice, "asking")
@server_options(port=8001, max_request_mb=32, max_connections=1000)
def proxy(
    *,
    upstream: Annotated[
        str | None,
        typer.Option(
            envvar="OPENAI_BASE_URL",
            help="The server to forward to, such as http://127.0.0.1:8000.",
        ),
    ] = None,
    tokenizer: TokenizerOption = None,
    clusters: ClustersOption = None,
    server: ServerChoice,
    asking: UpstreamChoice,
    read_with: Annotated[
        str | None,
        typer.Option(
            help="The upstream's model, which reads here what comes without log-probabilities (`transformers serve` "
            "drops them): a name, a directory or a hub id. Tokenizer and clusters must be its own."
        ),
    ] = None,
    max_read_tokens: Annotated[
        int, typer.Option(min=2, help="Longest prompt with its answer that --read-with reads, in tokens.")
    ] = 8192,
    preset: PresetOption = "default",
    equality: EqualityOption = None,
    function_words: FunctionWordsOption = None,
    methods: MethodsOption = None,
    max_scored_mb: Annotated[float, typer.Option(min=0.001, help="Longest reply that is scored, in MiB.")] = 64,
    client_timeout: Annotated[
        float, typer.Option(min=0.01, help="Seconds for a client to send its body, or to take some of its answer.")
    ] = 120,
    max_per_client: Annotated[
        int, typer.Option(min=1, help="Requests of one address at one time; more get status 429.")
    ] = 500,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="A web page's origin that may call the proxy from a browser; '*': any. Repeatable."),
    ] = None,
    decision_fields: Annotated[
        str | None,
        typer.Option(
            help='Further fields of these requests, as JSON: \'{"chat_template_kwargs": {"enable_thinking": false}}\'.'
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes that share the work; limits on requests are those of each.")
    ] = 1,
    keeping: ServerJournalChoice,
) -> None:
    """Put a proxy in front of an OpenAI-compatible server; every choice gets a confidence under `semtoken`.

    It asks the server for log-probabilities, adds the confidence with its interval, takes out what the client did not
    ask for, and passes everything else through unchanged, streams included. If the server gives none, the model of
    --read-with reads the answer here. If an answer cannot be scored, it arrives with the reason. With --calibrator and
    --abstain-text only accepted chats and completions are shown, and streams of them are refused. Keys are forwarded
    and never logged. It has /health and /metrics (Prometheus) of its own.
    vLLM is asked for token ids if its tokenizer is known: yours (--tokenizer), or that of the model that vLLM names,
    where this machine has it. Nothing is downloaded for that.

    It also answers typed questions at /v1/decisions and /v1/systemone, whatever the upstream has for them. Upstream and
    calibrator of decisions may stand in `semtoken.yaml`.

    For example:

    - `semtoken proxy --upstream http://127.0.0.1:8000`
    - `semtoken proxy --upstream http://127.0.0.1:8000 --tokenizer ./my-model`
    - `semtoken proxy --upstream https://api.openai.com --tokenizer openai/gpt-oss-20b --proxy-for gpt-4o`
    - `semtoken proxy --upstream http://127.0.0.1:8000 --preset paper --clusters ./clusters`
    """
    from semtoken.decisions.auditing import DecisionSettings
    from semtoken.tokens.rules import ScoringRules
    from semtoken.web.limits import ConnectionLimits
    from semtoken.web.proxy.settings import ProxySettings
    from semtoken.web.running import listen, run, run_workers

    of_folder = DecisionSettings.beside(server.decision_calibrator)
    upstream = upstream or (of_folder.upstream if of_folder.is_of_this_folder else None)
    if upstream is None:
        raise InvalidInput("Name the server with --upstream, OPENAI_BASE_URL, or in the semtoken.yaml of this folder.")
    rules = ScoringRules(preset, function_words, equality=equality)
    token_ids, tokenizer = _ids_and_tokenizer(asking.token_ids, upstream, tokenizer, clusters, rules)
    settings = ProxySettings(
        **vars(replace(asking, token_ids=token_ids)),
        methods=as_methods(methods, of_replies=True),
        upstream=upstream,
        max_request_bytes=server.request_bytes,
        max_scored_bytes=round(max_scored_mb * MEBIBYTE),
        max_connections=server.max_connections,
        max_connections_per_client=max_per_client,
        body_timeout=client_timeout,
        write_timeout=client_timeout,
        decision_fields={} if decision_fields is None else _fields(decision_fields),
        allowed_hosts=server.hosts,
        allowed_origins=tuple(allow_origin or ()),
    )
    limits = ConnectionLimits(
        connections=2 * server.max_connections,
        per_client=2 * max_per_client,
        header_timeout=asking.header_timeout,
        write_timeout=client_timeout,
    )
    reading = None if read_with is None else (read_with, max_read_tokens)
    server = replace(server, decision_calibrator=server.decision_calibrator or of_folder.calibrator)
    make = partial(_application, settings, (tokenizer, clusters), rules, reading, server, keeping)
    app = make()  # here first, so that what cannot work is said once
    listener = listen(server.host, server.port)

    def ready(address: Address) -> None:
        _announce(address, settings, page=server.page and server.abstain_text is None)

    if workers == 1:
        run(app, listener, ready, grace=server.grace, limits=limits)
    else:
        run_workers(make, workers, listener, ready, grace=server.grace, limits=limits)


def _ids_and_tokenizer(
    wanted: bool | None, upstream: str, tokenizer: str | None, clusters: str | None, rules: ScoringRules
) -> tuple[bool, str | None]:
    """Whether to ask for ids, and the tokenizer that reads them: as typed, else by what vLLM serves."""
    from semtoken.web.proxy.settings import ProxySettings
    from semtoken.web.proxy.upstream_tokenizer import tokenizer_here, vllm_model

    if wanted is not None and (tokenizer or clusters or not wanted):
        return wanted, tokenizer
    model = vllm_model(ProxySettings(upstream).base)
    if model is None or tokenizer or clusters:
        return bool(wanted or model), tokenizer
    found = None if rules.clustering else tokenizer_here(model)
    if found is None:
        tell(
            f"The upstream is vLLM with {model}, whose tokenizer was not found on this machine. Intervals are wider "
            "without it: name it with --tokenizer."
        )
        return bool(wanted), None
    tell(f"The upstream is vLLM: it is asked for token ids, and the tokenizer is that in {found}.")
    return True, found


def _application(
    settings: ProxySettings,
    named: tuple[str | None, str | None],
    rules: ScoringRules,
    reading: tuple[str, int] | None,
    server: ServerChoice,
    keeping: ServerJournalChoice,
) -> Any:
    from semtoken.calibration import Fingerprint
    from semtoken.calibration.apply import CalibratorInUse
    from semtoken.core.scorer import scorer_for
    from semtoken.web.calibrators import CalibratorSlot, SharedPlace, reload_on_hangup
    from semtoken.web.proxy.app import proxy_app
    from semtoken.web.running import shared_folder

    tokens = load_tokens(*named, rules)
    reader = None if reading is None else _reader(*reading, named[1], rules)
    scorer = scorer_for(tokens, rules)
    answering = Fingerprint(signature=scorer.signature, scores="exact")
    if reader is None:
        answering = replace(answering, scores="top-k", k=settings.top_logprobs)

    def load(directory: Path | None) -> CalibratorInUse | None:
        return load_calibrator(directory, server.abstain_text, lambda: (scorer.clusters, answering))

    folder = shared_folder("calibrators")
    shared = None if folder is None else SharedPlace(folder, load, CalibratorInUse.save)
    calibrators = CalibratorSlot(load(server.calibrator), partial(load, server.calibrator), shared=shared)
    of_decisions = decision_slot(server.decision_calibrator)
    reload_on_hangup(calibrators, of_decisions)
    recorder = keeping.recorder("proxy", engine=settings.shown_upstream, k=None if reader else settings.top_logprobs)
    app = proxy_app(
        settings,
        tokens,
        rules,
        calibrators,
        recorder=recorder,
        reader=reader,
        page=server.page and server.abstain_text is None,
        gate=gate_from_environment(),
        decision_calibrator=of_decisions,
    )
    return server.with_events(app, recorder)


def _fields(text: str) -> dict[str, Any]:
    try:
        fields = parse_json(text.encode())
    except ValueError as error:
        raise InvalidInput(f"--decision-fields must be a JSON object: {error}") from error
    if not isinstance(fields, dict):
        raise InvalidInput(f"--decision-fields must be a JSON object, got {text:.60}.")
    return fields


def _reader(model: str, most_tokens: int, clusters: str | None, rules: ScoringRules) -> Reader:
    """The model that reads what comes without log-probabilities; the clusters must be its own."""
    from semtoken.web.proxy.reading import Reader

    choice = ModelChoice(model, clusters=clusters, preset=rules.preset, equality=rules.equality)
    stc = replace(choice, function_words=rules.function_words).load()
    return Reader(stc, model, most_tokens)


def _announce(address: Address, settings: ProxySettings, *, page: bool) -> None:
    tell(f"semtoken proxy at {address.url}/v1 in front of {settings.shown_upstream} (stop with Ctrl-C).")
    if page:
        tell(f"  a page to ask on: {address.url}")
    tell(f"  health: {address.url}/health   figures: {address.url}/metrics")
    warn_if_open(address)
