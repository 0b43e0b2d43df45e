"""The former name of `semtoken.backends.vllm.channel`."""

from semtoken.backends.vllm.channel import read_channel, remove_stale

__all__ = ["read_channel", "remove_stale"]
