"""Answers of a transformers model as they are written: text and running uncertainty, token by token.

The model generates in a thread of its own, which stops within a token once nobody listens any more.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Event, Thread, get_ident
from typing import Any

from semtoken._arrays import as_rows, log_normalizers
from semtoken._extras import require
from semtoken.backends.detokenize import AnswerText
from semtoken.backends.prompts import Prompt, encode_prompt
from semtoken.backends.transformers.model import STC
from semtoken.backends.transformers.observe import forward_hook, inner_model
from semtoken.errors import BackendError, InvalidInput
from semtoken.results import Running, ScoredResponse
from semtoken.scoring import LogitsAnswer, scorer_for

require("torch", extra="transformers")
require("transformers", extra="transformers")

import torch  # noqa: E402
from transformers import StoppingCriteria  # noqa: E402


@dataclass(frozen=True)
class StreamedToken:
    """One token of an answer that is being written."""

    id: int
    """Token id."""
    text: str
    """What the answer's text gained; empty while a character may not be whole. What is held back at the end of the
    answer is in the text of `AnswerStream.result` only."""
    running: Running
    """What is known of the score after this token."""


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
        """Stop the generation."""
        self._tokens.close()

    @property
    def result(self) -> ScoredResponse:
        """The scored answer.

        Raises
        ------
        BackendError
            The answer is not complete: tokens are still to come, or the stream was closed.
        """
        if self._state.result is None:
            raise BackendError("The answer is not complete. Take all tokens of the stream before you ask for `result`.")
        return self._state.result


def stream_generate(
    stc: STC,
    prompt: Prompt,
    max_new_tokens: int = 256,
    *,
    stop_at_newline: bool = False,
    stop_strings: str | Sequence[str] = (),
    **generation_kwargs: Any,
) -> AnswerStream:
    """Generate one answer and hand it out token by token, each with the score so far.

    >>> stream = stream_generate(stc, "The capital of France is")  # doctest: +SKIP
    >>> for token in stream:  # doctest: +SKIP
    ...     print(token.text, token.running.uncertainty)
    >>> stream.result.uncertainty  # doctest: +SKIP

    Parameters
    ----------
    stc
        The model with its clusters.
    prompt
        A string, or a list of chat messages.
    max_new_tokens, stop_at_newline, stop_strings, **generation_kwargs
        As in `STC.generate`.

    Returns
    -------
    AnswerStream
        An iterator of `StreamedToken`, whose `result` at the end equals that of `STC.generate`. The generation begins
        with the first token that is asked for. What goes wrong in it is raised where the next token is asked for.

    Raises
    ------
    InvalidInput
        An empty prompt, chat messages without a template, no room for an answer, or several answers asked for.
    BackendError
        Beam search or assisted decoding was asked for.
    """
    if max_new_tokens < 1:
        raise InvalidInput(f"max_new_tokens must be positive, got {max_new_tokens}.")
    if generation_kwargs.get("num_return_sequences", 1) != 1:
        raise InvalidInput("A stream holds one answer; num_return_sequences must be 1. Begin several streams instead.")
    ids = torch.tensor([encode_prompt(stc.tokenizer, prompt, 0)])
    limit = getattr(stc.model.config.get_text_config(), "max_position_embeddings", None)
    if limit is not None and ids.shape[1] > limit:
        raise InvalidInput(f"The prompt has {ids.shape[1]:,} tokens; the model reads {limit:,} at most.")
    options = stc.generation_options(generation_kwargs, max_new_tokens, stop_at_newline, stop_strings)
    state = _State()
    return AnswerStream(_tokens(lambda: _generate(stc, ids, options, state), state), state)


@dataclass(eq=False)
class _State:
    """What the generating thread and the one that listens share."""

    queue: SimpleQueue[StreamedToken | BaseException | None] = field(default_factory=SimpleQueue)
    cancelled: Event = field(default_factory=Event)
    result: ScoredResponse | None = None


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
        thread.join()


def _report(generate: Callable[[], None], state: _State) -> None:
    try:
        generate()
        state.queue.put(None)
    except BaseException as error:  # whatever it is, the one that listens is to know
        state.queue.put(error)


def _generate(stc: STC, prompt: torch.Tensor, options: dict[str, Any], state: _State) -> None:
    """The work of the thread."""
    listener = _Listener(LogitsAnswer(scorer_for(stc.clusters, stc.rules)), state)
    prompt = prompt.to(stc.model.get_input_embeddings().weight.device)
    given = list(options.get("stopping_criteria") or ())
    with forward_hook(inner_model(stc.model), listener.keep):
        stc.model.generate(
            input_ids=prompt,
            attention_mask=torch.ones_like(prompt),
            **(options | {"stopping_criteria": [*given, listener]}),
        )
    if not state.cancelled.is_set():
        state.result = listener.answer.finish("raw")


class _Listener(StoppingCriteria):  # type: ignore[misc]
    """Sees the logits of every step before any processor, and its token as soon as it is chosen."""

    def __init__(self, answer: LogitsAnswer, state: _State) -> None:
        self.answer = answer
        self._state = state
        self._text = AnswerText(answer.scorer.vocabulary)
        self._thread = get_ident()
        self._row: torch.Tensor | None = None

    def keep(self, module: Any, args: Any, output: Any) -> None:
        """A forward hook; other threads may use the same model."""
        if get_ident() == self._thread:
            self._row = output.logits[:, -1].detach()

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **kwargs: Any) -> torch.Tensor:
        """Take in one step; returns whether to stop (bool [1])."""
        cancelled = self._state.cancelled.is_set()
        if not cancelled:
            self._take_in(int(input_ids[0, -1]))
        return torch.tensor([cancelled], device=input_ids.device)

    def _take_in(self, token: int) -> None:
        assert self._row is not None
        vocabulary = self.answer.scorer.vocabulary
        vocabulary.check_ids([token])
        rows = as_rows(self._row)
        self.answer.add(rows, 0, token, log_normalizers(rows, vocabulary.size)[0])
        self._state.queue.put(StreamedToken(token, self._text.add(token), self.answer.running()))
