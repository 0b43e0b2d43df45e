"""Greedy answers of a model with what every one-pass number reads, in shards that a cut-off run continues.

    python research/experiments/headline/record.py MODEL OUT nq=nq.jsonl wq=wq.jsonl chat=chat.jsonl [--until 01:30]

Each task is NAME=FILE; a name that begins with "chat" asks by the chat template, "bare" by the paper's prompt of NQ, the others by
that of their name.
The tasks take turns, a part at a time, in the order of their files. A part is OUT/NAME-0000.npz and
OUT/NAME-0000.jsonl, written whole or not at all. PROTOCOL.md says what is asked of whom; `recording.py` reads the parts.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from semtoken.models.prompts import PROMPTS

KEPT = 256  # most probable tokens of a step
BATCH = 256
SHORT, LONG = 16, 64  # tokens of an answer at most
PART = {SHORT: 256, LONG: 128}  # questions of a part, by the length of the answers


class Float32Norm(torch.nn.Module):
    """A root-mean-square norm whose input and output are read as float32."""

    def __init__(self, norm: Any, offset: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(norm.weight.float() + offset, requires_grad=False)
        self.epsilon = getattr(norm, "variance_epsilon", None) or norm.eps

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[..., d] normalized."""
        hidden = hidden.float()
        return self.weight * hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.epsilon)


class Float32Head(torch.nn.Module):
    """The matrix from hidden states to logits, in float32 and in the order that the CPU's kernels want."""

    def __init__(self, weight: torch.Tensor, rows: int) -> None:
        super().__init__()
        self.vocabulary = len(weight)
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().float(), rows)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, V] logits."""
        return torch.ops.mkldnn._linear_pointwise(hidden, self.packed, None, "none", [], "")


@dataclass
class WatchedRequest:
    """A model and what its layers showed in the last forward pass."""

    model: Any
    state_layer: int
    """Layers below the hidden state that is kept."""
    middle: range
    """Numbers, from 0, of the layers whose attention is kept: the middle third (RAUQ)."""
    state: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    attention: dict[int, torch.Tensor] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path, body: torch.dtype) -> WatchedRequest:
        """A model on its directory; the final norm and the head are float32 whatever the body is."""
        model = AutoModelForCausalLM.from_pretrained(path, dtype=body, attn_implementation="eager").eval()
        offset = 1.0 if "gemma" in model.config.model_type else 0.0
        model.model.norm = Float32Norm(model.model.norm, offset)
        model.lm_head = Float32Head(model.lm_head.weight, BATCH)
        layers = model.model.layers
        count = len(layers)
        found = cls(model, round(0.65 * count), range(-(-count // 3), -(-2 * count // 3)))
        layers[found.state_layer - 1].register_forward_hook(found._keep_state)
        for i in found.middle:
            layers[i].self_attn.register_forward_hook(lambda _m, _i, out, i=i: found.attention.update({i: out[1]}))
        return found

    def _keep_state(self, _module: Any, _inputs: Any, output: Any) -> None:
        self.state = output[0] if isinstance(output, tuple) else output

    def read(self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: Any) -> torch.Tensor:
        """Logits [B, V] after the last token of every row."""
        output = self.model.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        )
        return self.model.lm_head(output.last_hidden_state[:, -1])

    def to_previous(self) -> torch.Tensor:
        """[B, layers, heads] attention of the last token to the one before it."""
        return torch.stack([self.attention[i][:, :, -1, -2] for i in self.middle], 1).float()


@dataclass
class Recording:
    """One answer while it is written."""

    ids: list[int] = field(default_factory=list)
    steps: dict[str, list[Any]] = field(default_factory=dict)
    state: Any = None
    ended: bool = False

    def add(self, **values: Any) -> None:
        """One step's values."""
        for name, value in values.items():
            self.steps.setdefault(name, []).append(value)


