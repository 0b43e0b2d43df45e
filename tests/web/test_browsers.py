"""Missing tools are a failure where browser tests must run."""

from __future__ import annotations

import pytest

from tests import browsers


@pytest.mark.parametrize(("value", "outcome"), [("1", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_what_is_missing_fails_or_skips(
    value: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEMTOKEN_TEST_BROWSER", value)
    with pytest.raises(outcome, match="no_such_module is not installed"):
        browsers.needed("no_such_module.part")
    pytest.importorskip("playwright")
    monkeypatch.setattr(browsers, "CHROMIUM", None)
    with pytest.raises(outcome, match="apt-get install chromium"), browsers.chromium():
        pass
