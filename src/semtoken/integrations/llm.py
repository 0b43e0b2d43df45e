"""The command-line tool `llm`: models that log their uncertainty, and a command that shows it.

    llm install llm-semtoken
    llm -m semtoken/almanac "What is the capital of Japan?"
    llm semtoken

`packaging/llm-semtoken` is the package that registers this module with `llm`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from functools import cache
from typing import Any

from semtoken.choices import Equality, Preset
from semtoken.core.results.blocks import KEY, numbers_of
from semtoken.core.results.confidence import RANKS
from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.integrations.hosts import require_host
from semtoken.support.extras import quiet_libraries
from semtoken.support.text import number, visible

require_host("llm")

import click  # noqa: E402  # llm is built on it
import llm  # noqa: E402

PREFIX = "semtoken/"


class SemtokenModel(llm.Model):  # type: ignore[misc]
    """A model in this process, by its name for `ScoredModel.from_pretrained`.

    `response.response_json["semtoken"]` has the uncertainty; `llm logs --json` shows it.
    """

    can_stream = False

    class Options(llm.Options):  # type: ignore[misc]
        """Options that `-o NAME VALUE` sets."""

        max_tokens: int = 256
        preset: Preset = "default"
        equality: Equality | None = None

    def __init__(self, name: str) -> None:
        self.model_id = PREFIX + name
        self.name = name

    def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> Iterator[str]:
        """Answer a prompt, and log the score with the answer."""
        # Of a conversation that `-c` goes on with, llm has the messages only.
        if any(message.role not in ("system", "user") for message in prompt.messages):
            raise InvalidInputError("semtoken answers single questions in llm; leave out -c.")
        from semtoken.models.prompts import how_to_ask

        stc = _loaded(self.name, prompt.options.preset, prompt.options.equality)
        asking = how_to_ask(self.name, stc.tokenizer, raw=False)
        asked = f"{prompt.system}\n\n{prompt.prompt}" if prompt.system else prompt.prompt
        [answer] = stc.generate(
            [asking.prompt(asked)], prompt.options.max_tokens, stop_at_newline=asking.stop_at_newline
        )
        block = numbers_of(answer) | {
            "new_word_confidence": answer.new_word_confidence(asked),
            "tokens": [{"text": token.text, "probability": token.agreeing_probability} for token in answer.tokens],
        }
        block["summary"] = answer.summary
        response.response_json = {KEY: block}
        yield answer.text.strip()


@cache
def _loaded(name: str, preset: Preset, equality: Equality | None) -> Any:
    from semtoken.scored_model import ScoredModel

    quiet_libraries()
    return ScoredModel.from_pretrained(name, preset=preset, equality=equality)


@llm.hookimpl  # type: ignore[untyped-decorator]
def register_models(register: Any) -> None:
    """Tell llm of the models that are here: the embedded one, and those that `semtoken fetch` has got."""
    from semtoken.support.checkpoints.sources import CATALOG

    for name in ("almanac", *(each for each in CATALOG if each != "almanac")):
        register(SemtokenModel(name))


@llm.hookimpl  # type: ignore[untyped-decorator]
def register_commands(cli: Any) -> None:
    """Add the command `llm semtoken`."""

    @cli.command(name="semtoken")  # type: ignore[untyped-decorator]
    def last() -> None:
        """Show how sure the model was of the last answer in the log, token by token."""
        try:
            click.echo(last_answer())
        except SemtokenError as error:
            raise click.ClickException(str(error)) from error


def last_answer() -> str:
    """The last answer in llm's log with an uncertainty, as lines for a terminal; `InvalidInputError` if there is
    none.
    """
    from llm.cli import cli  # its own listing, since the tables of its log change between versions

    listing = io.StringIO()
    with redirect_stdout(listing), suppress(click.ClickException):  # there may be no log yet
        cli.main(["logs", "list", "--json", "-n", "50"], standalone_mode=False)
    rows = [row for row in json.loads(listing.getvalue() or "[]") if _block_of(row) is not None]
    if not rows:
        raise InvalidInputError(f"llm's log has no answer of semtoken. Ask one: llm -m {PREFIX}almanac 'a question'.")
    last = rows[-1]
    block = _block_of(last) or {}
    tokens = [f"  {visible(token['text'])!r:16} {number(token['probability'])}" for token in block["tokens"]]
    return "\n".join([visible(last["response"]), visible(block["summary"]), *tokens, RANKS])


def _block_of(row: dict[str, Any]) -> dict[str, Any] | None:
    kept = row.get("response_json")
    fields = json.loads(kept) if isinstance(kept, str) else kept
    block = fields.get(KEY) if isinstance(fields, dict) else None
    return block if isinstance(block, dict) else None
