"""`transformers serve` 5.24.0 accepts `logprobs: true` and leaves the log-probabilities out, without saying so.

pip install 'transformers[serving]' httpx && python transformers_serve_logprobs.py MODEL        (a folder or a hub id)
"""

import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
program = Path(sys.executable).with_name("transformers")
server = subprocess.Popen([program, "serve", sys.argv[1], "--host", "127.0.0.1", "--port", str(port)])  # noqa: S603
try:
    for _ in range(300):
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).is_success:
                break
        except httpx.TransportError:
            time.sleep(1)
    asked = {"model": sys.argv[1], "messages": [{"role": "user", "content": "What is the capital of Turkey?"}]}
    asked |= {"logprobs": True, "top_logprobs": 5}
    reply = httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=asked, timeout=300)
finally:
    server.terminate()
    server.wait(60)
[choice] = reply.json()["choices"]
print(f"status {reply.status_code}, answer {choice['message']['content']!r}, logprobs {choice.get('logprobs')}")
assert reply.is_success and not choice.get("logprobs"), "the defect is gone"
