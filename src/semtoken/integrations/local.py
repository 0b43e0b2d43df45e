"""A model in this process that answers requests in OpenAI's form, as `semtoken serve` does over HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from semtoken.errors import InvalidInputError
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.models.prompts import how_to_ask, template_of
from semtoken.scored_model import ScoredModel
from semtoken.web.serve.engine import Engine
from semtoken.web.serve.requests import ChatRequest, parse
from semtoken.web.serve.service import Offer, Service
from semtoken.web.serve.worker import Worker
from semtoken.web.wire import ApiError


class LocalChat:
    """Chat with a model in this process. Requests that wait together are answered in one batch.

    `name` is the one by which it was loaded: the embedded model has a prompt format of its own.
    """

    def __init__(self, stc: ScoredModel, name: str, calibrator: CalibratorInUse | None = None) -> None:
        asking = how_to_ask(name, stc.tokenizer, raw=False)
        self._worker = Worker(Engine(stc))
        self._service = Service(self._worker, Offer(name, template_of(asking), asking.stop_at_newline, 20, calibrator))

    @classmethod
    def load(cls, model: str = "almanac", *, calibrator: str | Path | None = None, **options: Any) -> LocalChat:
        """Load a model; options as for `ScoredModel.from_pretrained`, `calibrator` is a directory."""
        stc = ScoredModel.from_pretrained(model, **options)
        if calibrator is None:
            return cls(stc, model)
        return cls(stc, model, CalibratorInUse.load(calibrator, stc.scorer.clusters, stc.fingerprint(model)))

    async def reply(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The whole reply to a chat request.

        `InvalidInputError` names a field that asks for what there is not here, or says what JSON cannot hold;
        `BackendError` after `close`.
        """
        try:
            body = json.dumps(dict(request)).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInputError(f"A request must be a dictionary of values that JSON can hold: {error}.") from error
        try:
            return await self._service.whole(self._service.job(parse(ChatRequest, body)))
        except ApiError as error:
            raise InvalidInputError(error.message) from error

    def close(self) -> None:
        """Stop the thread in which the model runs."""
        self._worker.close()
