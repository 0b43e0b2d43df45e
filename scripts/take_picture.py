"""Take the picture of the documentation's first page: the page that `semtoken check` writes of the recorded invoices.

python scripts/take_picture.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "extraction"
TARGET = ROOT / "docs" / "page-fields.png"
ROW = 3
"""The row that is opened: a date whose days compete."""


def main() -> None:
    """Make the page, open it in Chromium, and keep what is seen."""
    with tempfile.TemporaryDirectory() as folder:
        page_file = Path(folder) / "fields.html"
        given = ["replies.jsonl", "--questions", "invoices.jsonl", "--schema", "invoice.schema.json"]
        command = [sys.executable, "-m", "semtoken", "check", *given, "-o", str(page_file)]
        subprocess.run(command, cwd=EXAMPLE, check=True, stdout=subprocess.DEVNULL)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1180, "height": 820})
            page.goto(page_file.as_uri())
            page.locator("tbody tr:not(.inside)").nth(ROW).click()
            page.screenshot(path=TARGET)


if __name__ == "__main__":
    main()
