"""The page about one run, `report.html`, made only from the files in the folder of the run."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from imperfed.report.content import content
from imperfed.report.run_files import read_run
from imperfed.results.folder import RunFolder

__all__ = ["write_report"]


def write_report(folder: RunFolder) -> Path:
    """Write `report.html` for a finished run, or for what exists of an unfinished one; return its path."""
    from jinja2 import Environment, StrictUndefined

    page = resources.files("imperfed.report").joinpath("page.html").read_text(encoding="utf-8")
    jinja = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return folder.write("report.html", jinja.from_string(page).render(content(read_run(folder))))
