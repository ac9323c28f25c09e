"""The examples of docs/python.md, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"


@pytest.mark.usefixtures("no_page")
def test_the_example_resolves_labels_and_predicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example, own_parts = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(example.splitlines()) < 20
    names: dict[str, object] = {"__name__": "page"}
    exec(example, names)
    assert (names["resolved"]["suggested"].dropna() == names["breed"]).mean() > 0.8  # type: ignore[index]
    assert names["predicted"].column_names == ["index", "id", "cat", "dog", "fox", "predicted"]  # type: ignore[attr-defined]
    exec(compile(own_parts, "page", "exec", dont_inherit=True), names)
    assert names["result"].summary.title == "fedprox+page:Smoothed"  # type: ignore[attr-defined]
