"""Typed questions over HTTP: `POST /v1/decisions` and `POST /v1/systemone`, errors in each format's own shape."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from threading import Lock
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from semtoken.decisions import Inquiry, InquiryAnswers
from semtoken.decisions.calibrating import DecisionCalibrator, blocks_of
from semtoken.decisions.deciding import PreparedInquiry, prepare
from semtoken.decisions.questions import READ_AS_USUAL
from semtoken.decisions.wire import DecisionRequest, WireError
from semtoken.errors import InvalidInput, SemtokenError
from semtoken.tokens.vocabulary import Vocabulary
from semtoken.web.calibrators import CalibratorSlot, slot_of
from semtoken.web.decision_formats import WireFormat
from semtoken.web.hosts import App
from semtoken.web.serve.intake import Intake, unless_gone
from semtoken.web.serve.service import Offer, as_api_error
from semtoken.web.serve.worker import Worker
from semtoken.web.wire import ApiError


@dataclass(frozen=True, eq=False)
class _Prompts:
    """A tokenizer of its own: while it reads a text in which control tokens are plain, it is set otherwise."""

    tokenizer: Any
    vocabulary: Vocabulary
    max_length: int | None


class DecisionAnswering:
    """Takes requests with typed questions: reads and prepares them off the event loop, and answers or refuses them.

    Parameters
    ----------
    worker, offer, intake
        The parts of the server.
    calibrator
        Adds chance, decision and promise to the answers of the questions that it knows; in a slot it can be exchanged.
    """

    def __init__(
        self,
        worker: Worker,
        offer: Offer,
        intake: Intake,
        calibrator: DecisionCalibrator | CalibratorSlot[DecisionCalibrator] | None = None,
    ) -> None:
        self._worker = worker
        self._offer = offer
        self._intake = intake
        self._calibrators = slot_of(calibrator)
        self._one_at_a_time = Lock()
        self._prompts: _Prompts | None = None

    async def answer(self, request: Request, wire: WireFormat) -> App:
        """The answer to a request, or the error that says why there is none."""
        try:
            body = await self._intake.body(request)
            asked, prepared = await self._intake.prepared(lambda: self._prepared(body, wire), None)
            found = await unless_gone(request.receive, self._worker.answers(prepared))
            if found is None:
                raise ApiError(499, "The client left.")
            return JSONResponse(self._reply(wire, asked, prepared, found))
        except WireError as error:
            return wire.refusal(error)
        except InvalidInput as error:
            return wire.error(ApiError(400, str(error)))
        except (ApiError, SemtokenError) as error:
            return wire.error(as_api_error(error))

    def _prepared(self, body: bytes, wire: WireFormat) -> tuple[DecisionRequest, PreparedInquiry]:
        asked = wire.parse(body)
        self._offer.check_name(asked.model)
        options = asked.reading or READ_AS_USUAL
        with self._one_at_a_time:
            return asked, prepare(self._own_prompts(), Inquiry(asked.state, asked.questions, options))

    def _own_prompts(self) -> _Prompts:
        if self._prompts is None:
            backend = self._worker.engine.stc.backend
            tokenizer = backend.tokenizer
            own = copy.deepcopy(tokenizer) if hasattr(tokenizer, "backend_tokenizer") else tokenizer
            self._prompts = _Prompts(own, backend.vocabulary, backend.max_length)
        return self._prompts

    def _reply(
        self, wire: WireFormat, asked: DecisionRequest, prepared: PreparedInquiry, found: InquiryAnswers
    ) -> dict[str, Any]:
        options = prepared.inquiry.options
        more = blocks_of(self._calibrators.current, found.answers, options)
        return wire.reply(asked, self._offer.name, found.answers, options, more, found.input_tokens)