def step_values(logits: torch.Tensor) -> dict[str, np.ndarray]:
    """What is kept of a step, from its logits [B, V]: greedy token, the best, entropy, mean log-probability."""
    norm = logits.logsumexp(-1)
    p = (logits - norm[:, None]).exp_()
    values, columns = logits.topk(KEPT, -1)
    return {
        "log_prob": (values[:, 0] - norm).numpy(),
        "entropy": (norm - (p * logits).sum(-1)).numpy(),
        "mean_log_prob": (logits.mean(-1) - norm).numpy(),
        "top_ids": columns.numpy().astype(np.int32),
        "top_log_probs": (values - norm[:, None]).numpy(),
    }


@torch.no_grad()
def answers_to(
    watched: WatchedRequest, prompts: list[list[int]], read: Any, skip: int, stop: torch.Tensor, longest: int
) -> list[Recording]:
    """Greedy answers to a batch of prompts whose first `skip` tokens lie in the cache `read`.

    Shorter prompts are padded behind the shared part. Every token is fed once, the last one of an answer too, because
    its own attention is wanted.
    """
    cache = copy.deepcopy(read)
    cache.batch_repeat_interleave(len(prompts))
    width = max(map(len, prompts)) - skip
    pads = torch.tensor([width - len(prompt) + skip for prompt in prompts])
    ids = torch.tensor([[0] * pad + prompt[skip:] for pad, prompt in zip(pads.tolist(), prompts, strict=True)])
    mask = torch.ones(len(prompts), skip + width, dtype=torch.long)
    mask[:, skip:] = (torch.arange(width)[None] >= pads[:, None]).long()
    positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, skip:]
    found = [Recording() for _ in prompts]
    running = list(range(len(prompts)))
    logits = watched.read(ids, mask, positions, cache)
    for step in range(longest + 1):
        state = watched.state[:, -1].float().numpy().astype(np.float16)
        attention = watched.to_previous().numpy().astype(np.float16) if step else None
        values = step_values(logits)
        chosen = logits.argmax(-1)
        going_on = []
        for row, i in enumerate(running):
            answer = found[i]
            if attention is not None:
                answer.add(attention=attention[row])
            if answer.ended:
                continue
            answer.state = state[row]
            if step == longest:
                continue
            answer.ids.append(int(chosen[row]))
            answer.add(**{name: rows[row] for name, rows in values.items()})
            answer.ended = bool(stop[chosen[row]])
            going_on.append(row)
        if not going_on:
            break
        if len(going_on) < len(running):
            kept = torch.tensor(going_on)
            cache.batch_select_indices(kept)
            mask, positions = mask[kept], positions[kept]
            running = [running[row] for row in going_on]
        mask = torch.cat([mask, torch.ones(len(running), 1, dtype=torch.long)], 1)
        positions = positions[:, -1:] + 1
        logits = watched.read(chosen[going_on][:, None], mask, positions, cache)
    return found


def shared_prefix(prompts: list[list[int]]) -> int:
    """Tokens that all prompts begin with; at least one token of each is left over."""
    length = min(map(len, prompts)) - 1
    while any(ids[:length] != prompts[0][:length] for ids in prompts):
        length -= 1
    return length


