"""Kills of `serve` and `proxy` with a journal, while clients wait for replies; entries are counted against replies.

    python -m tests.web.journal_kills --kills 25 --command proxy --database sqlite [--seed 1]

Each round starts the command on the same journal, has clients ask under tags that are used once, and kills it (-9) at a
random moment. At the end every reply that a client has read to its end must have exactly one entry, and no request may
have two; a request whose reply was cut off may have one or none.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from semtoken.guarantees.journal.store import Journal
from semtoken.guarantees.journal.writer import adopt_left_behind
from tests.guarantees.databases import postgres
from tests.web.servers import wait_until
from tests.web.test_journal_servers import PLACES, started

CLIENTS = 8
PATIENCE = 600
"""Seconds in which the command must listen, and a first reply come, on a busy machine."""
LONGEST = 3.0
"""Seconds between the first reply of a round and its kill, at most."""


@dataclass
class Counted:
    """The answers that clients have seen over all rounds."""

    asked: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    """Tags of the requests whose replies were read to their end."""


def ask_until_killed(url: str, tags: Iterator[int], counted: Counted, killed: threading.Event) -> None:
    """One client: request after request, every second one as a stream."""
    with httpx.Client(timeout=PATIENCE) as client:
        while not killed.is_set():
            number = next(tags)
            tag = f"tag-{number}"
            question = [{"role": "user", "content": f"What is the capital of {PLACES[number % len(PLACES)]}?"}]
            body = {"model": "almanac", "messages": question, "user": tag, "stream": number % 2 == 0, "max_tokens": 8}
            counted.asked.append(tag)
            try:
                reply = client.post(f"{url}/v1/chat/completions", json=body)
            except httpx.HTTPError:
                continue
            whole = reply.text.rstrip().endswith("[DONE]") if body["stream"] else "choices" in json.loads(reply.text)
            if reply.status_code == 200 and whole:
                counted.read.append(tag)


@contextmanager
def upstream_of(command: str) -> Iterator[tuple[str, ...]]:
    """The arguments of the command; a proxy gets a server of its own for all rounds."""
    if command == "serve":
        yield ("serve", "--model", "almanac")
        return
    with started("serve", "--model", "almanac", within=PATIENCE) as (url, _, _):
        yield ("proxy", "--base-url", url, "--tokenizer", "almanac")


def campaign(command: str, url: str, spool: Path, kills: int, seed: int) -> Counted:
    """Kill the command so many times on one journal; afterwards all that was left behind is in the journal."""
    chance, counted, tags = random.Random(seed), Counted(), itertools.count()
    with upstream_of(command) as arguments:
        for number in range(kills):
            keep = ("--journal", url, "--journal.spool", str(spool))
            with started(*arguments, *keep, within=PATIENCE) as (address, process, _):
                killed, before = threading.Event(), len(counted.read)
                about = (address, tags, counted, killed)
                clients = [threading.Thread(target=ask_until_killed, args=about) for _ in range(CLIENTS)]
                for client in clients:
                    client.start()
                try:
                    wait_until(lambda: len(counted.read) > before, PATIENCE)  # noqa: B023 - called at once
                    time.sleep(chance.uniform(0, LONGEST))
                finally:
                    killed.set()
                    process.kill()
                    for client in clients:
                        client.join()
            print(f"kill {number + 1}: {len(counted.read)} replies read of {len(counted.asked)}", flush=True)
    journal = Journal.open(url)
    adopt_left_behind(journal, spool)
    journal.close()
    return counted


def wrong_with(url: str, counted: Counted) -> list[str]:
    """The answers that were lost or doubled."""
    journal = Journal.open(url)
    there = Counter(row["person"] for row in journal.entries())
    journal.close()
    lost = [f"{tag} was read and has no entry" for tag in counted.read if not there[tag]]
    doubled = [f"{tag} has {n} entries" for tag, n in there.items() if n > 1]
    return lost + doubled + [f"{tag} was never asked" for tag in there if tag not in set(counted.asked)]


def main() -> int:
    """Run a campaign; 1 where anything was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--command", choices=("serve", "proxy"), default="proxy")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        url = str(folder / "journal.db")
        if given.database == "postgresql":
            url = stack.enter_context(postgres()).database()
        counted = campaign(given.command, url, folder / "spool", given.kills, given.seed)
        wrong = wrong_with(url, counted)
        journal = Journal.open(url)
        n = sum(1 for _ in journal.entries())
        journal.close()
    print(
        f"{given.kills} kills of {given.command} on {given.database} with seed {given.seed}: {len(counted.asked)} "
        f"requests, {len(counted.read)} replies read to their end, {n} entries; {len(wrong)} lost or doubled"
    )
    print("\n".join(wrong))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
