"""Make the tutorials from their sources: `python tools/tutorials.py [NAME ...]`, all of them without a name.

`examples/tutorials/NAME.md` is text with blocks of Python. Each block becomes a cell of `docs/tutorials/NAME.ipynb`,
which is run from top to bottom in an empty folder, and the page `docs/tutorials/NAME.md` shows text, code and what came
out. The first line of a block may say what its picture shows: ```python alt="..."
"""

from __future__ import annotations

import base64
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

ROOT = Path(__file__).resolve().parents[1]
SOURCES, PAGES = ROOT / "examples" / "tutorials", ROOT / "docs" / "tutorials"
BLOCK = re.compile(r'^```python(?: alt="(?P<alt>[^"]*)")?\n(?P<code>.*?)^```\n', re.DOTALL | re.MULTILINE)
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def names() -> list[str]:
    """Return the names of all tutorials."""
    return sorted(path.stem for path in SOURCES.glob("*.md"))


def notebook(source: str) -> Any:
    """Return the notebook of a source, not yet run."""
    cells, at = [], 0
    for block in BLOCK.finditer(source):
        if text := source[at : block.start()].strip():
            cells.append(new_markdown_cell(text))
        cells.append(new_code_cell(block["code"].strip(), metadata={"alt": block["alt"]} if block["alt"] else {}))
        at = block.end()
    if text := source[at:].strip():
        cells.append(new_markdown_cell(text))
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"  # the same in every making
    return new_notebook(cells=cells, metadata={"kernelspec": KERNEL})


def run(made: Any, folder: Path) -> None:
    """Run a notebook in a folder; its cells then hold what came out."""
    from nbclient import NotebookClient

    os.environ["PYTHONPATH"] = str(ROOT)  # this checkout's package, whatever is installed
    NotebookClient(made, timeout=300, coalesce_streams=True, resources={"metadata": {"path": str(folder)}}).execute()
    for cell in made.cells:
        cell.metadata.pop("execution", None)  # when it ran


def page(name: str, made: Any) -> tuple[str, dict[str, bytes]]:
    """Return the page of a notebook that was run, and its pictures by file name."""
    parts, pictures = [], dict[str, bytes]()
    for cell in made.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                file = f"{name}-{len(pictures) + 1}.png"
                pictures[file] = base64.b64decode(data["image/png"])
                parts.append(f"![{cell.metadata.get('alt', '')}]({file})")
            else:
                parts += shown(output, data)
    title, _, rest = parts[0].partition("\n")
    download = f"[The same as a notebook]({name}.ipynb){{ .md-button download }}"
    return "\n\n".join([title, download, rest.strip(), *parts[1:]]) + "\n", pictures


def shown(output: Any, data: dict[str, str]) -> Iterator[str]:
    """Yield what a page shows of an output: a table as such, anything else as text."""
    if "text/html" in data:
        table = re.sub(r"<style.*?</style>", "", data["text/html"], flags=re.DOTALL)
        lines = (line.strip() for line in re.sub(r"<(table|tr|div)\b[^>]*>", r"<\1>", table).splitlines())
        yield "\n".join(line for line in lines if line)
    else:
        text = output.get("text") or data.get("text/plain", "")
        yield f"``` {{ .text .said }}\n{text.rstrip()}\n```"


def make(name: str) -> None:
    """Write the notebook, the page and the pictures of one tutorial."""
    made = notebook((SOURCES / f"{name}.md").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        run(made, Path(folder))
    PAGES.mkdir(parents=True, exist_ok=True)
    nbformat.write(made, PAGES / f"{name}.ipynb")
    text, pictures = page(name, made)
    (PAGES / f"{name}.md").write_text(text, encoding="utf-8")
    for old in PAGES.glob(f"{name}-?.png"):
        old.unlink()
    for file, picture in pictures.items():
        (PAGES / file).write_bytes(picture)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or names():
        make(chosen)
        print(chosen)
