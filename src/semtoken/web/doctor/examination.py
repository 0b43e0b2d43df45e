"""`examine`: an address -> Diagnosis, found out by asking: one function for each question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core.engine_tokens import TopStep, check_shared_vocabulary
from semtoken.core.given_tokens import Tokens
from semtoken.errors import BackendError, InvalidInputError, SemtokenError
from semtoken.replies import score_reply
from semtoken.replies.formats import ProbeQuestion, Shape, served_shapes
from semtoken.replies.formats.openai_choices import OpenAICompletions
from semtoken.support.http_client import HttpClient, HttpReply, checked_base_url, key_from
from semtoken.web.doctor.asking import REFUSALS, Asker, ProbeReply, taken
from semtoken.web.doctor.diagnosis import (
    ALL,
    Diagnosis,
    Page,
    Streaming,
    Tokenizer,
    TokenNaming,
    Trial,
    TriedCount,
)
from semtoken.web.doctor.engines import recognize
from semtoken.web.doctor.numbers import TOO_FEW, Numbers, judge
from semtoken.web.doctor.verdicts import verdicts

LONGEST_REPLY = 256 * 2**20
"""Most bytes of a reply: some servers list a whole vocabulary for every token."""
LADDER = (0, 1, 5, 20, 100)
FEWER = 5
ENOUGH = 20  # more log-probabilities are of little use, and some servers send megabytes
SHORT_PROMPT = "The capital of France is"
MANY_TOKENS_PROMPT = "Write a sentence about the weather, with a café, a naïve question, 東京 and 🙂 in it."
TRIAL_PROMPTS = ("What is the capital of France?", "Who wrote Hamlet?", "Name an animal that lives in the sea.")
ID_FIELDS = ({"return_tokens_as_token_ids": True, "return_token_ids": True}, {"return_token_ids": True})


def look_at(asker: Asker, shape: type[Shape]) -> Page:
    """Find out whether an endpoint answers, and how many log-probabilities for each token it gives."""
    plain = asker.ask(shape, ProbeQuestion(SHORT_PROMPT))
    if plain.parsed_reply is None:
        return _silent_page(shape, plain)

    def trying(top: int) -> TriedCount:
        reply = asker.ask(shape, ProbeQuestion(SHORT_PROMPT, top=top, temperature=0.0))
        return TriedCount(top, None if reply.parsed_reply is None else reply.most, reply.reason)

    tried = tuple(find_most(trying))
    return Page(shape.name, shape.path, answers=True, format=plain.parsed_reply.format, tried=tried)


def _silent_page(shape: type[Shape], reply: ProbeReply) -> Page:
    """The page of an endpoint whose reply could not be read."""
    reason = "no such endpoint" if reply.answer.missing else reply.reason
    return Page(shape.name, shape.path, answers=False, reason=reason)


def find_most(trying: Callable[[int], TriedCount]) -> Iterable[TriedCount]:
    """Search the largest accepted number of log-probabilities: ever more, then all, then by halving."""
    trials: list[TriedCount] = []
    for top in LADDER:
        trials.append(trying(top))
        if top and not trials[-1].given:
            break
    yield from trials
    whole = trying(ALL)
    yield whole
    good = max((trial.asked for trial in trials if trial.given), default=0)
    refused = [trial.asked for trial in trials if trial.given is None and trial.asked > good]
    bad = min(refused, default=0)
    if not good or (whole.given or 0) >= bad:
        return
    while bad - good > 1:
        middle = trying((good + bad) // 2)
        yield middle
        good, bad = (middle.asked, bad) if middle.given else (good, middle.asked)


def look_at_tokens(asker: Asker, top: int, shape: type[Shape]) -> tuple[TokenNaming | None, ProbeReply]:
    """Find out how the server names tokens, None if none came; also returns the reply to the request that did not ask
    for ids.
    """
    question = ProbeQuestion(MANY_TOKENS_PROMPT, max_tokens=24, top=top, temperature=0.0)
    plain = asker.ask(shape, question)
    if plain.answer.ok and not plain.steps:  # a small model may have no answer to it
        question = replace(question, prompt=TRIAL_PROMPTS[0])
        plain = asker.ask(shape, question)
    named = [token for step in plain.steps for token in (step.chosen, *step.top)]
    if not named:
        return None, plain
    spelled = any(token.bytes is not None for token in named)
    if all(token.id is not None for token in named):
        return TokenNaming(spelled, "always"), plain
    for fields in ID_FIELDS:
        reply = asker.ask(shape, replace(question, extra=fields))
        if reply.steps and all(step.chosen.id is not None for step in reply.steps):
            return TokenNaming(spelled, "on request", tuple(fields)), plain
    return TokenNaming(spelled, None), plain


def count_to_ask(page: Page) -> int:
    """The number of log-probabilities for each token to ask of this page in further tests."""
    accepted = [trial.asked for trial in page.tried if trial.given and trial.asked <= ENOUGH]
    return max((top for top in accepted if top > 0), default=1)


def look_at_numbers(asker: Asker, top: int, shape: type[Shape]) -> tuple[Numbers, ProbeReply]:
    """Ask the same at temperatures 1 and 0.5 and compare what came; also returns the first reply.

    Where nothing can be compared, as where an item stands for a character of several tokens, a plain question decides.
    """
    one, half = _at_two_temperatures(asker, top, shape, MANY_TOKENS_PROMPT)
    numbers = replace(judge(one.steps, half.steps), problem=one.problem or half.problem)
    if numbers.reason == TOO_FEW:
        plain = judge(*(reply.steps for reply in _at_two_temperatures(asker, top, shape, TRIAL_PROMPTS[0])))
        numbers = replace(numbers, distribution=plain.distribution, reason=plain.reason, apart=plain.apart)
    if not asker.takes_temperature:
        numbers = replace(numbers, distribution="unknown", reason="the server takes no temperature")
    return numbers, one


def _at_two_temperatures(asker: Asker, top: int, shape: type[Shape], prompt: str) -> Iterator[ProbeReply]:
    for temperature in (1.0, 0.5):
        yield asker.ask(shape, ProbeQuestion(prompt, 8, top, temperature, {"seed": 1}))


def look_at_streaming(asker: Asker, top: int, shape: type[Shape]) -> Streaming:
    """Find out whether the server streams, and whether its streams hold all log-probabilities."""
    question = ProbeQuestion(TRIAL_PROMPTS[0], max_tokens=8, top=top, temperature=0.0)
    streamed = asker.stream(shape, question)
    if streamed.parsed_reply is None:
        return Streaming(False, reason=streamed.reason)
    whole = asker.ask(shape, question)
    return Streaming(True, bool(streamed.steps), bool(streamed.steps) and len(streamed.steps) == len(whole.steps))


def look_at_prompt_log_probs(asker: Asker, answers: bool) -> tuple[str, ...]:
    """Find the fields that bring the log-probabilities of a prompt from the completions endpoint."""
    if not answers:
        return ()
    fields = []
    echoed = asker.ask(OpenAICompletions, ProbeQuestion(SHORT_PROMPT, 1, 1, 0.0, {"echo": True})).answer
    lists = _first_choice(echoed).get("logprobs")
    numbers = lists.get("token_logprobs") if isinstance(lists, dict) else None
    if isinstance(numbers, list) and len(numbers) > 2:
        fields.append("echo")
    asked = asker.ask(OpenAICompletions, ProbeQuestion(SHORT_PROMPT, 1, None, 0.0, {"prompt_logprobs": 1})).answer
    if _first_choice(asked).get("prompt_logprobs"):
        fields.append("prompt_logprobs")
    return tuple(fields)


def _first_choice(answer: object) -> dict[str, object]:
    values = getattr(answer, "values", None) if getattr(answer, "ok", False) else None
    choices = values.get("choices") if isinstance(values, dict) else None
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def look_at_tokenizer(steps: Sequence[TopStep], vocabulary: Vocabulary) -> Tokenizer:
    """Find out whether the tokens of some replies are those of a vocabulary."""
    shared = check_shared_vocabulary(steps, vocabulary)
    return Tokenizer(shared.fits, shared.enough, shared.n_tokens, shared.misfits)


def try_prompts(
    asker: Asker, top: int, shape: type[Shape], tokens: TokenNaming | None, vocabulary: Tokens | None
) -> tuple[list[Trial], list[TopStep]]:
    """Score the answers to a few prompts; also returns all their steps."""
    trials: list[Trial] = []
    steps: list[TopStep] = []
    # Ids alone spell nothing.
    fields = {} if vocabulary is None or tokens is None else dict.fromkeys(tokens.id_fields, True)
    for prompt in TRIAL_PROMPTS:
        asked = prompt if shape.is_chat else f"Question:\n{prompt}\nAnswer:\n"
        reply = asker.ask(shape, ProbeQuestion(asked, 24, top, 0.0, fields))
        steps += reply.steps
        trials.append(_trial(prompt, reply, vocabulary))
    return trials, steps


def _trial(prompt: str, reply: ProbeReply, vocabulary: Tokens | None) -> Trial:
    if reply.parsed_reply is None:
        return Trial(prompt, reason=reply.reason)
    try:
        result = score_reply(reply.parsed_reply, vocabulary)[0]
    except SemtokenError as error:
        return Trial(prompt, reason=str(error))
    bounds = result.confidence_interval
    return Trial(prompt, result.text, result.confidence, bounds, len(result.tokens))


def examine(
    base_url: str,
    model: str | None = None,
    *,
    vocabulary: Tokens | None = None,
    key_env: str = "OPENAI_API_KEY",
    timeout: float = 30.0,
    quick: bool = False,
    progress: Callable[[str], Any] = lambda _: None,
) -> Diagnosis:
    """Examine an endpoint with some thirty short requests, or with two.

    Parameters
    ----------
    base_url
        The address of the endpoint, such as http://127.0.0.1:8000/v1; without `/v1` both are tried.
    model
        Name of a model there. Default: the only one that the server lists.
    vocabulary
        The vocabulary of the tokenizer that the model is thought to have: it is compared, and a few answers are scored
        with it; without it they are scored from the reply alone. Clusters ask for the width of the intervals under
        `paper`.
    key_env
        Environment variable that holds the key, if one is needed. It is sent to the server and shown nowhere.
    timeout
        Seconds that the server may be silent.
    quick
        Whether to send two requests alone (four where these show nothing), for 20 log-probabilities a token (5, where
        20 are rejected) at temperatures 1 and 0.5, to the first of the endpoints that answers: they show what the
        numbers are, not how many there may be.
    progress
        Called with what is being looked at.

    Returns
    -------
    Diagnosis
        What the server gives, and `verdicts` on what that means for scores.

    Raises
    ------
    InvalidInputError
        The address is not one of HTTP or holds a password, or no model was named and the server does not list just one.
    BackendError
        The server cannot be reached, is silent, refuses the key, or takes no more requests.
    """
    address = checked_base_url(base_url)
    # A connection for each request: what one of them breaks does no harm to the next.
    with HttpClient(
        address, key=key_from(key_env), timeout=timeout, keep_alive=False, longest_reply=LONGEST_REPLY
    ) as client:
        progress("models")
        address, answer = _listing(client, address)
        models, owner = _models(answer)
        asker = Asker(client, address, model if model is not None else _only(models, answer))
        found = _in_two_requests if quick else partial(_in_full, vocabulary=vocabulary, progress=progress)
        diagnosis = replace(found(asker, models, owner), requests=asker.requests)
    return replace(diagnosis, verdicts=verdicts(diagnosis))


def _in_full(
    asker: Asker, models: tuple[str, ...], owner: object, vocabulary: Tokens | None, progress: Callable[[str], Any]
) -> Diagnosis:
    """The results of some thirty requests to all endpoints, most of them to the best one."""
    pages = []
    for shape in served_shapes():
        progress(shape.name)
        pages.append(look_at(asker, shape))
    diagnosis = Diagnosis(asker.base_url, asker.model, models, tuple(pages))
    good = {page.name for page in pages if page.most}
    best = next((shape for shape in served_shapes() if shape.below_v1 and shape.name in good), None)
    return diagnosis if best is None else _with_details(diagnosis, asker, best, owner, vocabulary, progress)


def _in_two_requests(asker: Asker, models: tuple[str, ...], owner: object) -> Diagnosis:
    """The results of two requests to the first endpoint that answers."""
    pages: list[Page] = []
    for shape in served_shapes():
        asked = ENOUGH
        numbers, reply = look_at_numbers(asker, asked, shape)
        if reply.parsed_reply is None and reply.answer.status in REFUSALS:  # of so many, perhaps
            asked = FEWER
            numbers, reply = look_at_numbers(asker, asked, shape)
        if reply.parsed_reply is None:
            pages.append(_silent_page(shape, reply))
            continue
        format, tried = reply.parsed_reply.format, TriedCount(asked, reply.most)
        pages.append(Page(shape.name, shape.path, answers=True, format=format, tried=(tried,)))
        engine, by = recognize(reply.answer, owner, format)
        best = shape.name if tried.given else None
        found = Diagnosis(asker.base_url, asker.model, models, tuple(pages), best, engine=engine, recognized_by=by)
        return replace(found, numbers=numbers)
    return Diagnosis(asker.base_url, asker.model, models, tuple(pages))


def _listing(client: HttpClient, base_url: str) -> tuple[str, HttpReply]:
    """The address, with the `/v1` that it may lack, and the server's reply to the question for its models."""
    answer = taken(client.get(f"{base_url}/models"))
    if answer.missing and not base_url.endswith("/v1"):
        base_url += "/v1"
        answer = taken(client.get(f"{base_url}/models"))
    if answer.status in (401, 403):
        raise BackendError(
            f"{base_url} rejects the key ({answer.reason}). Put the right one into the environment "
            "variable that key_env under [endpoint] names."
        )
    return base_url, answer


