"""From a checked request to its answer: prompts, room, sampling, and the rows as they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from semtoken.core.parts.budget import MAX_SECONDS
from semtoken.core.results import ScoredAnswer
from semtoken.errors import SemtokenError
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.methods.observers.method_scores import MethodScores, readable_with
from semtoken.models.base import Decoding
from semtoken.models.probing import disputed, with_choices
from semtoken.models.prompt_ids import encode_text, is_ids, prompt_text
from semtoken.scored_model import ScoredModel
from semtoken.support.files.images import has_images
from semtoken.web.block import BlockOptions, ProbeResult, parts_wanted, running_block, score_block
from semtoken.web.calibrators import CalibratorSlot, slot_of
from semtoken.web.serve.orders import GenerationBatch, RowEnd, RowToken
from semtoken.web.serve.replies import ChatReply, CompletionReply, Row, ServedReply, TokenSpelling
from semtoken.web.serve.requests import AnyRequest, ChatRequest
from semtoken.web.serve.worker import Worker
from semtoken.web.wire import DONE, ApiError, event

if TYPE_CHECKING:
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.web.recorder import AnswerRecorder

ALWAYS_TOKENIZED = 2**16
"""A text of up to so many bytes is tokenized even if it seems too long for the model: some tokenizers leave blanks out.
"""


@dataclass(frozen=True)
class Offer:
    """The name, limits and options that the server offers to clients."""

    name: str
    template: str | None = None
    """Text with `{question}` for the last message of a chat; None for the tokenizer's chat template."""
    stop_at_newline: bool = False
    """True if answers of a chat end at their first newline."""
    max_logprobs: int = 20
    """Most log-probabilities that a request may ask for at each token."""
    calibrator: CalibratorInUse | CalibratorSlot[CalibratorInUse] | None = None
    """Adds the probability and the decision to every block; in a slot it can be exchanged."""
    decision_calibrator: DecisionCalibrator | CalibratorSlot[DecisionCalibrator] | None = None
    """Adds probability, decision and guarantee to the answers of the typed questions that it knows; in a slot, too."""
    part_seconds: float = MAX_SECONDS
    """The most seconds that finding the parts of an answer may take; beyond that it has none, and says why."""

    def check_name(self, model: str | None) -> None:
        """Raise an error if the request asks for a model with another name."""
        if model not in (None, self.name):
            raise self.unknown(str(model))

    def unknown(self, model: str) -> ApiError:
        """The error for requests that name another model."""
        message = f"The model '{model}' does not exist; this server has '{self.name}'."
        return ApiError(404, message, param="model", code="model_not_found")


@dataclass(frozen=True)
class Job:
    """A checked request with its prompts and sampling, ready to be run."""

    work: GenerationBatch
    reply: ServedReply
    request: AnyRequest
    applied: CalibratorInUse | None = None
    """The calibrator that decides its answers, also if another one takes its place before they are written."""

    @property
    def holds_answers(self) -> bool:
        """True if an answer is shown only once it is decided, since another text may replace it."""
        return self.applied is not None and self.applied.abstain_text is not None


