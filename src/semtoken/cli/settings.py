"""`semtoken.toml`: what outlives a command, from a file, from variables and from options of the form `--section.key`.

Each section is a class, each field of it a key. A command gets them all as a parameter `in_use: Read[SettingsInUse]`;
commands.py says which sections it reads, and a key of another section is rejected on its command line.

Enter at `read_settings`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

from cyclopts import Parameter
from cyclopts.validators import Number

from semtoken.choices import BackendName, Distribution, DType, Equality, Guarantee
from semtoken.cli.statuses import UsageError
from semtoken.support.text import did_you_mean

if TYPE_CHECKING:
    from semtoken.guarantees.auditing import AuditLimits
    from semtoken.guarantees.journal.recording import RecordingRules

NAME = "semtoken.toml"
FORMER = "semtoken.yaml"
VARIABLE = "SEMTOKEN_CONFIG"
PREFIX = "SEMTOKEN_"

Given = TypeVar("Given")
Read = Annotated[Given, Parameter(parse=False)]
"""The type of the parameter that takes no option: the settings."""

# Limits above what anybody means, and below what seconds, bytes and sizes of batches can be.
Positive = Annotated[float, Parameter(validator=Number(gt=0, lte=1e9))]
Count = Annotated[int, Parameter(validator=Number(gte=1, lte=10**9))]
Share = Annotated[float, Parameter(validator=Number(gte=0, lte=1))]
Level = Annotated[float, Parameter(validator=Number(gt=0, lt=1))]
NotNegative = Annotated[Given, Parameter(validator=Number(gte=0))]


@dataclass(frozen=True)
class EndpointSection:
    """The server that answers: what `proxy`, `decide`, `audit` and `doctor` ask, and what its log-probabilities are."""

    base_url: str = ""
    model: str = ""
    """Its name there."""
    key_env: str = "OPENAI_API_KEY"
    """The name of the variable that holds the key, never the key."""
    top_logprobs: Count = 20
    distribution: Literal[Distribution, ""] = ""
    """The distribution of the log-probabilities, where replies do not say."""
    temperature: Positive = 1.0
    """The temperature of the requests whose replies are read, for SGLang."""
    answering_model: str = ""
    """The model that answers, if the tokenizer is another model's."""
    token_ids: Literal["auto", "yes", "no"] = "auto"  # noqa: S105
    """Ask for token ids; auto: if the server is vLLM and its tokenizer is known."""
    timeout_seconds: Positive = 60


@dataclass(frozen=True)
class ModelSection:
    """A model in this process: `ask`, `score`, `decide`, `serve`."""

    backend: BackendName = "transformers"
    dtype: DType = "auto"
    trust_remote_code: bool = False
    """Run Python code that comes with the model."""
    batch_size: Count = 8
    """Prompts processed together."""


@dataclass(frozen=True)
class ScoringSection:
    """The scores that are computed of every answer."""

    methods: tuple[str, ...] = ()
    """Further scores."""
    states: bool = False
    """True if `score` also writes the hidden state at the end of every answer, to train on."""
    equality: Literal[Equality, ""] = ""
    """The rule for equal tokens: exact (JSON, numbers, code) or surface; empty: that of the preset."""


@dataclass(frozen=True)
class CalibrationSection:
    """The use of a calibrator's decisions."""

    abstain_text: str = ""
    """Shown instead of answers that are not accepted; empty: nothing is hidden."""
    decisions: str = ""
    """Folder of the calibrator for typed questions."""


@dataclass(frozen=True)
class JournalSection:
    """The journal in which answers are recorded, and the parts of them that it keeps."""

    url: str = ""
    texts: bool = False
    """Keep questions and answers, which people need to label them."""
    withhold: tuple[str, ...] = ()
    """Regular expressions; what they match is not kept."""
    withhold_with: str = ""
    """MODULE:FUNCTION, which takes a text and returns what may be kept of it."""
    sample: Share | None = None
    """Share of answers in the random sample; without it as before, 0.05 in a new journal."""
    seed: str = ""
    spool: str = ""
    """Folder for entries that the database does not have yet."""

    @property
    def recording(self) -> RecordingRules:
        """The same without the address."""
        from semtoken.guarantees.journal.recording import RecordingRules

        return RecordingRules(
            texts=self.texts,
            withhold=self.withhold,
            withhold_with=self.withhold_with or None,
            sample=self.sample,
            seed=self.seed or None,
            spool=path_of(self.spool),
        )


@dataclass(frozen=True)
class ServerSection:
    """The clients that may use the servers `proxy` and `serve`."""

    allowed_hosts: tuple[str, ...] = ()
    """Names under which clients reach it, besides those of this machine; "*": any."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may call the proxy from a browser; "*": any."""
    page: bool = True
    """Show a page for a browser at /."""


@dataclass(frozen=True)
class ServeSection:
    """Settings of `serve` alone."""

    max_logprobs: NotNegative[int] = 20
    """Most log-probabilities of a token that a request may ask for."""


