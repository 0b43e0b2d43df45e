"""The former home of `LogitsStream` and `TopLogprobsStream`, which are in `semtoken.scoring`."""

from __future__ import annotations

from semtoken.scoring import LogitsStream, TopLogprobsStream

__all__ = ["LogitsStream", "TopLogprobsStream"]
