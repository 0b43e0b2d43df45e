"""What `mean_token_entropy` costs a generation of a real model, in processor time.

    python research/experiments/methods/entropy_cost.py MODEL [PAIRS]

Greedy answers of 16 tokens, one thread. The same prompts are answered without the entropy and with it, one right after the other, in an
order that changes. Processor time and not the clock is compared, so that other programs disturb it less. Printed are the median ratio of the
pairs and its 95 % interval (a bootstrap over pairs).
"""

from __future__ import annotations

import os
import statistics
import sys
import time

import numpy as np
import torch

import semtoken as st

TOKENS = 16
METHODS: dict[str, tuple[str, ...]] = {"scores": (), "scores and entropy": ("mean_token_entropy",)}


def seconds(stc: st.ScoredModel, prompts: list[str]) -> float:
    """Processor time of one generation."""
    start = time.process_time()
    stc.generate(prompts, TOKENS, batch_size=len(prompts))
    return time.process_time() - start


def main() -> None:
    """The command."""
    torch.set_num_threads(1)
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    loaded = {name: st.ScoredModel.from_pretrained(sys.argv[1], methods=methods) for name, methods in METHODS.items()}
    plain, entropy = loaded.values()
    for batch in (1, 8):
        prompts = [f"Write a long story about the number {n}. Once upon a time" for n in range(11, 11 + batch)]
        ratios, taken = [], []
        for pair in range(-1, pairs):
            order = (plain, entropy) if pair % 2 else (entropy, plain)
            found = {id(stc): seconds(stc, prompts) for stc in order}
            if pair >= 0:  # the first one warms everything up
                ratios.append(found[id(entropy)] / found[id(plain)])
                taken.append(found[id(plain)])
        drawn = np.random.default_rng(0).choice(ratios, (5000, pairs))
        low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
        print(
            f"batch {batch}: {statistics.median(taken):.2f} s with scores; with the entropy "
            f"{statistics.median(ratios):.3f} [{low:.3f}, {high:.3f}] times that, {pairs} pairs, "
            f"load {os.getloadavg()[0]:.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