class Service:
    """Answers requests with one model."""

    def __init__(self, worker: Worker, offer: Offer, recorder: AnswerRecorder | None = None) -> None:
        self._worker = worker
        self._offer = offer
        self._calibrators = slot_of(offer.calibrator)
        self._recorder = recorder
        self._stc = worker.engine.stc
        vocabulary = self._stc.scorer.vocabulary
        # Control tokens decode to nothing, and OpenAI's API shows them by their names.
        nameless = [i for i in range(vocabulary.size) if not vocabulary.pieces[i]]
        self._longest_piece = max(map(len, vocabulary.pieces))
        self._special = dict(zip(nameless, self._stc.tokenizer.convert_ids_to_tokens(nameless), strict=True))

    def job(self, request: AnyRequest) -> Job:
        """Turn a checked request into a job; `ApiError` with the reason if it cannot be answered."""
        form: type[ServedReply]
        asked: Sequence[Any]
        if isinstance(request, ChatRequest):
            if request.top_logprobs is not None and not request.logprobs:
                raise ApiError(400, "top_logprobs needs logprobs: true.", param="top_logprobs")
            form, asked = ChatReply, [self._rendered(request)]
        else:
            form, asked = CompletionReply, request.prompts
        work = self._work(request, self._encoded(asked, request.prompt_field))
        job = Job(work, form(self._offer.name, self._names(request), request), request, self._calibrators.current)
        # Values so far would betray an answer that is not shown yet.
        return replace(job, work=replace(job.work, running=False)) if job.holds_answers else job

    def _names(self, request: AnyRequest) -> TokenSpelling:
        vocabulary = self._stc.scorer.vocabulary
        return TokenSpelling(vocabulary, self._special, as_ids=request.return_tokens_as_token_ids)

    def _rendered(self, request: ChatRequest) -> str | list[dict[str, Any]]:
        """The conversation for the tokenizer's template; without one, the last message of the user in ours."""
        messages = [message.for_template() for message in request.messages]
        if self._offer.template is None or has_images(messages):
            return messages
        said = next((message.text for message in reversed(request.messages) if message.role == "user"), "")
        if not said.strip():
            raise ApiError(400, "The messages hold none of the user with text.", param="messages")
        return self._offer.template.replace("{question}", said)

    def _encoded(self, prompts: Sequence[Any], param: str) -> list[list[int]]:
        try:
            encoded = [self._ids(prompt, number, param) for number, prompt in enumerate(prompts)]
            for ids in encoded:
                self._stc.scorer.vocabulary.check_ids(ids)
        except SemtokenError as error:
            raise ApiError(400, str(error), param=param) from error
        return encoded

    def _ids(self, prompt: Any, number: int, param: str) -> list[int]:
        """Token ids of a prompt. What is too long in any case is rejected before it is tokenized."""
        room = self._worker.engine.room
        if is_ids(prompt):
            if room is not None and len(prompt) > room:
                raise too_long(room, f"{len(prompt):,} tokens", param)
            return list(prompt)
        if has_images(prompt) or (not isinstance(prompt, str) and getattr(self._stc.backend, "processor", None)):
            encode = getattr(self._stc.backend, "encode", None)
            if encode is None:
                raise ApiError(400, "The model of this server reads text only: leave images out.", param=param)
            token_ids: list[int] = encode([prompt], files=False)[0]
            return token_ids
        text = prompt_text(self._stc.tokenizer, prompt, number)
        most = None if room is None else max(room * self._longest_piece, ALWAYS_TOKENIZED)
        # Tokenizing megabytes takes long, and what has more bytes than so many of the longest tokens is too long in any
        # case.
        if most is not None and len(text.encode()) > most:
            raise too_long(room, f"{len(text):,} characters, which are more tokens than that", param)
        # A chat's template writes its own special tokens; a bare prompt needs those of the tokenizer, such as BOS.
        return encode_text(self._stc.tokenizer, text, special=isinstance(prompt, str))

    def _work(self, request: AnyRequest, prompts: list[list[int]]) -> GenerationBatch:
        top, limit = request.top, request.limit
        if top is not None and top > self._offer.max_logprobs:
            most = self._offer.max_logprobs
            message = f"At most {most} log-probabilities per token, got {top}: see max_logprobs under [serve]."
            raise ApiError(400, message, param=request.top_field)
        longest, room = max(map(len, prompts)), self._worker.engine.room
        left = request.usual_tokens if room is None else room - longest
        if left < (limit or 1):
            raise too_long(room, f"{longest:,}, the answer asks for {limit or 1:,}", request.prompt_field)
        return GenerationBatch(
            prompts=[prompt for prompt in prompts for _ in range(request.n or 1)],
            decoding=Decoding(
                max_new_tokens=limit or min(request.usual_tokens, left),
                seed=request.seed,
                stop_strings=request.stops,
                stop_at_newline=self._offer.stop_at_newline and isinstance(request, ChatRequest),
                **sampling(request),
            ),
            log_probs=top is not None,
            top=top or 0,
            running=bool(request.stream) and request.block.running,
            methods=self._methods(request),
            questions=[request.question(choice) for choice in range(len(prompts) * (request.n or 1))],
            ask=partial(probe, request.block, seconds=self._offer.part_seconds) if request.block.disputes else None,
        )

    def _methods(self, request: AnyRequest) -> tuple[str, ...]:
        """The methods of a request that the server does not apply anyway. What they read must be there already."""
        asked = tuple(name for name in request.block.methods if name not in self._stc.methods)
        known = readable_with(self._stc.methods)
        for name in asked:
            if missing := {reading.what for reading in MethodScores([name]).reads} - known:
                raise ApiError(
                    400,
                    f"{name} reads {', '.join(sorted(missing))} of the model, which is recorded only where the server "
                    f"was started with --methods {name}.",
                    param="semtoken.methods",
                )
        return asked

    async def whole(self, job: Job) -> dict[str, Any]:
        """Run a job to its end; returns the whole reply."""
        rows = rows_of(job)
        async with aclosing(self._worker.steps(job.work)) as steps:
            async for items in steps:
                for item in items:
                    rows[item.row].take(item)
        blocks = [await self._block(row.ended, job) for row in rows if row.ended is not None]
        shown = [_visible_row(row, block, job.applied) for row, block in zip(rows, blocks, strict=True)]
        return job.reply.whole(shown, blocks, usage(job, rows))

    async def stream(self, job: Job) -> AsyncGenerator[bytes, None]:
        """The answer as server-sent events. Those that are there at one time come in one piece; a failure on the way
        is the last of them. The end of the stream is in the piece with the end of the last choice.

        The newest content of a choice is held back until more comes, so that the last of it carries the final score,
        too: gateways rebuild the chunk that ends a choice and lose what is in it. With a text for answers that are not
        accepted, each comes in one piece once it is decided.
        """
        held: dict[int, list[dict[str, Any]]] = {}
        rows, last = rows_of(job), b""
        opening = [chunk for row in rows if (chunk := job.reply.opening(row.index)) is not None]
        if opening:
            yield b"".join(map(event, opening))
        try:
            async with aclosing(self._worker.steps(job.work)) as steps:
                async for items in steps:
                    chunks: list[dict[str, Any]] = []
                    for item in items:
                        chunks += await self._chunks(job, rows[item.row], item, held)
                    if chunks:
                        last = b"".join(map(event, chunks))
                        # The piece with the last end waits for the usage and the sign of the end, so that they are sent
                        # in one.
                        if any(row.ended is None for row in rows):
                            yield last
                            last = b""
        except (ApiError, SemtokenError) as error:
            yield last + event(as_api_error(error).body()) + DONE
            return
        yield last + (event(job.reply.usage_chunk(usage(job, rows))) if job.request.shows_usage else b"") + DONE

    async def _chunks(
        self, job: Job, row: Row, item: RowToken | RowEnd, held: dict[int, list[dict[str, Any]]]
    ) -> list[dict[str, Any]]:
        """The chunks to show after a new token or the end of a row; `held` has those held back of each row."""
        row.take(item)
        if isinstance(item, RowToken):
            if job.holds_answers:
                return []
            # A token without text (half a character) adds nothing to see, so what is held back stays the last content.
            shown = held.pop(item.row, []) if item.text else []
            block = None if item.running is None else running_block(item.running)
            held.setdefault(item.row, []).append(job.reply.chunk(row, item, block))
            return shown
        final = {**await self._block(item, job), "final": True}
        shown = [with_block(chunk, final) for chunk in held.pop(item.row, ())]
        last = replace(item, text=_visible_row(row, final, job.applied).text) if job.holds_answers else item
        if last.text:
            shown.append(job.reply.rest(last, final))
        return [*shown, job.reply.closing(last, final)]

    async def _block(self, ended: RowEnd, job: Job) -> Mapping[str, Any]:
        """The block of an answer. Looking for parts can take long, so that it keeps no other client waiting."""
        if job.request.block.parts is None:
            return self._made_block(ended, job)
        return await anyio.to_thread.run_sync(self._made_block, ended, job)

    def _made_block(self, ended: RowEnd, job: Job) -> Mapping[str, Any]:
        request, applied, result = job.request, job.applied, ended.result
        block = score_block(
            result,
            self._stc.scorer,
            request.block,
            applied,
            ended.probed,
            part_seconds=self._offer.part_seconds,
        )
        if self._recorder is not None:
            asked = {"prompt": job.work.prompts[ended.row], "person": request.person}
            self._recorder.scored(result, block, applied, **asked)
        return block