def _models(answer: HttpReply) -> tuple[tuple[str, ...], object]:
    """The models that the server lists, and who owns the first."""
    values = answer.values if answer.ok else None
    listed = values.get("data") if isinstance(values, dict) else None
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    owner = entries[0].get("owned_by") if entries else None
    return tuple(entry["id"] for entry in entries if isinstance(entry.get("id"), str)), owner


def _only(models: Sequence[str], answer: HttpReply) -> str:
    """The one model of a list; `InvalidInputError` for another number of them, or where the server gave no list."""
    if len(models) == 1:
        return models[0]
    listed = f"lists {len(models)}: {', '.join(models[:10])}" if models else "lists none"
    listed = listed if answer.ok else f"gives no list of them ({answer.reason})"
    raise InvalidInputError(f"Which model? The server {listed}. Name one with --model.")


def _with_details(
    diagnosis: Diagnosis,
    asker: Asker,
    shape: type[Shape],
    owner: object,
    vocabulary: Tokens | None,
    progress: Callable[[str], Any],
) -> Diagnosis:
    """The diagnosis with everything that is examined on the best page only."""
    page = diagnosis.page(shape.name)
    assert page is not None
    top = count_to_ask(page)
    progress("names of tokens")
    tokens, reply = look_at_tokens(asker, top, shape)
    progress("numbers")
    numbers, first = look_at_numbers(asker, top, shape)
    engine, by = recognize(first.answer, owner, page.format or "")
    progress("streams")
    streaming = look_at_streaming(asker, top, shape)
    progress("prompts")
    completions = diagnosis.page(OpenAICompletions.name)
    prompts = look_at_prompt_log_probs(asker, completions is not None and completions.answers)
    progress("trial answers")
    trials, steps = try_prompts(asker, top, shape, tokens, vocabulary)
    known = vocabulary if vocabulary is None or isinstance(vocabulary, Vocabulary) else vocabulary.vocabulary
    return replace(
        diagnosis,
        best=shape.name,
        tokens=tokens,
        engine=engine,
        recognized_by=by,
        numbers=numbers,
        streaming=streaming,
        prompt_log_probs=prompts,
        tokenizer=None if known is None else look_at_tokenizer([*reply.steps, *steps], known),
        trials=tuple(trials),
    )
