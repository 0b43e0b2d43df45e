"""`semtoken score-payload`: replies of engines and APIs in, the uncertainty of their answers out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from semtoken.choices import SegmentKind
from semtoken.cli.console import json_line, out, print_scores, untrusted
from semtoken.cli.options import (
    ClustersOption,
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
    from semtoken.payloads import Payload
    from semtoken.results import ScoredResponse
    from semtoken.scoring.rules import ScoringRules
    from semtoken.scoring.token_sources import Tokens


def score_payload(
    source: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A reply as JSON, replies as JSON lines, or a saved stream; '-': stdin."),
    ],
    tokenizer: TokenizerOption = None,
    clusters: ClustersOption = None,
    format: Annotated[
        str | None, typer.Option("--format", help="Shape of the replies. Default: recognised by their fields.")
    ] = None,
    segment: Annotated[SegmentKind, typer.Option(help="The part of each choice to score.")] = "answer",
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Temperature of the request: SGLang's log-probabilities follow it.")
    ] = None,
    preset: PresetOption = "default",
    function_words: FunctionWordsOption = None,
    proxy_for: Annotated[
        str | None,
        typer.Option(help="Model that answered, if the vocabulary is another model's with the same tokenizer."),
    ] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="A table of the tokens: probabilities and what carried them.")
    ] = False,
    methods: MethodsOption = None,
    question: Annotated[str, typer.Option(help="What was asked: its words are not new in the answer.")] = "",
    as_json: JsonOption = False,
    revision: RevisionOption = None,
) -> None:
    """Score replies that hold log-probabilities: of OpenAI and its like, vLLM, SGLang, llama.cpp.

    Of each step only the best tokens are known, so the uncertainty comes with an interval that contains the exact one.
    With --tokenizer the interval is narrower, and tokens may be named by ids alone.
    A reply without log-probabilities, or with some that do not spell its text, is refused with the reason.

    For example:

    - `semtoken score-payload reply.json`
    - `curl -s localhost:8000/v1/chat/completions -d @request.json | semtoken score-payload - --json`
    - `semtoken score-payload reply.json --tokenizer smollm2`
    - `semtoken score-payload reply.json --preset paper --clusters ./my-clusters`
    """
    from semtoken.checking.replies import saved_replies
    from semtoken.payloads import read_payload
    from semtoken.payloads import score_payload as score
    from semtoken.scoring.rules import ScoringRules

    wanted = as_methods(methods, of_replies=True)
    rules = ScoringRules(preset, function_words)
    vocabulary = load_tokens(tokenizer, clusters, rules, revision)
    for number, saved in enumerate(saved_replies([source]), start=1):
        try:
            payload = read_payload(saved.reply, format, temperature=temperature)
            results = score(
                payload,
                vocabulary,
                preset=rules,
                segment=segment,
                proxy_for=proxy_for,
                methods=wanted,
                question=question,
            )
        except SemtokenError as error:
            raise type(error)(f"Reply {number} ({saved.where}): {error}") from error
        for choice, result in zip(payload.choices, results, strict=True):
            if as_json:
                place = {"reply": number, "choice": choice.index, "format": payload.format, "model": payload.model}
                typer.echo(json_line(place | result.to_dict()))
            else:
                _print(payload, result, tokens=tokens)
    if not as_json:
        from semtoken.display import legend

        out.print(legend())


def load_tokens(
    tokenizer: str | None, clusters: str | None, rules: ScoringRules, revision: str | None = None
) -> Tokens | None:
    """What the options --tokenizer and --clusters name; None if neither is given, which is enough for most rules.

    Raises
    ------
    SemtokenError
        The tokenizer or the clusters cannot be read.
    """
    from semtoken.scoring.token_sources import as_clusters, as_tokens

    if clusters is not None:
        return as_clusters(clusters, revision=revision)
    if tokenizer is None:
        return None
    return as_tokens(tokenizer, clustering=rules.clustering, revision=revision)


def _print(payload: Payload, result: ScoredResponse, *, tokens: bool) -> None:
    from rich.text import Text

    from semtoken.display import shaded_text, token_table
    from semtoken.support.text import CUT_OFF, number

    low, high = result.uncertainty_bounds
    out.print(shaded_text(result))
    out.print(Text(f"  {result.headline.line}", style="bold"), soft_wrap=True)
    facts = [f"uncertainty {number(result.uncertainty)}", f"between {number(low)} and {number(high)}", payload.format]
    facts.append(f"distribution {result.distribution}")
    if result.truncated:
        facts.append(CUT_OFF)
    out.print(Text("  " + " · ".join(facts), style="dim"))
    print_scores(result)
    for flag in result.flags:
        out.print(untrusted(f"  {flag.message}", style="yellow"))
    if tokens:
        from rich.padding import Padding

        out.print(Padding(token_table(result), (0, 0, 0, 2)))
    out.print()
