"""Tokenizer, network and training of one encoder."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from research.training.encoders.pairs import LABELS, Pair
from research.training.encoders.things import World
from rich.progress import track
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from transformers import DebertaConfig, DebertaForSequenceClassification, PreTrainedTokenizerFast

SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
VOCAB_SIZE = 5000
MAX_TOKENS = 96
BATCH = 128
LEARNING_RATE = 3e-3
SHARPNESS = 2.0  # factor of the first queries and keys
TEXT, AVERAGE, UNMATCHED, RESERVED = 0, 1, 2, 3  # dimensions that the first weights use, and their number
MARK = 0.15  # of a text; word vectors have a standard deviation of 0.05
WARM_UP = 0.05  # of the steps


@dataclass(frozen=True)
class Encoded:
    """Token ids of one pair, where its second text begins, and its target."""

    ids: list[int]
    second: int
    target: float


def train_tokenizer(pairs: list[Pair], world: World) -> PreTrainedTokenizerFast:
    """Byte-level BPE on texts without case, accents and superfluous white space: these differences never count."""
    tokenizer = Tokenizer(models.BPE())
    blanks = normalizers.Replace(Regex(r"\s+"), " ")
    folded = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    tokenizer.normalizer = normalizers.Sequence([*folded, blanks, normalizers.Strip()])
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=True)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    names = [n for kind, things in world.things.items() if kind != "city" for thing in things for n in thing.names]
    tokenizer.train_from_iterator([text for p in pairs[:40_000] for text in (p.first, p.second)] + names * 8, trainer)
    ends = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **{f"{name[1:-1].lower()}_token": name for name in SPECIAL},
        model_max_length=MAX_TOKENS,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )


def new_model(vocab_size: int, task: str, seed: int) -> DebertaForSequenceClassification:
    """A DeBERTa without relative positions: the class that peers expect, at the cost of a small BERT."""
    torch.manual_seed(seed)
    labels = {i: label.upper() for i, label in enumerate(LABELS)} if task == "nli" else {0: "SIMILARITY"}
    config = DebertaConfig(
        vocab_size=vocab_size,
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=MAX_TOKENS,
        type_vocab_size=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.05,
        relative_attention=False,
        position_biased_input=True,
        pad_token_id=0,
        pooler_hidden_act="gelu",
        initializer_range=0.05,
        id2label=labels,
        label2id={label: i for i, label in labels.items()},
    )
    model = DebertaForSequenceClassification(config)
    _start_by_matching(model)
    return model


def _start_by_matching(model: DebertaForSequenceClassification) -> None:
    """Begin with a network that sees which tokens of one text are not in the other; training takes it from there.

    Left to chance, a network this small spends most of a short training on finding out how to compare. First layer:
    equal queries and keys find equal tokens, and the mark of the text they stand in (TEXT, opposite signs) averages out
    (AVERAGE) where a token has its like in the other text; the feed-forward part turns what is left into its absolute
    value (UNMATCHED). Second layer: one head looks at the unmatched tokens, so that [CLS] holds what differs.
    """
    embeddings, (first, second) = model.deberta.embeddings, model.deberta.encoder.layer
    heads = model.config.num_attention_heads
    with torch.no_grad():
        embeddings.position_embeddings.weight *= 0.2
        for table in (embeddings.word_embeddings, embeddings.position_embeddings, embeddings.token_type_embeddings):
            table.weight[:, :RESERVED] = 0.0
        embeddings.token_type_embeddings.weight *= 0.1
        embeddings.token_type_embeddings.weight[:, TEXT] = torch.tensor([MARK, -MARK])

        queries, keys, values = _parts(first, heads)
        queries *= SHARPNESS
        queries[:, :, :RESERVED] = 0.0
        keys.copy_(queries)
        values[:, 0] = 0.0
        values[:, 0, TEXT] = 1.0
        first.attention.output.dense.weight[:RESERVED] = 0.0
        first.attention.output.dense.weight[AVERAGE].view(heads, -1)[:, 0] = 1.0 / heads
        first.intermediate.dense.weight[:2] = 0.0
        first.intermediate.dense.weight[:2, AVERAGE] = torch.tensor([3.0, -3.0])
        first.output.dense.weight[:RESERVED] = 0.0
        first.output.dense.weight[UNMATCHED, :2] = 1.0

        queries, keys, values = _parts(second, heads)
        keys[0, 0] = 0.0
        keys[0, 0, UNMATCHED] = 1.0
        queries[0, 0] = 0.0
        second.attention.self.q_bias[0] = 4.0


def _parts(layer: torch.nn.Module, heads: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Views of a layer's projections to queries, keys and values, each of shape (heads, width of a head, width)."""
    weight = layer.attention.self.in_proj.weight
    parts = weight.view(heads, 3, -1, weight.shape[1])
    return parts[:, 0], parts[:, 1], parts[:, 2]


