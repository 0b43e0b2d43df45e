"""What `semtoken check` shows of replies one by one: numbers, tokens, intervals, or the block as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from semtoken.choices import Distribution, SegmentKind
from semtoken.cli.console import json_line, out, print_scores, untrusted
from semtoken.cli.options import (
    ClustersOption,
    EqualityOption,
    FunctionWordsOption,
    JsonOption,
    MethodsOption,
    PresetOption,
    RevisionOption,
    TokenizerOption,
    as_methods,
)
from semtoken.errors import SemtokenError

if TYPE_CHECKING:
    from semtoken.core.results import ScoredResponse
    from semtoken.core.rules import ScoringRules
    from semtoken.core.scorer import Tokens
    from semtoken.replies import Payload


@dataclass(frozen=True)
class ReplyView:
    """How replies are scored and shown one by one: each field is an option of `semtoken check`."""

    tokens: Annotated[
        bool, typer.Option("--tokens", help="A table of the tokens: probabilities and what carried them.")
    ] = False
    as_json: JsonOption = False
    tokenizer: TokenizerOption = None
    methods: MethodsOption = None
    segment: Annotated[SegmentKind, typer.Option(help="The part of each choice to score.")] = "answer"
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Temperature of the request: SGLang's log-probabilities follow it.")
    ] = None
    preset: PresetOption = "default"
    equality: EqualityOption = None
    function_words: FunctionWordsOption = None
    clusters: ClustersOption = None
    proxy_for: Annotated[
        str | None,
        typer.Option(help="Model that answered, if the vocabulary is another model's with the same tokenizer."),
    ] = None
    revision: RevisionOption = None

    @property
    def wanted(self) -> bool:
        """Whether any of the options was given."""
        return self != ReplyView()


def is_one_reply(sources: Sequence[str]) -> bool:
    """Whether the sources are one file with one reply."""
    from itertools import islice
    from pathlib import Path

    from semtoken.replies.checking.replies import saved_replies

    if len(sources) != 1 or not Path(sources[0]).is_file():
        return False
    try:
        return len(list(islice(saved_replies(sources), 2))) == 1
    except SemtokenError:
        return False


def show_one_by_one(
    sources: Sequence[str], format: str | None, distribution: Distribution | None, how: ReplyView
) -> None:
    """Print each choice of each reply, with its interval and flags, or its block as a line of JSON."""
    from semtoken.core.rules import ScoringRules
    from semtoken.replies import read_payload
    from semtoken.replies import score_payload as score
    from semtoken.replies.checking.replies import saved_replies

    wanted = as_methods(how.methods, of_replies=True)
    rules = ScoringRules(how.preset, how.function_words, equality=how.equality)
    vocabulary = load_tokens(how.tokenizer, how.clusters, rules, how.revision)
    for number, saved in enumerate(saved_replies(sources), start=1):
        try:
            payload = read_payload(saved.reply, format, temperature=how.temperature, request=saved.request)
            results = score(
                saved.asked_in(payload),
                vocabulary,
                preset=rules,
                segment=how.segment,
                distribution=distribution,
                proxy_for=how.proxy_for,
                methods=wanted,
            )
        except SemtokenError as error:
            raise type(error)(f"Reply {number} ({saved.where}): {error}") from error
        for choice, result in zip(payload.choices, results, strict=True):
            if how.as_json:
                place = {"reply": number, "choice": choice.index, "format": payload.format, "model": payload.model}
                typer.echo(json_line(place | result.to_dict()))
            else:
                _print(payload, result, tokens=how.tokens)
    if not how.as_json:
        from semtoken.core.results.headlines import RANKS
        from semtoken.display import legend

        out.print(legend())
        out.print(untrusted(RANKS, style="dim"), soft_wrap=True)


def load_tokens(
    tokenizer: str | None, clusters: str | None, rules: ScoringRules, revision: str | None = None
) -> Tokens | None:
    """What the options --tokenizer and --clusters name; None if neither is given, which is enough for most rules."""
    from semtoken.core.scorer import as_clusters, as_tokens

    if clusters is not None:
        return as_clusters(clusters, revision=revision)
    if tokenizer is None:
        return None
    return as_tokens(tokenizer, clustering=rules.clustering, revision=revision)


def _print(payload: Payload, result: ScoredResponse, *, tokens: bool) -> None:
    from rich.text import Text

    from semtoken.core.parts.prose import is_sentence
    from semtoken.display import shaded_text, token_table
    from semtoken.support.text import CUT_OFF, number

    of_what = "exact wording: " if is_sentence(result.text, result.n_tokens) else ""
    low, high = result.uncertainty_bounds
    out.print(shaded_text(result))
    out.print(Text(f"  {result.headline.line}", style="bold"), soft_wrap=True)
    uncertainty = f"uncertainty {number(result.uncertainty)} ({number(low)} to {number(high)})"
    facts = [of_what + uncertainty, payload.format, f"distribution {result.distribution}"]
    if result.truncated:
        facts.append(CUT_OFF)
    out.print(Text("  " + " · ".join(facts), style="dim"), soft_wrap=True)
    print_scores(result)
    for flag in result.flags:
        out.print(untrusted(f"  {flag.message}", style="yellow"))
    if tokens:
        from rich.padding import Padding

        out.print(Padding(token_table(result), (0, 0, 0, 2)))
    out.print()
