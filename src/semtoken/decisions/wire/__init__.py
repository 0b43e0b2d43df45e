"""The two wire formats of typed decisions, read and written as they are.

openai.py      POST /v1/decisions, as in the openai package
systemone.py   POST /v1/systemone, as in `transformers serve`
extension.py   what semtoken adds to both: how to read, and its block under each answer

Both turn a request into a `DecisionRequest`, and word their errors as their format does. Which HTTP status an error
gets is up to the servers.
"""

from semtoken.decisions.wire import openai, systemone
from semtoken.decisions.wire.extension import DecisionRequest, WireError, extension_of

__all__ = ["DecisionRequest", "WireError", "extension_of", "openai", "systemone"]
