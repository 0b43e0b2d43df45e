"""A vLLM logits processor that scores answers where they are generated, and changes nothing.

For an `LLM` in this process (VLLM_ENABLE_V1_MULTIPROCESSING=0, one worker):

    Processor = scoring_processor(vocabulary)
    llm = LLM(model, logits_processors=[Processor])
    params = SamplingParams(max_tokens=64, extra_args={"semtoken_id": "first"})
    [output] = llm.generate([prompt], params)
    scored = Processor.take("first", output.outputs[0].token_ids)

Requests without a `semtoken_id` are left alone. docs/engines.md says more.

vLLM has two model runners with two interfaces for such classes; this one has both. Tested with vLLM 0.32.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar

from semtoken.choices import Preset
from semtoken.core import scorer_for
from semtoken.core.given_tokens import Tokens, as_tokens
from semtoken.core.results import Distribution, ScoredAnswer
from semtoken.core.rules import ScoringRules, as_rules
from semtoken.errors import BackendError, InvalidInputError, VocabularyMismatch
from semtoken.models.vllm.watched import PLACEHOLDER, WatchedRequest, WatchedRequests, WatchedRow
from semtoken.support.extras import require
from semtoken.support.inputs import text

TESTED = "0.32"

vllm = require("vllm", extra="vllm")
try:
    from vllm.v1.sample.logits_processor import LogitsProcessor as FirstRunnerProcessor
    from vllm.v1.sample.logits_processor import MoveDirectionality
except ImportError as error:
    raise BackendError(
        f"This vLLM has no vllm.v1.sample.logits_processor ({error}). semtoken's logits processor was tested with "
        f"vLLM {TESTED}; other versions can be scored by their log-probabilities (semtoken.models.vllm)."
    ) from error
try:
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as SecondRunnerProcessor
except ImportError:  # a vLLM from before the second runner
    SecondRunnerProcessor = object

logger = logging.getLogger("vllm.semtoken")


def scoring_processor(vocabulary: Tokens, preset: Preset | ScoringRules = "default") -> type[ScoringProcessor]:
    """A class for `LLM(logits_processors=[...])` of one engine, which scores answers by a vocabulary or clusters.

    `vocabulary` is that of the model's tokenizer; the preset `paper` needs `TokenClusters`. `InvalidInputError` if it
    is neither, or the preset is not known.
    """
    scorer = scorer_for(as_tokens(vocabulary), as_rules(preset))
    return type("ScoringProcessor", (ScoringProcessor,), {"requests": WatchedRequests(scorer)})


def request_id_of(params: Any) -> str | None:
    """The id under which a request's score can be taken, if one is wanted; `InvalidInputError` if it is no text."""
    given = (getattr(params, "extra_args", None) or {}).get("semtoken_id")
    return None if given is None else text(given, "semtoken_id")


def distribution_of(params: Any, *, after_penalties: bool) -> Distribution:
    """The distribution that the processor sees: the model's own, or one that vLLM has changed before."""
    changed = [params.logit_bias, params.bad_words, params.allowed_token_ids, params.min_tokens]
    changed.append(params.structured_outputs)
    if after_penalties:
        changed += [params.presence_penalty, params.frequency_penalty, params.repetition_penalty != 1.0]
    return "processed" if any(changed) else "raw"


