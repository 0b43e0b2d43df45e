"""Ask a server for the fields of made-up invoices and keep its replies: `examples/extraction`.

    semtoken serve --model smollm2
    python scripts/record_extraction.py http://127.0.0.1:8000

The replies are kept as they came, with the log-probabilities of the five best tokens of each step.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "examples" / "extraction"
sys.path.insert(0, str(ROOT / "research" / "experiments" / "extraction"))

from documents import Document, make_documents  # noqa: E402

N = 6
TOP = 5


def messages(document: Document, examples: list[Document], fields: list[str]) -> list[dict[str, str]]:
    """The conversation that asks for the fields of a document, after worked examples."""
    said = [
        {
            "role": "system",
            "content": f"Read the invoice and answer with one JSON object with the fields {', '.join(fields)}.",
        }
    ]
    for example in examples:
        wanted = {name: example.fields[name] for name in fields}
        said.append({"role": "user", "content": example.text})
        said.append({"role": "assistant", "content": json.dumps(wanted, ensure_ascii=False)})
    return [*said, {"role": "user", "content": document.text}]


def main(server: str) -> None:
    """Write the requests and the replies, one a line."""
    schema = json.loads((TARGET / "invoice.schema.json").read_text(encoding="utf-8"))
    fields = list(schema["properties"])
    documents = [one for one in make_documents(40, seed=11) if one.fields["currency"] in ("EUR", "USD", "GBP")][:N]
    examples = make_documents(2, seed=1)
    asked: list[dict[str, Any]] = []
    replies: list[dict[str, Any]] = []
    for number, document in enumerate(documents, start=1):
        said = messages(document, examples, fields)
        asked.append({"id": f"invoice-{number}", "messages": said})
        body = {"messages": said, "max_tokens": 120, "temperature": 0, "logprobs": True, "top_logprobs": TOP}
        reply = httpx.post(f"{server}/v1/chat/completions", json=body, timeout=600)
        reply.raise_for_status()
        replies.append({"id": f"invoice-{number}", "response": reply.json()})
    for name, records in (("invoices.jsonl", asked), ("replies.jsonl", replies)):
        lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records)
        (TARGET / name).write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
