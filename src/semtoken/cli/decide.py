"""`semtoken decide`: typed questions about each line of a file, put to a model here or to a server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from semtoken.choices import Reading
from semtoken.cli.console import tell
from semtoken.cli.loading import load_executor
from semtoken.cli.model import Device, ModelChoice, ModelOptions
from semtoken.cli.parameters import (
    BaseUrl,
    Calibrator,
    ModelNamed,
    NamedServer,
    Overwrite,
    ToFile,
    by_kind,
    named_server,
)
from semtoken.cli.settings import EndpointSection, NotNegative, Read, SettingsInUse
from semtoken.cli.statuses import UsageError
from semtoken.support.almanac import ALMANAC
from semtoken.support.http_client import AT_ONCE, key_from
from semtoken.support.inputs import shown_address

if TYPE_CHECKING:
    from semtoken.decisions.remote import Asker


def decide(
    questions: Path,
    items: Path,
    /,
    *,
    output: ToFile[Path],
    model: ModelNamed[str | None] = None,
    device: Device = None,
    base_url: BaseUrl = None,
    reading: Reading = "labels",
    orders: NotNegative[int] = 1,
    calibrator: Calibrator = None,
    overwrite: Overwrite = False,
    in_use: Read[SettingsInUse],
    verbose: Read[bool],
) -> None:
    """Answer typed questions, with a probability for each option.

    Asks a local model, or a server if you name one. An interrupted run continues when you repeat the command. An item
    may hold "labels", the right values, which calibrate and audit read.

    Example: `semtoken decide questions.yaml items.jsonl -o answers.jsonl`

    Parameters
    ----------
    questions
        Typed questions by name, as YAML.
    items
        Items as JSON lines with a "state".
    output
        Write here, one JSON line for each item.
    model
        Model: as in ask, or its name on the server if --base-url is given.
    reading
        labels: probability of A, B, ...; words: of the options themselves.
    orders
        Average over N orders of the options; 0: all.
    """
    from semtoken.decisions import ReadingOptions
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.decisions.running import DecisionJob, read_questions

    # a model that is named without an address is one to load here
    server = named_server(base_url, in_use, variable=False) if base_url is not None or model is None else None
    if server is not None and device is not None:
        raise UsageError("--device has no effect on a server: leave it out.")
    default = Path(in_use.settings.calibration.decisions)
    if calibrator is None and in_use.settings.calibration.decisions and default.exists():
        calibrator = default
    if calibrator is not None and by_kind([calibrator])[0] is not None:
        raise UsageError(
            f"{calibrator} is no calibrator of typed questions. `semtoken calibrate` makes one of answers."
        )
    fitted = None if calibrator is None else DecisionCalibrator.load(calibrator)
    if overwrite:
        output.unlink(missing_ok=True)
    job = DecisionJob(items, output, read_questions(questions), ReadingOptions(reading, orders or None), fitted)
    job.check()
    if not job.lines_left():
        tell(f"{output} is complete.")
        return
    choice = ModelOptions(model or ALMANAC, device).with_settings(in_use.settings, verbose=verbose)
    asked = None if server is None else AskedServer.of(server, in_use.settings.endpoint, model)
    if asked is not None:
        asked.announce("the items", in_use)
    asking = _ModelOrServer(choice, asked)
    if (by_ray := load_executor(in_use.settings.executor)) is not None:
        written = job.run_in_shards(asking.load, by_ray)
    else:
        written = job.run(asking.load(), 1 if asked is None else AT_ONCE)
    tell(f"{written:,} lines written to {output}.")


@dataclass(frozen=True)
class AskedServer:
    """A server that is asked typed questions: its address, the model there, the variable with its key."""

    url: str
    name: str | None
    key_env: str | None
    """None: no key is sent."""
    top: int
    token_ids: bool
    """Whether vLLM is asked for the tokens of the options, by their ids, where its tokenizer is on this machine."""

    @classmethod
    def of(cls, server: NamedServer, endpoint: EndpointSection, name: str | None) -> AskedServer:
        """The server with what `[endpoint]` says of it."""
        key = endpoint.key_env if server.takes_key else None
        ids = endpoint.token_ids in ("auto", "yes")
        return cls(server.url, name or endpoint.model or None, key, endpoint.top_logprobs, ids)

    def announce(self, what: str, in_use: SettingsInUse) -> None:
        """Say what is sent where, before anything is sent, and of a key that stays here how to send it."""
        key = " with the key" if self.key_env and key_from(self.key_env) else ""
        kept = ""
        if self.key_env is None and key_from(in_use.settings.endpoint.key_env):
            kept = (
                f" No key goes to a server that only {in_use.file} names: give --base-url, or --config {in_use.file}."
            )
        tell(f"Sending {what}{key} to {shown_address(self.url)}.{kept}")

    def ask(self) -> Asker:
        """The function that asks this server questions."""
        from semtoken.decisions.remote import ModelTokens, asker_of_endpoint
        from semtoken.web.proxy.upstream_tokenizer import tokens_of_server

        key = None if self.key_env is None else key_from(self.key_env)
        tokens = partial(tokens_of_server, self.url) if self.token_ids else ModelTokens
        return asker_of_endpoint(self.url, self.name, key=key, top=self.top, tokens=tokens, say=tell)


@dataclass(frozen=True)
class _ModelOrServer:
    """The model or the server that is asked: plain data, which can be sent to other processes."""

    choice: ModelChoice
    server: AskedServer | None

    def load(self) -> Asker:
        """The function that asks the server, or the model once it is loaded."""
        from semtoken.decisions.running import asker_of_model

        return asker_of_model(self.choice.load().backend) if self.server is None else self.server.ask()
