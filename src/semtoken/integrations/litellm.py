"""LiteLLM: a gate that holds uncertain answers back, and a callback that gets every score.

>>> litellm.callbacks = [UncertaintyGate(threshold=0.5)]  # doctest: +SKIP
>>> litellm.callbacks = [ScoreLog(lambda block, call: print(call["model"], block))]  # doctest: +SKIP

The scores are those of `semtoken serve` or `semtoken proxy` behind LiteLLM. In its proxy, name an instance in the
configuration: `litellm_settings: {callbacks: my_module.gate}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from semtoken.core.results.blocks import KEY, as_mapping, block_of, without_quotes
from semtoken.integrations.events import ends_of, is_share
from semtoken.integrations.hosts import require_host
from semtoken.support.inputs import one_of, real

require_host("litellm")

from litellm.integrations.custom_logger import CustomLogger  # noqa: E402
from openai.types.responses import ResponseOutputMessage, ResponseOutputText  # noqa: E402  # LiteLLM is built on it

NOT_SURE = "I am not sure."
_KEPT = frozenset({"index", "finish_reason", "message", "role"})
"""The fields that stay in a choice and its message when the answer is held back: any other may spell it."""
Block = Mapping[str, Any]


class UncertaintyGate(CustomLogger):  # type: ignore[misc]
    """Replaces answers that are too uncertain, in whole replies only, since a streamed answer has been seen already.

    Whatever else of the reply may spell such an answer is taken out, too: calls of tools, reasoning, a refusal,
    log-probabilities, and the fields of its block that quote it.

    Parameters
    ----------
    threshold
        In [0, 1]. An answer is held back if 1 minus its confidence is above it; of an interval the lower end of the
        confidence counts. None: an answer is held back if the server's calibrator abstains from it.
    instead
        The text in place of such an answer.
    unscored
        What happens to an answer without a score or, where there is no threshold, without a decision: "pass" lets it
        through, "hold" holds it back.

    Raises
    ------
    InvalidInputError
        The threshold is no number from 0 to 1, or `unscored` is neither "pass" nor "hold".
    """

    def __init__(self, threshold: float | None = None, instead: str = NOT_SURE, unscored: str = "pass") -> None:
        super().__init__()
        one_of("unscored", unscored, ("pass", "hold"))
        self.threshold = None if threshold is None else real(threshold, "threshold", low=0, high=1)
        self.instead = instead
        self.unscored = unscored

    def holds_back(self, block: Block | None) -> bool:
        """Return True if an answer with this block must not be shown.

        It raises no error, because LiteLLM passes an answer on if a callback fails. An answer whose block has no valid
        confidence and interval counts as one without a score.
        """
        fields = block or {}
        if self.threshold is None:
            decided = fields.get("decision")
            return decided == "abstain" or (decided != "answer" and self.unscored == "hold")
        ends = ends_of(fields.get("interval"))
        if ends is None or not is_share(fields.get("confidence")):
            return self.unscored == "hold"
        return bool(1.0 - ends[0] > self.threshold)

    async def async_post_call_success_deployment_hook(self, request_data: Any, response: Any, call_type: Any) -> Any:
        """Called by LiteLLM with a reply from a deployment, before anybody sees it."""
        for choice in getattr(response, "choices", None) or ():
            block = block_of(choice)
            if self.holds_back(block):
                self._replace(choice, block)
        if getattr(response, "object", None) == "response":  # of the Responses API, which has no choices
            block = block_of(response)
            if self.holds_back(block):
                self._replace_output(response, block)
        return response

    def _replace(self, choice: Any, block: Block | None) -> None:
        """Put the text in place of an answer, and take away its calls and what else spells it."""
        message = getattr(choice, "message", None)
        for holder in (choice, message):
            for name in as_mapping(holder).keys() - _KEPT:
                if getattr(holder, name, None) is not None:
                    setattr(holder, name, None)
        if message is None:  # of a completion, which LiteLLM hands on as it came
            choice.text = self.instead
            _put_numbers(choice, block)
        else:
            message.content = self.instead
            if block is not None:
                choice.provider_specific_fields = {KEY: without_quotes(block)}
        if getattr(choice, "finish_reason", None) in ("tool_calls", "function_call"):
            choice.finish_reason = "stop"  # an agent that reads it looks for a call

    def _replace_output(self, response: Any, block: Block | None) -> None:
        """Put one message with the text in place of everything that a response of the Responses API says."""
        text = ResponseOutputText(type="output_text", text=self.instead, annotations=[], logprobs=[])
        response.output = [
            ResponseOutputMessage(type="message", id="msg_0", role="assistant", status="completed", content=[text])
        ]
        for name in ("input_messages", "output_messages"):  # of vLLM
            if getattr(response, name, None) is not None:
                setattr(response, name, None)
        _put_numbers(response, block)


def _put_numbers(holder: Any, block: Block | None) -> None:
    """Put what stays of a block, if there is one, into an object of LiteLLM."""
    if block is not None:
        setattr(holder, KEY, without_quotes(block))


class ScoreLog(CustomLogger):  # type: ignore[misc]
    """Hands every score to a function of yours, for whole replies only: LiteLLM logs streams without their blocks.

    `tell` gets the block of a choice, and LiteLLM's own record of the call (`model`, `litellm_call_id`, ...), in which
    your key stands, too: print parts of it, and not the whole.
    """

    def __init__(self, tell: Callable[[Block, Mapping[str, Any]], Any]) -> None:
        super().__init__()
        self.tell = tell

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Called by LiteLLM after a successful call."""
        self._tell(kwargs, response_obj)

    def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Called by LiteLLM after a call of its synchronous functions."""
        self._tell(kwargs, response_obj)

    def _tell(self, call: Any, reply: Any) -> None:
        for choice in getattr(reply, "choices", None) or ():
            block = block_of(choice)
            if block is not None:
                self.tell(block, call)
