"""The wire formats of typed decisions, read and written as they are.

openai.py      POST /v1/decisions, as in the openai package
systemone.py   POST /v1/systemone, as in `transformers serve`
sglang.py      POST /v1/decisions, as SGLang has it
extension.py   what semtoken adds to them: how to read, and its block under each answer
shapes.py      how servers are asked in each of them, and when another one is tried

All turn a request into a `WireRequest`, and word their errors as their format does. Which HTTP status an error
gets is up to the servers.
"""

from semtoken.decisions.wire import openai, sglang, systemone
from semtoken.decisions.wire.extension import WireError, WireRequest, extension_of

__all__ = ["WireError", "WireRequest", "extension_of", "openai", "sglang", "systemone"]
