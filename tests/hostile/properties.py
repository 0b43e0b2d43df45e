"""All property tests of the suite on examples that nobody has tried yet: the suite itself always takes the same."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.hostile.outcomes import Outcome


def attack(seed: int) -> Outcome:
    """Run every test that hypothesis drives, with the profile `random` and a seed."""
    outcome = Outcome("properties", "property tests on new examples (profile random of tests/conftest.py)")
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "-m", "hypothesis and not slow", "tests"]
    command += ["--hypothesis-profile", "random", "--hypothesis-seed", str(seed)]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", done.stdout)}
    outcome.tried = sum(counts.values())
    outcome.failures += re.findall(r"^(?:FAILED|ERROR) .*$", done.stdout, re.MULTILINE)
    if done.returncode and not outcome.failures:
        outcome.failures.append(done.stdout[-2000:] + done.stderr[-2000:])
    return outcome
