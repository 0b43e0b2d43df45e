"""The table of hosts, and what people see who have not installed one."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from pathlib import Path

import numpy
import pytest

from semtoken.errors import MissingExtra
from semtoken.integrations import hosts
from semtoken.integrations.hosts import HOSTS, Host, require_host, version_of
from tests.rows import each

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "integrations"


@each("host", HOSTS.values(), ids=lambda host: host.name)
def test_every_host_has_a_module_a_page_and_a_live_test(host: Host) -> None:
    assert (ROOT / "src/semtoken/integrations" / f"{host.name}.py").is_file()
    assert (ROOT / "tests/integrations/live" / f"test_{host.name}.py").is_file()
    page = (PAGES / f"{host.name}.md").read_text(encoding="utf-8")
    assert host.requirement in page, "the page names the versions"
    row = f"| [{host.distribution}]({host.name}.md) | {host.lowest} to below {host.below} | {host.tested} |"
    assert row in (PAGES / "README.md").read_text(encoding="utf-8")
    assert version_of(host.lowest) <= version_of(host.tested) < version_of(host.below)


@pytest.mark.parametrize("host", HOSTS.values(), ids=lambda host: host.name)
def test_a_host_that_is_missing_is_named_with_its_install_line(host: Host) -> None:
    if importlib.util.find_spec(host.module.partition(".")[0]) is not None:
        pytest.skip(f"{host.distribution} is installed here")
    with pytest.raises(MissingExtra) as caught:
        importlib.import_module(f"semtoken.integrations.{host.name}")
    assert f"pip install '{host.requirement}'" in str(caught.value)


@pytest.mark.parametrize(("lowest", "below", "outcome"), [("1", "999", "ok"), ("998", "999", "old"), ("0", "1", "new")])
def test_versions_outside_the_window(lowest: str, below: str, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hosts.HOSTS, "numpy", Host("numpy", "numpy", "numpy", lowest, below, numpy.__version__))
    if outcome == "old":
        with pytest.raises(MissingExtra, match=rf"needs numpy 998 or later, and {numpy.__version__} is installed"):
            require_host("numpy")
    elif outcome == "new":
        with pytest.warns(UserWarning, match="tried with numpy below 1"):
            require_host("numpy")
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            require_host("numpy")


def test_another_missing_module_is_not_taken_for_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_host.py").write_text("import nowhere_to_be_found\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(hosts.HOSTS, "broken", Host("broken", "broken_host", "broken-host", "1", "2", "1"))
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found") as caught:
        require_host("broken")
    assert not isinstance(caught.value, MissingExtra)
