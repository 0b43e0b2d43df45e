"""LiteLLM: a gate that holds uncertain answers back, and a callback that gets every score.

>>> litellm.callbacks = [UncertaintyGate(threshold=0.5)]  # doctest: +SKIP
>>> litellm.callbacks = [ScoreLog(print)]  # doctest: +SKIP

The scores are those of `semtoken serve` or `semtoken proxy` behind LiteLLM. In its proxy, name an instance in the
configuration: `litellm_settings: {callbacks: my_module.gate}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from semtoken.core.results.blocks import block_of
from semtoken.errors import InvalidInputError
from semtoken.integrations.hosts import require_host

require_host("litellm")

from litellm.integrations.custom_logger import CustomLogger  # noqa: E402

NOT_SURE = "I am not sure."
_FURTHER = ("tool_calls", "function_call", "reasoning_content", "thinking_blocks")
"""The fields beside its text in which a message of LiteLLM may hold an answer."""
Block = Mapping[str, Any]


class UncertaintyGate(CustomLogger):  # type: ignore[misc]
    """Replaces answers that are too uncertain, in whole replies only, since a streamed answer has been seen already.

    A call of a tool in such an answer is taken out of the reply, too, and so is reasoning.

    Parameters
    ----------
    threshold
        Answers of which 1 minus the confidence may be above it are held back, in [0, 1]: the lower end of an
        interval counts. None: those that the server's calibrator decides to abstain from.
    instead
        The text in place of such an answer.
    unscored
        "pass" lets answers without a score through, "hold" does not.

    Raises
    ------
    InvalidInputError
        The threshold is no number from 0 to 1, or `unscored` is neither "pass" nor "hold".
    """

    def __init__(self, threshold: float | None = None, instead: str = NOT_SURE, unscored: str = "pass") -> None:
        super().__init__()
        if threshold is not None and not 0 <= threshold <= 1:
            raise InvalidInputError(f"The threshold is an uncertainty from 0 to 1, got {threshold!r}.")
        if unscored not in ("pass", "hold"):
            raise InvalidInputError(f"unscored must be 'pass' or 'hold', got {unscored!r}.")
        self.threshold = threshold
        self.instead = instead
        self.unscored = unscored

    def holds_back(self, block: Block | None) -> bool:
        """Return True if an answer with this block must not be shown."""
        if block is None or "confidence" not in block:
            return self.unscored == "hold"
        if self.threshold is None:
            return block.get("decision") == "abstain"
        lowest, _ = block["interval"]
        return bool(1.0 - lowest > self.threshold)

    async def async_post_call_success_deployment_hook(self, request_data: Any, response: Any, call_type: Any) -> Any:
        """Called by LiteLLM with a reply from a deployment, before anybody sees it."""
        for choice in getattr(response, "choices", None) or ():
            message = getattr(choice, "message", None)
            if message is not None and self.holds_back(block_of(choice)):
                self._replace(choice, message)
        return response

    def _replace(self, choice: Any, message: Any) -> None:
        """Put the text in place of an answer, and take away its calls and what else spells it."""
        message.content = self.instead
        for holder, name in ((choice, "logprobs"), *((message, name) for name in _FURTHER)):
            if getattr(holder, name, None) is not None:
                setattr(holder, name, None)
        if getattr(choice, "finish_reason", None) in ("tool_calls", "function_call"):
            choice.finish_reason = "stop"  # an agent that reads it looks for a call


class ScoreLog(CustomLogger):  # type: ignore[misc]
    """Hands every score to a function of yours, for whole replies only: LiteLLM logs streams without their blocks.

    `tell` gets the block of a choice, and LiteLLM's own record of the call (`model`, `litellm_call_id`, ...).
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
