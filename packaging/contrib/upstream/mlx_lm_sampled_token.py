"""mlx-lm 0.32.2: with `top_logprobs` the server lists the likeliest token of each step, not the one that it drew.

pip install mlx-lm httpx && python mlx_lm_sampled_token.py MODEL   (a folder or a hub id; on Linux: mlx-lm 'mlx[cpu]')
"""

import socket
import subprocess
import sys
import time

import httpx

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
command = [sys.executable, "-m", "mlx_lm.server", "--model", sys.argv[1], "--host", "127.0.0.1", "--port", str(port)]
server = subprocess.Popen(command)  # noqa: S603
asked = {"model": sys.argv[1], "messages": [{"role": "user", "content": "What is the capital of France?"}]}
asked |= {"max_tokens": 8, "temperature": 1.5, "seed": 1, "logprobs": True}
try:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300, trust_env=False) as client:
        while server.poll() is None:
            try:
                client.get("/health").raise_for_status()
                break
            except httpx.TransportError:
                time.sleep(1)
        [alone] = client.post("/v1/chat/completions", json=asked).raise_for_status().json()["choices"]
        [listed] = client.post("/v1/chat/completions", json=asked | {"top_logprobs": 2}).json()["choices"]
finally:
    server.terminate()
    server.wait(60)
drawn = [item["id"] for item in alone["logprobs"]["content"]]
shown = [item["id"] for item in listed["logprobs"]["content"]]
print(f"answers {alone['message']['content']!r} and {listed['message']['content']!r}")
print(f"listed without top_logprobs: {drawn}, with: {shown}")
assert alone["message"] == listed["message"], "the answers differ: ask at another temperature"
assert drawn != shown, "the defect is gone"