def encode(pairs: list[Pair], tokenizer: PreTrainedTokenizerFast, task: str) -> list[Encoded]:
    """Token ids and targets of all pairs."""
    batch = tokenizer([p.first for p in pairs], [p.second for p in pairs], truncation=True)
    encoded = []
    for pair, ids, types in zip(pairs, batch["input_ids"], batch["token_type_ids"], strict=True):
        target = float(LABELS.index(pair.label)) if task == "nli" else pair.similarity
        encoded.append(Encoded(ids, types.index(1), target))
    return encoded


def batches(encoded: list[Encoded], rng: random.Random, size: int = BATCH) -> Iterator[list[Encoded]]:
    """Random batches of pairs that are about equally long, so that little is padding."""
    shuffled = rng.sample(encoded, len(encoded))
    span = size * 40
    for start in range(0, len(shuffled), span):
        chunk = sorted(shuffled[start : start + span], key=lambda e: len(e.ids))
        parts = [chunk[i : i + size] for i in range(0, len(chunk), size)]
        rng.shuffle(parts)
        yield from parts


def tensors(batch: list[Encoded]) -> dict[str, torch.Tensor]:
    """Padded input tensors of one batch."""
    width = max(len(e.ids) for e in batch)
    ids = torch.tensor([e.ids + [0] * (width - len(e.ids)) for e in batch])
    second = torch.tensor([e.second for e in batch])[:, None]
    lengths = torch.tensor([len(e.ids) for e in batch])[:, None]
    at = torch.arange(width)[None]
    types = ((at >= second) & (at < lengths)).long()
    return {"input_ids": ids, "token_type_ids": types, "attention_mask": (at < lengths).long()}


def train(model: DebertaForSequenceClassification, encoded: list[Encoded], seed: int, epochs: int) -> None:
    """AdamW with a linear decay; cross entropy for three labels, binary cross entropy on similarities for one."""
    torch.manual_seed(seed)
    model.train()
    steps = epochs * -(-len(encoded) // BATCH)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.02}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (WARM_UP * steps), (steps - step) / (steps * (1 - WARM_UP)))
    )
    rng = random.Random(seed)
    stream = (batch for _ in range(epochs) for batch in batches(encoded, rng))
    for batch in track(stream, total=steps, description="training"):
        loss = _loss(model(**tensors(batch)).logits, torch.tensor([e.target for e in batch]))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()


def _loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if logits.shape[1] > 1:
        return cross_entropy(logits, targets.long())
    return binary_cross_entropy_with_logits(logits[:, 0], targets)


@torch.inference_mode()
def predict(model: DebertaForSequenceClassification, encoded: list[Encoded]) -> torch.Tensor:
    """Probabilities of the three labels, or similarities in [0, 1], one row a pair."""
    order = sorted(range(len(encoded)), key=lambda i: len(encoded[i].ids))
    rows: dict[int, torch.Tensor] = {}
    for start in range(0, len(order), 256):
        chosen = order[start : start + 256]
        logits = model(**tensors([encoded[i] for i in chosen])).logits.float()
        scores = logits.softmax(-1) if logits.shape[1] > 1 else logits[:, 0].sigmoid()
        rows.update(zip(chosen, scores, strict=True))
    return torch.stack([rows[i] for i in range(len(encoded))])