@dataclass(frozen=True)
class ProxySection:
    """Settings of `proxy` alone."""

    hold_seconds: NotNegative[float] = 0.25
    """The seconds for which the last piece of a stream is held back, so that it carries the final score."""


@dataclass(frozen=True)
class DecisionsSection:
    """Typed questions: where they are, and how a server is asked."""

    questions: str = ""
    labeled: str = ""
    require: tuple[str, ...] = ()
    """The guarantees that `calibrate --require` demands."""
    route: Literal["auto", "pass", "chat", "completions"] = "auto"
    concurrency: Count = 8
    request_fields: str = "{}"
    """Further fields of these requests, as the text of a JSON object."""


@dataclass(frozen=True)
class GuaranteeSection:
    """Defaults of `calibrate`; an option goes before them."""

    alpha: Level = 0.1
    delta: Level = 0.1
    kind: Guarantee = "selective_risk"

    @property
    def levels(self) -> dict[str, Any]:
        """The same as arguments of a fit."""
        return {"guarantee": self.kind, "alpha": self.alpha, "delta": self.delta}


@dataclass(frozen=True)
class AuditSection:
    """The limits beyond which `audit` says that a guarantee does not hold."""

    level: Level = 0.05
    """The largest probability that a guarantee that holds is ever called broken, over all looks."""
    max_distance: Share = 0.0
    """Largest distance of the scores; 0: no limit."""
    min_accepted: Share = 0.0
    undecided_passes: bool = True
    """True if too few labels to tell count as holding."""
    variants: Count = 100

    @property
    def limits(self) -> AuditLimits:
        """The limits that have to hold besides the guarantee."""
        from semtoken.guarantees.auditing import AuditLimits

        return AuditLimits(self.max_distance or None, self.min_accepted, self.undecided_passes)


@dataclass(frozen=True)
class LimitsSection:
    """The amount of work that a server accepts, and the time that it waits."""

    connections: Count = 1000
    request_mb: Positive = 32
    reply_mb: Positive = 64
    scored_tokens: Count = 32_768
    scoring_seconds: Positive = 30
    part_seconds: NotNegative[float] = 10
    connect_seconds: Positive = 10
    read_seconds: Positive = 600
    request_seconds: Positive = 3600
    shutdown_seconds: Positive = 10


@dataclass(frozen=True)
class TelemetrySection:
    """OpenTelemetry events; OTEL_EXPORTER_OTLP_ENDPOINT and its like say where to."""

    enabled: bool = False
    content: bool = False
    """Send the texts of the answers, too."""


@dataclass(frozen=True)
class ExecutorSection:
    """The executor of the shards of large jobs: this process, or the workers of Ray."""

    kind: Literal["local", "ray"] = "local"
    workers: Count = 1
    gpus: NotNegative[float] = 0.0
    """GPUs of a worker; 0.5 shares one."""
    address: str = ""
    """A running cluster, "auto" for this machine's; empty: one is started here."""


@dataclass(frozen=True)
class Settings:
    """All sections of `semtoken.toml`."""

    endpoint: EndpointSection = EndpointSection()
    model: ModelSection = ModelSection()
    scoring: ScoringSection = ScoringSection()
    calibration: CalibrationSection = CalibrationSection()
    journal: JournalSection = JournalSection()
    server: ServerSection = ServerSection()
    serve: ServeSection = ServeSection()
    proxy: ProxySection = ProxySection()
    decisions: DecisionsSection = DecisionsSection()
    guarantee: GuaranteeSection = GuaranteeSection()
    audit: AuditSection = AuditSection()
    limits: LimitsSection = LimitsSection()
    telemetry: TelemetrySection = TelemetrySection()
    executor: ExecutorSection = ExecutorSection()


SECTIONS: Mapping[str, type] = get_type_hints(Settings)
KEYS = tuple(f"{section}.{field.name}" for section, kind in SECTIONS.items() for field in fields(kind))
PATHS = ("calibration.decisions", "journal.spool", "journal.url", "decisions.questions", "decisions.labeled")
"""Keys that name a file or a folder: in a settings file they are meant from its folder on."""
RUNS_CODE = ("model.trust_remote_code", "journal.withhold_with")
"""Keys that run code: a file that was merely found in a folder may not set them."""


@dataclass(frozen=True)
class SettingsInUse:
    """Settings, and where each comes from."""

    settings: Settings
    sources: Mapping[str, str]
    """By key, such as "limits.connections": the file, the variable or "command line"; defaults are not in it."""
    file: Path | None = None
    named: bool = False
    """True if the user named the file, by `--config` or SEMTOKEN_CONFIG; else it was found."""

    def is_found(self, key: str) -> bool:
        """Return True if a key's value comes from a file that was found and not named: it may be somebody else's."""
        return not self.named and self.file is not None and self.sources.get(key) == str(self.file)


