"""What `semtoken proxy` says when it starts, against what it then answers."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request

import pytest


@pytest.mark.parametrize("options", [(), ("--server.page=false",)])
def test_the_page_is_named_where_there_is_one(options: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "semtoken", "proxy", "--base-url", "http://127.0.0.1:9", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as proxy:
        try:
            said = []
            for line in proxy.stdout or ():
                said.append(line)
                if "health:" in line:
                    break
            pages = re.findall(r"a page to ask on: (http://\S+)", "".join(said))
            assert len(pages) == (0 if options else 1), said
            for address in pages:
                with urllib.request.urlopen(address) as reply:  # an address of this machine
                    assert reply.headers.get_content_type() == "text/html" and b"semtoken" in reply.read()
        finally:
            proxy.terminate()
