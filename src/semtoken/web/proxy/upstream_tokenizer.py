"""The tokenizer of a vLLM upstream, by the name under which that lists its model, where this machine has it.

vLLM names tokens by ids if it is asked to, and with the tokenizer an interval is then some twenty times narrower than
by the tokens' texts. Nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.decisions.remote import ModelTokens
from semtoken.errors import SemtokenError
from semtoken.support.http_client import HttpClient, Retries
from semtoken.web.proxy.settings import ProxySettings

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
SECONDS = 5.0
"""Seconds that the upstream may take to list its models."""


def vllm_model(base: str) -> str | None:
    """The source that the model of a vLLM server was loaded from: a folder of its machine, or a hub id.

    None if the server does not answer, or lists models as no vLLM does. No key is sent.
    """
    parts = urlsplit(base)
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    try:
        with HttpClient(address, timeout=SECONDS, within=SECONDS, retries=Retries(most=0)) as client:
            values = client.get(f"{address}/v1/models").values
    except SemtokenError:
        return None
    listed = values.get("data") if isinstance(values, dict) else None
    first = listed[0] if isinstance(listed, list) and listed else None
    if not isinstance(first, dict) or first.get("owned_by") != "vllm":
        return None
    name = first.get("root") or first.get("id")
    return name if isinstance(name, str) else None


def tokens_of_server(url: str) -> ModelTokens:
    """The tokens of the model behind a server's address, if that is vLLM's and its tokenizer is here; else none."""
    model = vllm_model(root_of(url))
    tokenizer = None if model is None else loaded_tokenizer(model)
    return ModelTokens() if tokenizer is None else ModelTokens(Vocabulary.from_tokenizer(tokenizer), tokenizer)


def root_of(url: str) -> str:
    """The address of a server, below which its `/v1` stands.

    >>> root_of("http://v1.example/llm/v1/chat/completions"), root_of("http://v1.example/")
    ('http://v1.example/llm', 'http://v1.example')
    """
    parts = urlsplit(url)
    path = re.split(r"/v1(?=/|$)", parts.path)[0].rstrip("/")
    return parts._replace(path=path, query="", fragment="").geturl()


def loaded_tokenizer(name: str) -> Any:
    """The tokenizer of a model on this machine, by its folder or hub id; None where there is no such model."""
    folder = tokenizer_here(str(Path(name).resolve()) if Path(name).is_dir() else name)
    if folder is None:
        return None
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def tokenizer_here(model: str) -> str | None:
    """The folder with the tokenizer of a model on this machine: the model's, or that of a hub id in the hub's cache."""
    if importlib.util.find_spec("transformers") is None:
        return None
    folder = Path(model)
    if HUB_ID.fullmatch(model):
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        with suppress(HFValidationError):
            cached = try_to_load_from_cache(model, "tokenizer.json")
            folder = Path(cached).parent if isinstance(cached, str) else folder
    found = folder.is_absolute() and all((folder / name).is_file() for name in ("config.json", "tokenizer.json"))
    return str(folder) if found else None


def ids_and_tokenizer(
    wanted: str, upstream: str, tokenizer: str | None, say: Callable[[str], None] = lambda sentence: None
) -> tuple[bool, str | None]:
    """True if a server is to be asked for ids of tokens, and the tokenizer that reads them: as given, else vLLM's own.

    `wanted` is "yes", "no" or "auto"; `say` is called with a sentence on what was found.
    """
    if wanted == "no" or (wanted == "yes" and tokenizer):
        return wanted == "yes", tokenizer
    model = vllm_model(ProxySettings(upstream).base)
    if model is None or tokenizer:
        return wanted == "yes" or model is not None, tokenizer
    found = tokenizer_here(model)
    if found is None:
        say(
            f"The upstream is vLLM with {model}, whose tokenizer was not found on this machine. Intervals are wider "
            "without it: name it with --tokenizer."
        )
        return wanted == "yes", None
    say(f"The upstream is vLLM: it is asked for token ids, and the tokenizer is that in {found}.")
    return True, found