@dataclass
class Task:
    """Questions that are asked in one way, and how far they have come."""

    name: str
    records: list[dict[str, Any]]
    prompts: list[list[int]]
    stop: torch.Tensor
    longest: int
    done: int = 0
    part: int = 0

    @classmethod
    def read(cls, name: str, path: Path, tokenizer: Any, vocabulary: int, ends: list[int]) -> Task:
        """The questions of a file (JSON lines) as prompts."""
        with path.open(encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        stop = torch.zeros(vocabulary, dtype=torch.bool)
        stop[ends] = True
        if name.startswith("chat"):
            prompts = [chat_prompt(tokenizer, record.get("asked", record["question"])) for record in records]
            return cls(name, records, prompts, stop, LONG)
        form = PROMPTS["nq" if name.startswith("bare") else name.partition("-")[0]]
        prompts = [tokenizer(form.prompt(record["question"]))["input_ids"] for record in records]
        newlines = ["\n" in text for text in tokenizer.batch_decode([[i] for i in range(len(tokenizer))])]
        stop[: len(newlines)] |= torch.tensor(newlines)
        return cls(name, records, prompts, stop, SHORT)

    def skip_finished(self, folder: Path) -> None:
        """Go on behind the parts that an earlier run wrote."""
        while (path := self.path(folder)).with_suffix(".npz").exists():
            self.done += path.with_suffix(".jsonl").read_bytes().count(b"\n")
            self.part += 1

    def path(self, folder: Path) -> Path:
        """Where the next part goes, without its ending."""
        return folder / f"{self.name}-{self.part:04d}"


def chat_prompt(tokenizer: Any, question: str) -> list[int]:
    """A question as a user's message, in the model's own template."""
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
    )
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def batches(prompts: list[list[int]], size: int) -> Iterator[list[int]]:
    """Numbers of the prompts, those of like lengths together."""
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def record_part(watched: WatchedRequest, task: Task, size: int, folder: Path, tokenizer: Any) -> None:
    """The next questions of a task, answered and written."""
    each = PART[task.longest]
    records, prompts = (things[task.done : task.done + each] for things in (task.records, task.prompts))
    skip = shared_prefix(task.prompts)
    read = DynamicCache(config=watched.model.config)
    ids = torch.tensor([prompts[0][:skip]])
    with torch.no_grad():
        watched.read(ids, torch.ones_like(ids), torch.arange(skip)[None], read)
    found: dict[int, Recording] = {}
    for batch in batches(prompts, size):
        answers = answers_to(watched, [prompts[i] for i in batch], read, skip, task.stop, task.longest)
        found |= dict(zip(batch, answers, strict=True))
    write_part(task.path(folder), records, [found[i] for i in range(len(records))], tokenizer)
    task.done += len(records)
    task.part += 1


def write_part(path: Path, records: list[dict[str, Any]], answers: list[Recording], tokenizer: Any) -> None:
    """PATH.jsonl with texts and ids, then PATH.npz: its presence says that the part is whole."""
    lines = []
    for record, answer in zip(records, answers, strict=True):
        text = tokenizer.decode(answer.ids, skip_special_tokens=True)
        lines.append(record | {"ids": answer.ids, "text": text, "cut": not answer.ended})
    path.with_suffix(".jsonl").write_text(
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8"
    )
    arrays = {name: np.concatenate([np.stack(a.steps[name]) for a in answers]) for name in answers[0].steps}
    arrays |= {"lengths": np.array([len(a.ids) for a in answers]), "state": np.stack([a.state for a in answers])}
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, **arrays)
    partial.replace(path.with_suffix(".npz"))


def deadline(clock: str | None) -> float:
    """The next time that the clock shows so, as seconds; never, without one."""
    if clock is None:
        return float("inf")
    now = datetime.datetime.now()
    hour, minute = map(int, clock.split(":"))
    then = now.replace(hour=hour, minute=minute, second=0)
    return (then if then > now else then + datetime.timedelta(days=1)).timestamp()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--body", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--until", help="HH:MM after which no further part is begun.")
    options = parser.parse_args()
    until = deadline(options.until)
    torch.set_num_threads(options.threads)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    watched = WatchedRequest.load(options.model, getattr(torch, options.body))
    config = watched.model.generation_config
    named = tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<end_of_turn>"])
    own = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    ends = sorted({*own, tokenizer.eos_token_id, *named} - {None, tokenizer.unk_token_id})
    size = watched.model.lm_head.vocabulary
    options.out.mkdir(parents=True, exist_ok=True)
    tasks = []
    for given in options.tasks:
        name, _, path = given.partition("=")
        tasks.append(Task.read(name, Path(path), tokenizer, size, ends))
        tasks[-1].skip_finished(options.out)
    while waiting := [task for task in tasks if task.done < len(task.records)]:
        for task in waiting:
            if time.time() > until:
                return
            started = time.time()
            record_part(watched, task, options.batch, options.out, tokenizer)
            print(f"{task.name}: {task.done:,} of {len(task.records):,}, {time.time() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
