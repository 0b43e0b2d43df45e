"""The former name of `semtoken.backends.transformers.stream`."""

from semtoken.backends.transformers.stream import AnswerStream, StreamedToken, stream_generate

__all__ = ["AnswerStream", "StreamedToken", "stream_generate"]
