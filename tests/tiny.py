"""Small real tokenizers and models for tests, built in memory in a few lines each."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

WORDS = (
    "the The capital of France is Paris . A TV or a television set , Television and TELEVISION : 7 17 42 1990 "
    "no No not the same Washington DC New York naïve café Größe ΣΑΣ σας ΣΟΦΟΣ ς straße İstanbul 東京 🙂 it's don't"
)
TEXT = (WORDS + "\nQuestion:\nwho is it\nAnswer:\n\n") * 3


def _handed_out_as_copies(build: Callable[..., Any]) -> Callable[..., Any]:
    """Build once and give everyone a copy: what one test sets on a tokenizer is not there in the next test."""
    built = cache(build)

    @wraps(build)
    def a_copy(*args: Any, **settings: Any) -> Any:
        return copy.deepcopy(built(*args, **settings))

    return a_copy


@_handed_out_as_copies
def byte_level_bpe(added: bool = True) -> Any:
    """GPT-2, Llama-3 and Qwen kind: pieces are bytes, a newline is a token, two special and three added tokens."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<|end|>", "<|pad|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT, " ".join(WORDS.lower())], trainer)
    if added:
        tokenizer.add_special_tokens([AddedToken("<|user|>", special=True), AddedToken("<|assistant|>", special=True)])
        tokenizer.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|pad|>")


def token_before(tokenizer: Any) -> processors.TemplateProcessing:
    """A step of a tokenizer that puts its padding token before each text, as most models' tokenizers put one."""
    first = tokenizer.pad_token, tokenizer.pad_token_id
    return processors.TemplateProcessing(single=f"{first[0]} $A", special_tokens=[first])


@_handed_out_as_copies
def sentencepiece_bpe() -> Any:
    """Llama-2 and Mistral kind: blanks are spelled in the pieces, unknown characters fall back to byte tokens."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(_fallback_model())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<unk>", "<s>", "</s>", "[INST]")])
    tokenizer.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="<unk>")


def _fallback_model() -> models.BPE:
    """Every prefix of every word is a token, with and without the blank before it."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁▁"]
    merges = [("▁", "▁")]
    for word in WORDS.split():
        if word.isascii():
            for start in ("▁" + word, word):
                pieces += list(start)
                merges += [(start[:k], start[k]) for k in range(1, len(start))]
                pieces += [start[: k + 1] for k in range(1, len(start))]
    vocab = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    return models.BPE(
        vocab=vocab, merges=list(dict.fromkeys(merges)), unk_token="<unk>", byte_fallback=True, fuse_unk=True
    )


@_handed_out_as_copies
def wordpiece(clean_up: bool = True) -> Any:
    """BERT kind: pieces inside a word are marked, blanks are put between words when decoding."""
    from transformers import PreTrainedTokenizerFast

    words = WORDS.replace("'", " ' ").split()
    letters = sorted(set("".join(words)))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words, "s", "n't", "##ing", "##s", *letters]
    pieces += [f"##{letter}" for letter in letters]
    vocab = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocab=vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=clean_up)
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", clean_up_tokenization_spaces=clean_up
    )


@_handed_out_as_copies
def unigram() -> Any:
    """T5 and Gemma kind: the most probable pieces, unknown characters fall back to byte tokens."""
    from transformers import PreTrainedTokenizerFast

    words = dict.fromkeys("▁" + word for word in WORDS.split() if word.isascii())
    pieces = dict.fromkeys(("<eos>", "<pad>", "<bos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))), -8.0)
    pieces |= {"▁": -3.0} | {letter: -6.0 for word in words for letter in word[1:]} | dict.fromkeys(words, -4.0)
    tokenizer = Tokenizer(models.Unigram(list(pieces.items()), unk_id=3, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer.add_special_tokens([AddedToken(one, special=True) for one in ("<eos>", "<pad>", "<bos>", "<unk>")])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>")


@_handed_out_as_copies
def tiktoken_like() -> Any:
    """Llama-3 and Kimi kind: words split by an expression, ranks instead of merges, special tokens at the end."""
    from transformers import PreTrainedTokenizerFast

    made = json.loads(byte_level_bpe().backend_tokenizer.to_str())["model"]
    pieces = [piece for piece in made["vocab"] if not piece.startswith("<|")]
    merges = [tuple(pair) for pair in made["merges"]]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges, ignore_merges=True))
    words = Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+")
    split = pre_tokenizers.Split(words, "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(one, special=True) for one in ("<|end|>", "<|pad|>")])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|pad|>")


@cache
def mistral(kind: str) -> Any:
    """A tokenizer that Mistral ships: "sentencepiece" (32,768 tokens) or "tekken" (131,072)."""
    package = pytest.importorskip("mistral_common", reason="mistral-common, which brings real tokenizers, is missing")
    if kind == "sentencepiece":
        pytest.importorskip("sentencepiece", reason="sentencepiece is missing")
    from transformers import MistralCommonBackend

    files = {"sentencepiece": "mistral_instruct_tokenizer_240323.model.v3", "tekken": "tekken_240911.json"}
    return MistralCommonBackend(tokenizer_path=str(Path(package.__file__).parent / "data" / files[kind]))


TOKENIZERS = {
    "byte-level": byte_level_bpe,
    "sentencepiece": sentencepiece_bpe,
    "wordpiece": wordpiece,
}
"""One of each kind, a few hundred tokens."""
ALL_TOKENIZERS = {**TOKENIZERS, "unigram": unigram, "tiktoken": tiktoken_like}
"""For what is quick enough to be tried with more kinds."""


def tokenizer_of(kind: str) -> Any:
    """A tokenizer by its name: one of `ALL_TOKENIZERS`, or "mistral-" with a kind of `mistral`."""
    brand, _, name = kind.partition("-")
    return mistral(name) if brand == "mistral" else ALL_TOKENIZERS[kind]()


def llama(vocab_rows: int, *, tied: bool = False, hidden: int = 16, seed: int = 0) -> Any:
    """A LlamaForCausalLM with random weights; more rows than the tokenizer has tokens make a padded head."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_rows,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
        tie_word_embeddings=tied,
        initializer_range=0.5,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=1,
    )
    return LlamaForCausalLM(config).eval()


def saved(model: Any, folder: Path, tokenizer: Any = None, **how: Any) -> Path:
    """Save a model with its tokenizer, by default the first of those above; returns the folder."""
    model.save_pretrained(folder, **how)
    (tokenizer or byte_level_bpe()).save_pretrained(folder)
    return folder
