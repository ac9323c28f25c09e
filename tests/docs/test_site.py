"""The site works from its files: search without a server, nothing from elsewhere, on a telephone as well."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from tests.support.browser import browser, installed
from tools import offline

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of two pages, made as the whole one is."""
    docs, made = tmp_path_factory.mktemp("docs"), tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs" / "assets", docs / "assets")
    (docs / "index.md").write_text("# First\n\nNothing to be found here.\n")
    (docs / "second.md").write_text(f"# Second\n\nA platypus.\n\n{'| wide ' * 40}|\n{'| --- ' * 40}|\n")
    config = load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(docs), site_dir=str(made), strict=True)
    config.nav = None
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    return made


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    assert not [*offline.elsewhere(site)]
    assert offline.main(site) == 0


@pytest.mark.parametrize(
    "loads",
    [
        '<script src="https://cdn.example.org/a.js"></script>',
        "<script async src=//cdn.example.org/a.js></script>",
        '<link rel="stylesheet" href="https://fonts.example.org/css">',
        '<img alt="x" src="http://example.org/a.png">',
        "<style>@import url(https://example.org/a.css);</style>",
    ],
)
def test_what_comes_from_elsewhere_is_found(loads: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(f"<html>{loads}</html>")
    assert len([*offline.elsewhere(tmp_path)]) == 1
    assert offline.main(tmp_path) == 1


def test_links_to_follow_are_no_loads(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        '<a href="https://example.org">there</a><link rel="canonical" href="https://a">'
    )
    assert offline.main(tmp_path) == 0


@pytest.mark.skipif(installed() is None, reason="no browser on this machine")
def test_search_works_from_files_and_pages_fit_a_telephone(site: Path) -> None:
    with browser() as tab:
        tab.open(f"{(site / 'index.html').as_uri()}?q=platypus")
        tab.until("document.querySelector('.md-search-result__item a[href*=\"second.html\"]') !== null")
        tab.open((site / "second.html").as_uri(), width=400)
        assert tab.value("document.documentElement.scrollWidth") <= 400
        assert not [line for line in tab.said if "rror" in line]
