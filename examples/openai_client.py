"""Ask `semtoken serve` or `semtoken proxy` with the official OpenAI client, and read the uncertainty.

    semtoken serve                               # in one terminal
    python examples/openai_client.py [URL]       # in another; URL: default http://127.0.0.1:8000/v1

Needs `pip install openai`.
"""

from __future__ import annotations

import sys

from openai import OpenAI

from semtoken.support.text import number

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"
client = OpenAI(base_url=url, api_key="none")
model = client.models.list().data[0].id
messages = [{"role": "user", "content": "What is the capital of Mexico?"}]

reply = client.chat.completions.create(
    model=model,
    messages=messages,
    extra_body={"semtoken": {"tokens": True}},  # the scores of every token, too
)
choice = reply.choices[0]
print(choice.message.content)
if "reason" in choice.semtoken:
    print(f"  not scored: {choice.semtoken['reason']}")
else:
    block = choice.semtoken
    print(f"  confidence {number(block['confidence'])}. {block['explanation']}")
    for token in choice.semtoken["tokens"]:
        print(f"  {token['text']!r:12} {number(token['agreeing_probability'])}")

for chunk in client.chat.completions.create(model=model, messages=messages, stream=True):
    for choice in chunk.choices:
        block = getattr(choice, "semtoken", None)
        if choice.delta.content:
            print(repr(choice.delta.content))
            if block and "confidence" in block:  # the last piece of text brings the final score
                print(f"  confidence {number(block['confidence'])}")
