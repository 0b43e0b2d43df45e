"""The tools that semtoken plugs into, with the versions of them that are known to work."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import warnings
from dataclasses import dataclass

from semtoken.errors import MissingExtra

Version = tuple[int, ...]


@dataclass(frozen=True)
class Host:
    """A tool that semtoken plugs into. You install it yourself; it is no extra of semtoken."""

    name: str
    """The module of `semtoken.integrations` that works inside this tool."""
    module: str
    """The module of the tool that is imported."""
    distribution: str
    """The distribution that pip installs."""
    lowest: str
    """The first version that is known to work."""
    below: str
    """The first version that is expected to be different."""
    tested: str
    """The version that the live tests last ran with."""
    also: tuple[str, ...] = ()
    """Further packages that the live test of this tool installs."""

    @property
    def requirement(self) -> str:
        """The supported versions of the tool as a requirement for pip."""
        return f"{self.distribution}>={self.lowest},<{self.below}"


_ALL = (
    Host("lm_polygraph", "lm_polygraph", "lm-polygraph", "0.7", "0.8", "0.7.0"),
    Host("inspect_ai", "inspect_ai", "inspect-ai", "0.3.285", "0.4", "0.3.285", also=("openai>=3.4",)),
    Host("lm_eval", "lm_eval", "lm-eval", "0.4.13", "0.5", "0.4.13"),
    Host("opentelemetry", "opentelemetry.sdk._logs", "opentelemetry-sdk", "1.45", "2", "1.45.2"),
    Host("litellm", "litellm", "litellm", "1.106", "2", "1.110.2", also=("litellm[proxy]",)),
    Host("langchain", "langchain_core", "langchain-core", "1.7", "2", "1.8.3", also=("langchain-openai>=1.7",)),
    Host("llm", "llm", "llm", "0.36", "0.40", "0.36", also=("./packaging/llm-semtoken",)),
    Host("mcp", "mcp", "mcp", "2.3", "3", "2.3.0"),
)
HOSTS = {host.name: host for host in _ALL}
"""The hosts by the name of their module below `semtoken.integrations`."""


def require_host(name: str) -> None:
    """Import the tool that an integration is for; `MissingExtra`, with the install line, if it is missing or too old.

    A version above those that were tried gives a warning, since it often works all the same.
    """
    host = HOSTS[name]
    install = f"Install it with: pip install '{host.requirement}'"
    try:
        importlib.import_module(host.module)
    except ModuleNotFoundError as error:
        # Another package is missing: the tool is there, and broken in itself.
        if error.name is None or error.name.partition(".")[0] != host.module.partition(".")[0]:
            raise
        raise MissingExtra(
            f"semtoken.integrations.{name} needs {host.distribution}, which is not installed. {install}"
        ) from error
    try:
        installed = importlib.metadata.version(host.distribution)
    except importlib.metadata.PackageNotFoundError:
        return  # a checkout on the path; what it is cannot be known
    if version_of(installed) < version_of(host.lowest):
        raise MissingExtra(
            f"semtoken.integrations.{name} needs {host.distribution} {host.lowest} or later, and {installed} is "
            f"installed. {install}"
        )
    if version_of(installed) >= version_of(host.below):
        warnings.warn(
            f"semtoken.integrations.{name} was tried with {host.distribution} below {host.below}, not with "
            f"{installed}.",
            stacklevel=3,
        )


def version_of(text: str) -> Version:
    """Parse the numbers at the beginning of a version.

    >>> version_of("1.106.2rc1")
    (1, 106, 2)
    """
    numbers = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in numbers[0].split(".")) if numbers else ()
