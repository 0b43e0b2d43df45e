"""LangChain: the uncertainty of a chat model's message, from its log-probabilities.

LangChain's client for OpenAI's API drops what servers add to a choice and keeps log-probabilities, so scores are
intervals. Build the model with `logprobs=True, top_logprobs=20`.

>>> chain = ChatOpenAI(..., logprobs=True, top_logprobs=20) | with_uncertainty()  # doctest: +SKIP
>>> chain.invoke(question).response_metadata["semtoken"]  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

from semtoken.choices import Equality, SegmentKind
from semtoken.core.given_tokens import as_tokens
from semtoken.core.results import ScoredAnswer
from semtoken.core.results.blocks import KEY, numbers_of
from semtoken.core.rules import as_rules
from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.integrations.hosts import require_host
from semtoken.integrations.messages import score_message

require_host("langchain")

from langchain_core.messages import AIMessage  # noqa: E402
from langchain_core.runnables import RunnableLambda  # noqa: E402


def score(
    message: AIMessage,
    vocabulary: Any = None,
    preset: Any = "default",
    *,
    equality: Equality | None = None,
    question: str | None = None,
    segment: SegmentKind = "answer",
) -> ScoredAnswer:
    """Score a message of a chat model from the log-probabilities in its metadata.

    A message does not say whether a token or a stop string ended it: where its list goes on with a line break, the
    interval holds both.

    Parameters
    ----------
    message
        What a chat model answered, with its log-probabilities.
    vocabulary
        As in `semtoken.score_reply`.
    preset, equality
        As in `semtoken.score_reply`.
    question
        What was asked, which a message does not say. Without it the explanation says that it is not known.
    segment
        As in `semtoken.score_reply`: the text, or with "tool_call" the calls of tools.

    Raises
    ------
    InvalidInputError
        The message brings no log-probabilities, or has no such part.
    BackendError, VocabularyMismatch
        As `semtoken.score_reply`.
    """
    logprobs = message.response_metadata.get("logprobs")
    if not logprobs:
        raise InvalidInputError(
            "The message has no log-probabilities. Build the model with logprobs=True, top_logprobs=20."
        )
    # Calls whose arguments are no JSON are kept apart; their tokens are among the others.
    calls = [(call["name"] or "", call["args"] or "") for call in (*message.tool_calls, *message.invalid_tool_calls)]
    return score_message(
        message.text,
        logprobs,
        calls,
        end=message.response_metadata.get("finish_reason"),
        tokenizer=vocabulary,
        preset=preset,
        equality=equality,
        question=question,
        segment=segment,
    )


def with_uncertainty(
    vocabulary: Any = None, preset: Any = "default", *, equality: Equality | None = None
) -> RunnableLambda:
    """A runnable that takes a message and gives it back with `response_metadata["semtoken"]`; arguments as for `score`.

    It has `confidence`, `interval`, `explanation` and so on, or `reason` where the message cannot be scored: a chain
    does not fail for want of a score. A chain passes no question on, so that `question_known` is false: give `score`
    the question, or ask through `semtoken proxy`, where the confidence must be the same as elsewhere.
    """
    rules = as_rules(preset, equality)
    loaded = None if vocabulary is None else as_tokens(vocabulary, clustering=rules.clustering)

    def add(message: AIMessage) -> AIMessage:
        try:
            block = numbers_of(score(message, loaded, rules))
        except SemtokenError as error:
            block = {"reason": str(error)}
        return message.model_copy(update={"response_metadata": {**message.response_metadata, KEY: block}})

    return RunnableLambda(add, name="with_uncertainty")
