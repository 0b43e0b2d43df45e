"""`examine`: an address -> Diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from semtoken.engine_tokens import TopStep
from semtoken.errors import BackendError, InvalidInput
from semtoken.payloads.formats import SHAPES, Shape
from semtoken.payloads.formats.openai_completions import OpenAICompletions
from semtoken.scoring.token_sources import Tokens
from semtoken.tokens.vocabulary import Vocabulary
from semtoken.web.doctor import probes
from semtoken.web.doctor.connection import Connection
from semtoken.web.doctor.diagnosis import Diagnosis, Page
from semtoken.web.doctor.requests import Asker
from semtoken.web.doctor.verdicts import verdicts


def examine(
    base_url: str,
    model: str | None = None,
    *,
    vocabulary: Tokens | None = None,
    key_env: str = "OPENAI_API_KEY",
    timeout: float = 30.0,
    progress: Callable[[str], Any] = lambda _: None,
) -> Diagnosis:
    """Examine an endpoint with some thirty short requests.

    Parameters
    ----------
    base_url
        Its address, such as http://127.0.0.1:8000/v1; without `/v1` both are tried.
    model
        Name of a model there. Default: the only one that the server lists.
    vocabulary
        That of the tokenizer that the model is thought to have: it is compared, and a few answers are scored with it;
        without it they are scored from the reply alone. Clusters ask for the width of the intervals under `paper`.
    key_env
        Environment variable that holds the key, if one is needed. It is sent to the server and shown nowhere.
    timeout
        Seconds that the server may be silent.
    progress
        Called with what is being looked at.

    Raises
    ------
    InvalidInput
        The address is none, or the server lists several models and none was named.
    BackendError
        The server cannot be reached, is silent, or refuses the key.
    """
    with Connection(base_url, key_env=key_env, timeout=timeout) as connection:
        progress("models")
        models = _models(connection)
        asker = Asker(connection, model if model is not None else _only(models))
        pages = []
        for shape in SHAPES:
            progress(shape.name)
            pages.append(probes.look_at(asker, shape))
        found = _without_details(connection, asker, models, pages)
        good = {page.name for page in pages if page.most}
        best = next((shape for shape in SHAPES if shape.below_v1 and shape.name in good), None)
        if best is not None:
            found = _with_details(found, asker, best, vocabulary, progress)
        found = replace(found, requests=asker.requests)
        return replace(found, verdicts=verdicts(found))


def _models(connection: Connection) -> tuple[str, ...]:
    """The models that the server lists; finds out whether the address lacks its `/v1`."""
    answer = connection.get("/models")
    if answer.missing and not connection.base_url.endswith("/v1"):
        connection.base_url += "/v1"
        answer = connection.get("/models")
    if answer.status in (401, 403):
        raise BackendError(
            f"{connection.base_url} refuses the key ({answer.reason}). Put the right one into the environment "
            "variable that --key-env names."
        )
    values = answer.values if answer.ok else None
    listed = values.get("data") if isinstance(values, dict) else None
    named = (entry.get("id") for entry in listed or () if isinstance(entry, dict)) if isinstance(listed, list) else ()
    return tuple(name for name in named if isinstance(name, str))


def _only(models: Sequence[str]) -> str:
    if len(models) == 1:
        return models[0]
    listed = f"lists {len(models)}: {', '.join(models[:10])}" if models else "lists none"
    raise InvalidInput(f"Which model? The server {listed}. Name one with --model.")


def _without_details(connection: Connection, asker: Asker, models: tuple[str, ...], pages: list[Page]) -> Diagnosis:
    return Diagnosis(
        base_url=connection.base_url,
        model=asker.model,
        models=models,
        pages=tuple(pages),
        best=None,
        tokens=None,
        only_zeros=False,
        distribution="unknown",
        distribution_reason="there are no log-probabilities",
        streaming=None,
        prompt_log_probs=(),
        tokenizer=None,
        trials=(),
        requests=asker.requests,
    )


def _with_details(
    found: Diagnosis,
    asker: Asker,
    shape: type[Shape],
    vocabulary: Tokens | None,
    progress: Callable[[str], Any],
) -> Diagnosis:
    """What is known of the best page only."""
    page = found.page(shape.name)
    assert page is not None
    progress("names of tokens")
    tokens, reply = probes.look_at_tokens(asker, page, shape)
    steps: list[TopStep] = list(reply.steps)
    progress("temperature")
    distribution, reason = probes.look_at_distribution(asker, page, shape)
    progress("streams")
    streaming = probes.look_at_streaming(asker, page, shape)
    progress("prompts")
    completions = found.page(OpenAICompletions.name)
    prompts = probes.look_at_prompt_log_probs(asker, completions is not None and completions.answers)
    progress("trial answers")
    tried, more = probes.try_prompts(asker, page, shape, tokens, vocabulary)
    trials, steps = tuple(tried), steps + more
    known = vocabulary if vocabulary is None or isinstance(vocabulary, Vocabulary) else vocabulary.vocabulary
    return replace(
        found,
        best=shape.name,
        tokens=tokens,
        only_zeros=probes.only_zeros(reply.steps),
        distribution=distribution,
        distribution_reason=reason,
        streaming=streaming,
        prompt_log_probs=prompts,
        tokenizer=None if known is None else probes.look_at_tokenizer(steps, known),
        trials=trials,
    )
