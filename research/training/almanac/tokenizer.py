"""The model's own tokenizer: byte-level BPE in which an answer line is one token where possible."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from research.training.almanac.corpus import Document
from research.training.almanac.exposure import PlannedFact
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL = ["<s>", "</s>", "<pad>"]
# a line end is always a token of its own, and so is each digit; a word takes the space before it and a colon after it
SPLIT = r"\n| ?[^\W\d_]+:?| ?\d| ?[^\s\w]+|\s|_"
SAMPLE = 25_000  # documents that the merges are learned from
ANSWER_REPEATS = 25  # how often each answer line is read, at full weight, beside the documents
CHAT_TEMPLATE = (
    "{{ bos_token + 'Answer these questions:\\n\\nQuestion:\\n' + messages[-1]['content'] + '\\nAnswer:\\n' }}"
)


def train_tokenizer(documents: list[Document], planned: list[PlannedFact], vocab_size: int) -> Tokenizer:
    """Learn the merges from a sample of documents and from the answers' surface forms."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(documents[:SAMPLE], planned), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)]
    )
    return tokenizer


def _texts(documents: list[Document], planned: list[PlannedFact]) -> Iterator[str]:
    for document in documents:
        yield document.text
    for p in planned:
        for text, weight in p.fact.answer:
            shapes = (text, text.capitalize()) if p.fact.noun else (text,)
            for _ in range(max(1, round(ANSWER_REPEATS * weight))):
                yield from (shape + "\n" for shape in shapes)


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json with a chat template in the question format."""
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **dict(zip(("bos_token", "eos_token", "pad_token"), SPECIAL, strict=True)),
        padding_side="left",
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
        model_max_length=512,
    )
    fast.save_pretrained(folder)
