"""LangChain's copy of an answer: python langchain_client.py URL < REQUEST, with langchain-openai installed."""

from __future__ import annotations

import json
import sys
from functools import reduce
from operator import add

from langchain_openai import ChatOpenAI


def main() -> None:
    """Ask what stands in the request, and print the message."""
    request = json.load(sys.stdin)
    messages, streamed = request.pop("messages"), request.pop("stream", False)
    model = ChatOpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", model="smollm2", max_retries=0)
    bound = model.bind(**request)
    message = reduce(add, bound.stream(messages)) if streamed else bound.invoke(messages)
    json.dump(message.model_dump(mode="json"), sys.stdout)


if __name__ == "__main__":
    main()
