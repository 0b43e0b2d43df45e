"""LiteLLM 1.110.2: fields that a provider adds to a choice survive in a stream, but not on the chunk that ends it.

pip install litellm && python litellm_last_chunk.py
"""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it fetches a table of prices otherwise
import litellm

CHOICES = (
    {"index": 0, "delta": {"role": "assistant", "content": "Hello"}, "finish_reason": None, "score": {"so_far": 0.1}},
    {"index": 0, "delta": {}, "finish_reason": "stop", "score": {"final": 0.2}},
)


class Provider(BaseHTTPRequestHandler):
    """Streams an answer whose choices have a field of its own."""

    def do_POST(self):
        """Two chunks and the end."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for choice in CHOICES:
            chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_):
        """Say nothing."""


server = HTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
address = f"http://127.0.0.1:{server.server_port}/v1"
asked = [{"role": "user", "content": "Hi"}]
seen = {}
for chunk in litellm.completion(model="openai/m", api_base=address, api_key="none", messages=asked, stream=True):
    choice = chunk.choices[0]
    added = getattr(choice, "provider_specific_fields", None) or getattr(choice, "score", None)
    seen[choice.finish_reason] = added
    print(f"content {choice.delta.content!r}, finish_reason {choice.finish_reason}: {added}")
server.shutdown()
assert "so_far" in str(seen[None]) and "final" not in str(seen["stop"]), "the defect is gone"