def _visible_row(row: Row, block: Mapping[str, Any], applied: CalibratorInUse | None) -> Row:
    """A choice as the client sees it: all of it, or the text for answers that are not accepted."""
    instead = None if applied is None else applied.shown_instead(block)
    return row if instead is None else Row(row.index, text=instead, ended=row.ended)


def rows_of(job: Job) -> list[Row]:
    """An empty row for each answer of a job."""
    return [Row(index) for index in range(len(job.work.prompts))]


def with_block(chunk: dict[str, Any], block: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a chunk of one choice with another block."""
    return {**chunk, "choices": [{**choice, "semtoken": block} for choice in chunk["choices"]]}


def probe(
    options: BlockOptions,
    stc: ScoredModel,
    prompt: Sequence[int],
    answer: ScoredAnswer,
    *,
    seconds: float = MAX_SECONDS,
) -> ProbeResult:
    """Ask the model about alternatives to its answer, as the options want it; finding parts may take `seconds`."""
    try:
        by_disagreement = disputed(stc, list(prompt), answer, n=options.disputes, with_agreed=True)
        disputes = sorted(by_disagreement, key=lambda dispute: dispute.step)
        parts = None if options.parts is None else parts_wanted(answer, options.parts, seconds)
        if parts is not None and any(part.path is not None for part in parts):
            parts = with_choices(stc, list(prompt), answer, parts)
    except SemtokenError as error:  # an engine that shows the best tokens only, or a library that is not installed
        return ProbeResult(refused=str(error))
    return ProbeResult(disputes, parts)


def sampling(request: AnyRequest) -> dict[str, Any]:
    """The choice of tokens, as fields of `Decoding`: greedily, unless the request asks for a temperature."""
    chosen = (request.top_p, request.top_k, request.min_p)
    # Greedy by default, unlike OpenAI: the numbers of greedy answers are those that were measured.
    if request.temperature == 0 or (request.temperature is None and all(value is None for value in chosen)):
        return {}
    return {
        "temperature": 1.0 if request.temperature is None else float(request.temperature),
        "top_p": 1.0 if request.top_p is None else float(request.top_p),
        "top_k": request.top_k or 0,
        "min_p": float(request.min_p or 0.0),
    }


def usage(job: Job, rows: Iterable[Row]) -> dict[str, int]:
    """The numbers of tokens of prompts and answers; a prompt counts once, however many choices it has."""
    prompts = job.work.prompts[:: job.request.n or 1]
    prompt, completion = sum(map(len, prompts)), sum(len(row.steps) for row in rows)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def too_long(room: int | None, has: str, param: str) -> ApiError:
    """The error for a prompt that is longer than the model can read."""
    return ApiError(
        400, f"The model reads {room:,} tokens. The prompt has {has}.", param=param, code="context_length_exceeded"
    )


def as_api_error(error: ApiError | SemtokenError) -> ApiError:
    """The error that a client gets for a failure of the server."""
    return error if isinstance(error, ApiError) else ApiError(500, str(error), kind="server_error")
