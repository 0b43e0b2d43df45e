"""The site's own search: whoever types a word of the field finds the page about it among the first five results."""

from __future__ import annotations

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
FIRST = 5
PATIENCE = 20  # looks at a list that is still empty, on a machine that is busy
SEARCHES = {
    "abstain": "calibration",
    "auroc": "results",
    "azure": "serving",
    "calibrate": "calibration",
    "chinese": "parts",
    "clusters": "clusters",
    "confidence score": "behind-an-api",
    "cost": "benchmarks",
    "custom method": "your-own-method",
    "decide audit": "decisions",
    "drift": "watch",
    "encoder-decoder": "models",
    "exit status": "cli",
    "extract json": "check-an-extraction",
    "gguf": "models",
    "images": "models",
    "inspect": "integrations/inspect_ai",
    "journal delete": "watch",
    "judge": "judging",
    "langchain": "integrations/langchain",
    "litellm": "integrations/litellm",
    "llama.cpp": "engines",
    "logits processor": "choosing",
    "lora": "models",
    "mcp": "integrations/mcp",
    "new reply shape": "extending",
    "notebook": "examples",
    "ocr": "check-saved-replies",
    "ollama": "engines",
    "opentelemetry": "integrations/opentelemetry",
    "paper preset": "method",
    "perplexity": "methods",
    "postgresql": "watch",
    "prediction set": "decisions",
    "prometheus": "serving",
    "python api": "api/index",
    "ray": "cluster-of-machines",
    "recorder": "api/models",
    "reproduce": "reproduce",
    "schema": "check-an-extraction",
    "security": "SECURITY",
    "semantic entropy": "methods",
    "sglang": "engines",
    "streaming": "replies",
    "thinking": "choosing",
    "threshold with a guarantee": "calibration",
    "tool call": "gate-a-tool-call",
    "top_logprobs": "replies",
    "typed questions": "decisions",
    "vllm": "engines",
}
LINKS = """() => {
  const links = [];
  const walk = root => {
    for (const one of root.querySelectorAll("*")) {
      if (one.tagName === "A" && one.closest("ol, ul")) links.push(one.href);
      if (one.shadowRoot) walk(one.shadowRoot);
    }
  };
  for (const one of document.querySelectorAll("*")) if (one.shadowRoot) walk(one.shadowRoot);
  return links;
}"""
"""The addresses of the results, which stand in the shadow tree of the search's own element."""


class Files(SimpleHTTPRequestHandler):
    """The files of a folder, without a line for each request."""

    def log_message(self, *_: Any) -> None:
        pass


def results(page: Any, address: str, words: str) -> list[str]:
    """The pages of the first results, as paths of the site."""
    page.keyboard.press("Control+a")
    page.keyboard.type(words)
    page.wait_for_timeout(600)
    for _ in range(PATIENCE):
        if page.evaluate(LINKS):
            break
        page.wait_for_timeout(300)
    return [link.removeprefix(address).partition("?")[0] for link in page.evaluate(LINKS)][:FIRST]


def test_the_search_finds_the_page(site: Path, browser: Any) -> None:
    files = ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(site)))
    with files:
        threading.Thread(target=files.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{files.server_port}/"
        page = browser.new_page()
        page.goto(f"{address}index.html")
        page.wait_for_timeout(500)
        page.keyboard.press("/")
        page.wait_for_timeout(800)
        found = {words: results(page, address, words) for words in SEARCHES}
        files.shutdown()
    missed = {words: pages for words, pages in found.items() if not any(SEARCHES[words] in page for page in pages)}
    assert not missed
