"""The notebooks run from top to bottom, show what their text says, and are stored as they should be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

from tests.support.notebooks import FOLDER, code, executed, lines_of_code, read

ALL = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


@pytest.fixture(autouse=True)
def our_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The kernel imports the package under test, and leaves nothing behind."""
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parents[1]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IMPERFED_DATA", str(tmp_path))


def test_the_notebooks_are_stored_without_outputs() -> None:
    assert {"candidate_labels", "own_model_and_loss"} <= {*ALL}
    for name in ALL:
        for cell in read(name).cells:
            assert cell.get("outputs", []) == []
            assert cell.get("execution_count") is None


def test_from_candidate_labels_to_predictions_in_under_twenty_lines(tmp_path: Path) -> None:
    assert lines_of_code(read("candidate_labels")) < 20
    table, about, trained, resolved, predicted = executed("candidate_labels", tmp_path)
    assert "candidates" in table
    assert "imperfed.run('pfedpll', data, label='candidates'" in about
    begun, *rounds, _ = [line for line in trained.splitlines() if not line.startswith("guessed: ")]
    assert begun.startswith("pfedpll on data: 3 sites of ")
    assert [line.partition(":")[0] for line in rounds] == [f"round {k}/6" for k in range(1, 7)]
    assert percent(trained, "accuracy over the clinics: ") > 80
    assert percent(resolved, "candidate sets resolved, ") > 85
    assert "predicted" in predicted


def test_an_own_model_and_an_own_loss(tmp_path: Path) -> None:
    assert "imperfed." not in "".join(re.findall(r"^from .*|^import .*", code(read("own_model_and_loss")), re.M))
    *_, trained, measured = executed("own_model_and_loss", tmp_path)
    assert "fedavg on data: 3 sites" in trained
    assert "GeneralisedCrossEntropy" in trained
    usual, ours = (percent(line, ": ") for line in measured.splitlines())
    assert min(usual, ours) > 80


def percent(text: str, after: str) -> float:
    found = re.search(re.escape(after) + r"([\d.]+)%", text)
    assert found is not None, text
    return float(found[1])
