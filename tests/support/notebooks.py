"""Notebooks as a reader runs them: every cell in a kernel of its own, from top to bottom."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"


def read(name: str) -> Any:
    """The notebook of this name, valid as such."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    return notebook


def code(notebook: Any) -> str:
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")


def lines_of_code(notebook: Any) -> int:
    """The number of lines with code on them: no blank lines, comments or docstrings."""
    tree = ast.parse(code(notebook))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    notes = {
        line
        for node in ast.walk(tree)
        if isinstance(node, documented) and ast.get_docstring(node) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    written = {i for i, line in enumerate(code(notebook).splitlines(), 1) if line.strip() and line.strip()[0] != "#"}
    return len(written - notes)


def executed(name: str, folder: Path) -> list[str]:
    """The text that each code cell of a notebook shows, run in this folder."""
    notebook = read(name)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    return [_shown(cell) for cell in notebook.cells if cell.cell_type == "code"]


def _shown(cell: Any) -> str:
    parts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return "".join(parts)
