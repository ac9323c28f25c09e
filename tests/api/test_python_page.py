"""The example of docs/python.md, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"


@pytest.mark.usefixtures("no_page")
def test_the_example_resolves_labels_and_predicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    assert len(example.splitlines()) < 20
    names: dict[str, object] = {}
    exec(example, names)
    assert (names["resolved"]["suggested"].dropna() == names["breed"]).mean() > 0.8  # type: ignore[index]
    assert names["predicted"].column_names == ["index", "id", "cat", "dog", "fox", "predicted"]  # type: ignore[attr-defined]
