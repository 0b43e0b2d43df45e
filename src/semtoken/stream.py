"""Answers as they are written: text and running uncertainty, token by token, from any backend.

The model generates in a thread of its own, which stops within a token once the stream is closed or dropped. (An engine
that returns whole answers, as vLLM does in this process, gives all tokens at the end.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from semtoken.core.results import Running, ScoredAnswer
from semtoken.errors import BackendError, InvalidInputError
from semtoken.methods.observers.steps import Completion, Observer, Step
from semtoken.models.answer_text import AnswerText
from semtoken.models.base import Prompt
from semtoken.models.prompt_ids import question_of_prompt
from semtoken.models.scores import AnswerScores
from semtoken.scored_model import ScoredModel

if TYPE_CHECKING:
    from semtoken.guarantees import Threshold


@dataclass(frozen=True)
class StreamedToken:
    """A token of an answer that is still being written, with the score so far."""

    id: int
    """The id of the token in the vocabulary."""
    text: str
    """The text that the answer gained; empty while a character may not be whole. What is held back at the end of the
    answer is in the text of `AnswerStream.result` only."""
    running: Running
    """The score as far as it is known after this token."""


class AnswerStream:
    """The tokens of one answer as they come; when they have all come, `result` is the scored answer.

    Iterate over it. Leaving the loop early and dropping the stream stops the generation, as `close` does and the end
    of a `with` block.
    """

    def __init__(self, tokens: Generator[StreamedToken, None, None], state: _State) -> None:
        self._tokens = tokens
        self._state = state

    def __iter__(self) -> AnswerStream:
        return self

    def __next__(self) -> StreamedToken:
        return next(self._tokens)

    def __enter__(self) -> AnswerStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the generation and wait until it has ended."""
        self._tokens.close()

    @property
    def result(self) -> ScoredAnswer:
        """The scored answer, once the stream has ended; `BackendError` while tokens are to come or if it was closed."""
        if self._state.result is None:
            raise BackendError("The answer is not complete. Take all tokens of the stream before you ask for `result`.")
        return self._state.result


def stream_generate(
    stc: ScoredModel,
    prompt: Prompt,
    max_new_tokens: int = 256,
    *,
    stop_at_newline: bool = False,
    stop_strings: str | Sequence[str] = (),
    stop_above_product: Threshold | float | None = None,
    **generation_kwargs: Any,
) -> AnswerStream:
    """Generate one answer and hand it out token by token, each with the score so far.

    >>> stream = stream_generate(stc, "The capital of France is")  # doctest: +SKIP
    >>> for token in stream:  # doctest: +SKIP
    ...     print(token.text, token.running.sequence_uncertainty)
    >>> stream.result.confidence  # doctest: +SKIP

    Parameters
    ----------
    stc
        The model with its clusters.
    prompt
        A string, a list of chat messages, or token ids.
    max_new_tokens, stop_at_newline, stop_strings, stop_above_product, **generation_kwargs
        As in `ScoredModel.generate`.

    Returns
    -------
    AnswerStream
        An iterator of `StreamedToken`, whose `result` at the end equals that of `ScoredModel.generate`. The generation
        begins with the first token that is asked for. What goes wrong in it is raised where the next token is asked
        for.

    Raises
    ------
    InvalidInputError
        An empty prompt, chat messages without a template, no room for an answer, or several answers asked for.
    BackendError
        Beam search or assisted decoding was asked for.
    """
    if generation_kwargs.get("num_return_sequences", 1) != 1:
        raise InvalidInputError(
            "A stream holds one answer; num_return_sequences must be 1. Begin several streams instead."
        )
    decoding = stc.decoding(max_new_tokens, 1, stop_at_newline, stop_strings, generation_kwargs)
    # In the caller's thread, so that a bad argument is raised here and not with the first token.
    stc.backend.check([prompt], decoding)
    state = _State()
    scores = stc.observer(stop_above_product)

    def generate() -> None:
        [completion] = stc.backend.generate([prompt], decoding, [_Listener(scores, state)])
        # An answer that was broken off has no score of its own.
        if not state.cancelled.is_set():
            state.result = stc.result(scores, 0, completion, question_of_prompt(prompt), prompt)

    return AnswerStream(_tokens(generate, state), state)


@dataclass(eq=False)
class _State:
    """The state that the generating thread and the listening one share."""

    queue: SimpleQueue[StreamedToken | BaseException | None] = field(default_factory=SimpleQueue)
    cancelled: Event = field(default_factory=Event)
    result: ScoredAnswer | None = None


def _tokens(generate: Callable[[], None], state: _State) -> Generator[StreamedToken, None, None]:
    thread = Thread(target=_report, args=(generate, state), name="semtoken-stream", daemon=True)
    thread.start()
    try:
        while (item := state.queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        state.cancelled.set()
        # The model must not run on in a thread that nobody knows of: another generation may follow at once.
        thread.join()


def _report(generate: Callable[[], None], state: _State) -> None:
    try:
        generate()
        state.queue.put(None)
    except BaseException as error:  # whatever it is, the one that listens is to know
        state.queue.put(error)


class _Listener(Observer):
    """Scores the answer and hands out its tokens; ends it once nobody listens."""

    def __init__(self, scores: AnswerScores, state: _State) -> None:
        self._scores = scores
        self._state = state
        self._text = AnswerText(scores.scorer.vocabulary)

    def observe(self, step: Step) -> Collection[int] | None:
        """Take in one step."""
        if self._state.cancelled.is_set():
            return step.answers
        ended = self._scores.observe(step)
        [token] = step.tokens
        self._state.queue.put(StreamedToken(token, self._text.add(token), self._scores.running(0)))
        return ended

    def finish(self, answer: int, completion: Completion) -> None:
        """Nothing is left to hand out: the result is asked for."""