def read_settings(config: Path | None = None, typed: Sequence[str] = ()) -> SettingsInUse:
    """The settings in effect: the words of the command line, else variables, else the file, else defaults.

    Parameters
    ----------
    config
        The file that the user named; None: that of SEMTOKEN_CONFIG, else the nearest `semtoken.toml` from here up.
    typed
        Words such as `--limits.connections=5`.

    Raises
    ------
    UsageError
        Something is not a setting, or not a possible value; the message has the file or variable, the key, a hint.
    """
    file, named = _file(config)
    content = {} if file is None else _content(file)
    variables = _variables()
    sources: dict[str, str] = {}
    if file is not None:
        sources |= {f"{section}.{key}": str(file) for section, keys in content.items() for key in keys}
    sources |= variables
    sources |= {_key(word): "command line" for word in typed}
    # The usual case, in which the parser and its imports are not needed.
    if not sources:
        return SettingsInUse(Settings(), {}, file, named)
    from cyclopts import App, CycloptsError
    from cyclopts.config import Dict, Env

    app = App(help_flags=(), version_flags=(), result_action="return_value", name="semtoken")
    # In the order of precedence: each fills only what those before it left open.
    app.config = (Env(PREFIX, command=False), Dict(content, source=str(file)))
    app.default(_sections)
    try:
        settings = app(list(typed), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise UsageError(str(error)) from error
    found = SettingsInUse(settings, sources, file, named)
    for key in RUNS_CODE:
        if found.is_found(key) and key_of(settings, key):
            raise UsageError(f"{file}: {key} runs code, and counts only in a file that you name: --config {file}")
    return found


def _sections(*, settings: Annotated[Settings, Parameter(name="*")] = Settings()) -> Settings:
    return settings


def _file(config: Path | None) -> tuple[Path | None, bool]:
    """The settings file, and whether the user named it."""
    named = config or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if named is not None:
        if not named.exists():
            raise UsageError(f"There is no settings file {named}.")
        return named.absolute(), True
    here = Path.cwd()
    found = next((folder / NAME for folder in (here, *here.parents) if (folder / NAME).is_file()), None)
    if found is None and (here / FORMER).is_file():  # its limits may be what a check rests on
        raise UsageError(
            f"{here / FORMER} is no longer read. Write its settings into a {NAME} beside it, for which "
            f"`semtoken config > {NAME}` writes all keys, or rename the file if it holds something else."
        )
    return found, False


def _content(file: Path) -> dict[str, dict[str, Any]]:
    """The content of a settings file; names of files in it are taken from its folder on."""
    import tomllib

    from semtoken.support.files.safe_files import read_file

    try:
        content = tomllib.loads(read_file(file).decode("utf-8-sig"))  # some editors put a mark first
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not TOML: {error}") from error
    for section, keys in content.items():
        if not isinstance(keys, dict):
            raise UsageError(
                f"{file}: {section} = ... stands outside a section; its section is [{_section_of(section)}]."
            )
        for key, value in keys.items():
            name = f"{section}.{key}"
            if isinstance(value, str) and get_type_hints(SECTIONS.get(section, Settings)).get(key) == tuple[str, ...]:
                raise UsageError(f'{file}: {key} under [{section}] is a list: write {key} = ["{value}"].')
            if name in PATHS and value and "://" not in str(value):
                # An address of a database is no path.
                keys[key] = str(file.parent / value)
    return content


def lines_of_keys(file: Path) -> dict[str, int]:
    """The line of each key in a settings file, as far as it is written in a line of its own under `[section]`."""
    from semtoken.support.files.safe_files import read_file

    lines, section = {}, ""
    for number, line in enumerate(read_file(file).decode("utf-8", "replace").splitlines(), start=1):
        if heading := re.match(r"\s*\[\s*(\w+)\s*\]", line):
            section = heading[1]
        elif key := re.match(r"\s*(\w+)\s*=", line):
            lines[f"{section}.{key[1]}"] = number
    return lines


def _section_of(key: str) -> str:
    return next((known.partition(".")[0] for known in KEYS if known.endswith(f".{key}")), "SECTION")


def _variables() -> dict[str, str]:
    """The variables that hold settings, by key; one that begins like them and is none is rejected."""
    known = {variable_of(key): key for key in KEYS}
    sections = tuple(f"{PREFIX}{section.upper()}_" for section in SECTIONS)
    for name in os.environ:
        # A misspelled variable would be ignored in silence, and a limit with it.
        if name.startswith(sections) and name not in known:
            raise UsageError(f"There is no setting {name}{did_you_mean(name, known) or '; see `semtoken config`'}.")
    return {key: name for name, key in known.items() if name in os.environ}


def variable_of(key: str) -> str:
    """The variable of a key: SEMTOKEN_LIMITS_CONNECTIONS of limits.connections."""
    return PREFIX + key.replace(".", "_").upper()


def _key(word: str) -> str:
    """The key of a word such as `--limits.request-mb=5`."""
    return word.removeprefix("--").partition("=")[0].replace("-", "_")


def path_of(text: str) -> Path | None:
    """The file or folder that a key names; None where it is empty."""
    return Path(text) if text else None


def key_of(settings: Settings, key: str) -> Any:
    """The value of a key such as "limits.connections"."""
    section, _, name = key.partition(".")
    return getattr(getattr(settings, section), name)
