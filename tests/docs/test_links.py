"""Links of the pages that `make docs` does not see: those outside `docs`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(
        path
        for folder in ("benchmarks", "deploy", "examples", "studies")
        for path in sorted((ROOT / folder).glob("*.md"))
    ),
]
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def headings(page: Path) -> set[str]:
    """Return what links to the headings of a page end in."""
    found = re.findall(r"^#+ (.*)", CODE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in found}


def leads_nowhere(page: Path) -> list[str]:
    """Return the links of a page to files or headings that are not there."""
    nowhere = []
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", CODE.sub("", page.read_text(encoding="utf-8"))):
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (heading and target.suffix == ".md" and heading not in headings(target)):
            nowhere.append(link)
    return nowhere


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert leads_nowhere(page) == []


def test_links_to_nowhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# One, two\n")
    page = tmp_path / "a.md"
    page.write_text("# A\n[x](b.md#one-two) [y](#a) [z](https://example.org)\n\n[n](c.md) [m](b.md#three) [o](#b)\n")
    assert leads_nowhere(page) == ["c.md", "b.md#three", "#b"]
