"""llama-server b11434: tokens taken from a draft model come with the log-probability 0 and without a list.

pip install httpx && python llama_server_draft_zeros.py PATH/TO/llama-server MODEL.gguf    (the model is its own draft)
"""

import socket
import subprocess
import sys
import time

import httpx

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
program, model = sys.argv[1:]
command = [program, "-m", model, "-md", model, "--spec-type", "draft-simple", "--spec-draft-n-max", "4"]
command += ["-c", "1024", "--host", "127.0.0.1", "--port", str(port)]
server = subprocess.Popen(command)  # noqa: S603
asked = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 8}
asked |= {"temperature": 0, "logprobs": True, "top_logprobs": 2}
try:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300, trust_env=False) as client:
        while server.poll() is None:
            try:
                client.get("/health").raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(1)
        reply = client.post("/v1/chat/completions", json=asked).raise_for_status().json()
finally:
    server.terminate()
    server.wait(60)
items = reply["choices"][0]["logprobs"]["content"]
for item in items:
    print(f"{item['token']!r}: {item['logprob']:.3f}, {len(item['top_logprobs'])} listed")
zeros = [item for item in items if item["logprob"] == 0 and not item["top_logprobs"]]
assert zeros, "the defect is gone"
