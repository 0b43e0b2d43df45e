"""Put the addresses of the project where they are needed, from one variable.

    python scripts/project_urls.py [ADDRESS]      such as https://example.org/semtoken/semtoken

Writes `[project.urls]` of pyproject.toml, `repository-code` of CITATION.cff, and makes the relative links of README.md
full ones, since the package index shows no relative ones. Run it again after the address has changed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

REPOSITORY = ""
"""Address of the repository; the one place where it stands."""
ROOT = Path(__file__).resolve().parent.parent


def project_urls(text: str, address: str) -> str:
    """pyproject.toml with the addresses of the project."""
    urls = {
        "Paper": "https://arxiv.org/abs/2603.20161",
        "Repository": address,
        "Issues": f"{address}/issues",
        "Changelog": f"{address}/blob/main/CHANGELOG.md",
    }
    block = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    return re.sub(r"(?m)^\[project\.urls\]\n(?:\w+ = .*\n)*", f"[project.urls]\n{block}", text)


def citation(text: str, address: str) -> str:
    """CITATION.cff with the address of the repository."""
    without = re.sub(r"(?m)^repository-code: .*\n", "", text)
    return re.sub(r"(?m)^(license: .*\n)", rf"\1repository-code: {address}\n", without, count=1)


def full_links(text: str, address: str) -> str:
    """README with full links and pictures; what is full already stays, unless it has a former address."""

    def relative(link: re.Match[str]) -> str:
        return f"]({link[1]}" if (ROOT / link[1]).exists() else link[0]

    text = re.sub(r"\]\(https://[^)\s]+?/(?:blob|raw)/main/([^)#\s]+)", relative, text)
    raw = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)([^)]+)\)", rf"\1{address}/raw/main/\2)", text)
    return re.sub(r"((?<!!)\[[^\]!]*\]\()(?!https?:|#|mailto:)([^)]+)\)", rf"\1{address}/blob/main/\2)", raw)


def main() -> None:
    """Rewrite the three files."""
    address = (sys.argv[1] if len(sys.argv) > 1 else REPOSITORY).rstrip("/")
    if not address.startswith("https://"):
        sys.exit("Give the address of the repository, or put it into REPOSITORY in this file: it begins with https://")
    for name, rewrite in {"pyproject.toml": project_urls, "CITATION.cff": citation, "README.md": full_links}.items():
        path = ROOT / name
        path.write_text(rewrite(path.read_text(encoding="utf-8"), address), encoding="utf-8")
        print(f"{name}: addresses under {address}")


if __name__ == "__main__":
    main()
