"""The page about one run, `report.html`, made only from the files in the folder of the run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from imperfed.report.content import content
from imperfed.report.run_files import read_run
from imperfed.results.folder import RunFolder

__all__ = ["rendered", "write_report"]


def write_report(folder: RunFolder) -> Path:
    """Write `report.html` for a finished run, or for what exists of an unfinished one; return its path."""
    return folder.write("report.html", rendered("imperfed.report", "page.html", content(read_run(folder))))


def rendered(package: str, template: str, shown: Mapping[str, Any]) -> str:
    """Return a page from its template in a package, which may build on those of this one; all pages have one style."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    own = resources.files("imperfed.report")

    def read(name: str) -> str:
        there = resources.files(package).joinpath(name)
        return (there if there.is_file() else own.joinpath(name)).read_text(encoding="utf-8")

    style, loader = own.joinpath("style.css").read_text(encoding="utf-8"), FunctionLoader(read)
    jinja = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    jinja.filters["anchor"] = anchor
    return jinja.get_template(template).render(style=Markup(style.rstrip("\n")), **shown)


def anchor(heading: str) -> str:
    """Return the address of a heading on its page."""
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