class ScoringProcessor(FirstRunnerProcessor, SecondRunnerProcessor):  # type: ignore[misc]
    """Reduces the logits of watched requests to a few numbers a token; `scoring_processor` makes the class.

    `BackendError` under speculative decoding: rows of rejected drafts would be taken for steps of the answer.
    """

    requests: ClassVar[WatchedRequests]

    @classmethod
    def take(cls, semtoken_id: str, token_ids: Sequence[int], question: str | None = None) -> ScoredAnswer:
        """The score of a complete answer, given the ids that the engine returned; see `WatchedRequests.take`."""
        return cls.requests.take(semtoken_id, token_ids, question)

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Raise `ValueError` (an HTTP 400) for a request that could not be scored rightly."""
        if request_id_of(sampling_params) is None:
            return
        if sampling_params.n > 1:
            raise InvalidInputError("semtoken_id needs n=1: the answers would share one id. Send one request for each.")
        if sampling_params.stop:
            raise InvalidInputError(
                "semtoken_id does not go with stop strings: vLLM finds them after the engine has gone on. "
                "Use stop_token_ids."
            )

    def __init__(self, vllm_config: Any, device_or_states: Any, is_pin_memory: bool | None = None) -> None:
        if getattr(vllm_config, "speculative_config", None) is not None:
            raise BackendError("Speculative decoding is not supported by semtoken's logits processor; turn it off.")
        columns, size = vllm_config.model_config.get_vocab_size(), self.requests.scorer.vocabulary.size
        if columns < size:
            raise VocabularyMismatch(
                f"The model gives {columns:,} logits a step, the vocabulary has {size:,} tokens: it belongs to another "
                "model."
            )
        if not str(vllm.__version__).startswith(TESTED):
            logger.warning("semtoken's logits processor was tested with vLLM %s, not %s", TESTED, vllm.__version__)
        self._states: Any = device_or_states if is_pin_memory is None else None
        self._places: dict[int, WatchedRequest] = {}

    # The first runner: rows of a batch that is kept up to date by messages.

    def is_argmax_invariant(self) -> bool:
        """False: otherwise the processor would not be called for greedy batches."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Follow requests as they enter, leave and change their rows."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self._places.pop(row, None)
        for row, params, _, output_ids in batch_update.added:
            self._occupy(row, params, output_ids)
        for first, second, how in batch_update.moved:
            moved, other = self._places.pop(first, None), self._places.pop(second, None)
            if moved is not None:
                self._places[second] = moved
            if other is not None and how == MoveDirectionality.SWAP:
                self._places[first] = other

    # The second runner: slots that a request keeps; nothing says when it leaves.

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Note a request that enters the batch at a slot; returns whether it is to be scored."""
        self._occupy(req_idx, sampling_params, None)
        return req_idx in self._places

    def _occupy(self, place: int, params: Any, output_ids: list[int] | None) -> None:
        self._places.pop(place, None)
        if (request_id := request_id_of(params)) is not None:
            distribution = distribution_of(params, after_penalties=self._states is not None)
            self._places[place] = self.requests.enter(request_id, distribution, output_ids)

    # Both.

    def apply(self, logits: Any, ctx: Any = None) -> Any:
        """Hand the logits [rows, V] of one step to the scores; returns them unchanged."""
        if self._places:
            try:
                self.requests.step(logits, self._rows_of_batch(len(logits)) if ctx is None else self._rows_of(ctx))
            except Exception as error:  # an observer must not take the engine and everybody's answers with it
                logger.exception("semtoken could not score a step")
                for watched in self._places.values():
                    watched.error = f"{type(error).__name__}: {error}"
        return logits

    def _rows_of_batch(self, rows: int) -> list[WatchedRow]:
        return [
            WatchedRow(
                row, watched, len(watched.output_ids), watched.output_ids[-1] if watched.output_ids else PLACEHOLDER
            )
            for row, watched in self._places.items()
            if row < rows and watched.output_ids is not None
        ]

    def _rows_of(self, ctx: Any) -> list[WatchedRow]:
        if len(ctx.expanded_idx_mapping) != len(ctx.idx_mapping_np):
            raise BackendError("There are several rows a request, as in speculative decoding.")
        places = [(row, int(slot)) for row, slot in enumerate(ctx.idx_mapping_np) if int(slot) in self._places]
        if not places:
            return []
        slots = [slot for _, slot in places]
        lengths, last = _lengths_and_last_tokens(self._states, slots)
        prompts = [int(self._states.prompt_len.np[slot]) for slot in slots]
        return [
            WatchedRow(row, self._places[slot], length - prompt, token)
            for (row, slot), length, prompt, token in zip(places, lengths, prompts, last, strict=True)
        ]


def _lengths_and_last_tokens(states: Any, slots: Sequence[int]) -> tuple[list[int], list[int]]:
    """Tokens of each request so far, prompt included, and the last of them: one transfer from the device."""
    import torch

    index = torch.tensor(slots, device=states.total_len.gpu.device)
    lengths = states.total_len.gpu[index].long()
    last = states.all_token_ids.gpu[index, lengths - 1].long()
    both = torch.stack([lengths, last]).tolist()
    return both[0], both[1]
