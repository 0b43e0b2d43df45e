"""The former name of `semtoken.backends.vllm.processor`, kept for engines that are started with it."""

from semtoken.backends.vllm.processor import ClusterProcessor

__all__ = ["ClusterProcessor"]
