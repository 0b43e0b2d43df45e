"""How often does the watch say that scores have moved where a few questions are asked again and again?

    python research/experiments/watch/repeats.py [--runs 200] > build/repeats.csv

A calibrator has 300 labeled answers to different questions. The newest 2,000 answers are to a number of other
questions of the same kind, some asked often and some seldom (shares drawn from a flat Dirichlet distribution); scores
are exponential. In some worlds the new ones are shifted by half a standard deviation. `each answer` compares
all 2,000 as if they were independent, `one of each question` is what `semtoken audit` does; with fewer than 12
different questions it says nothing, and these rows show why.
"""

from __future__ import annotations

import argparse
import csv
import sys

import numpy as np

from semtoken.guarantees.drift import drift
from semtoken.guarantees.measures import wilson

LABELED, NEWEST, SCALE = 300, 2_000, 0.5
QUESTIONS = {0.0: (1, 3, 5, 8, 12, 20, 60, 200, 2_000), 0.5: (8, 12, 60, 200, 2_000)}
"""How many different ones, by the shift of their scores in standard deviations."""
FIELDS = ("shift", "questions", "compared", "runs", "said_moved", "share", "low", "high")


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    table = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    table.writeheader()
    for shift, numbers in QUESTIONS.items():
        for questions in numbers:
            said = {"each answer": 0, "one of each question": 0}
            for run in range(runs):
                generator = np.random.default_rng([questions, run])
                labeled = generator.exponential(SCALE, LABELED)
                scores = generator.exponential(SCALE, questions) + shift * SCALE
                asked = np.arange(NEWEST)
                if questions < NEWEST:
                    asked = generator.choice(questions, NEWEST, p=generator.dirichlet(np.ones(questions)))
                said["each answer"] += drift(labeled, scores[asked]).low > 0
                said["one of each question"] += drift(labeled, scores[np.unique(asked)]).low > 0
            for compared, count in said.items():
                low, high = wilson(count, runs)
                about = {"shift": shift, "questions": questions, "compared": compared, "runs": runs}
                shares = {"share": count / runs, "low": round(low, 4), "high": round(high, 4)}
                table.writerow({**about, "said_moved": int(count), **shares})
            sys.stdout.flush()


if __name__ == "__main__":
    main()
