"""The former name of `semtoken.backends.stream`."""

from semtoken.backends.stream import AnswerStream, StreamedToken, stream_generate

__all__ = ["AnswerStream", "StreamedToken", "stream_generate"]
