"""The figures on the pages of results are those of the result files: none is changed by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from imperfed.experiments.reproduction.study_cells import StudyCell, StudyCells, digest, kept, results_file
from imperfed.experiments.study import studies
from studies import drawings, pages
from studies.imported import imported


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.stem)
def test_a_page_has_the_figures_of_the_result_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert pages.filled(text) == text, "write it again: python -m studies.pages"
    assert pages.BLOCK.search(text)
    opened = re.findall(r"<!-- (?!end)(\w+)", text)
    assert len(opened) == len(pages.BLOCK.findall(text)) == text.count("<!-- end -->")


def test_a_figure_that_is_changed_by_hand_is_found_and_put_back() -> None:
    page = next(path for path in pages.PAGES if path.stem == "results-fedalc").read_text(encoding="utf-8")
    assert pages.filled(page.replace("59.6 ± 1.8 | 36.3", "69.6 ± 1.8 | 36.3")) == page


def test_a_table_says_what_its_columns_stand_for() -> None:
    assert "mlp: a perceptron with one hidden layer of 128" in pages.study_table("fedpsl/table-2 mlp")
    assert "a perceptron" not in pages.study_table("fedpsl/table-2 chestxray14")
    assert "birdsong K = 20, birdsong K = 80: BirdSong" in pages.study_table(
        "pfedpll/figure-4.5 birdsong K = 20; birdsong K = 80"
    )


def test_drawings_are_those_of_the_result_files_and_are_seen() -> None:
    assert [study.name for study in drawings.stale()] == [], "draw them again: python -m studies.pages"
    wanted = {drawings.file_of(study) for study in studies().values() if drawings.source_of(study)}
    assert wanted == set(drawings.FOLDER.iterdir())
    text = "".join(page.read_text(encoding="utf-8") for page in pages.PAGES)
    assert [path.name for path in sorted(wanted) if f"({path.parent.name}/{path.name})" not in text] == []


def test_a_drawing_of_other_results_is_found_and_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = studies()["fedalc/figure-6b"]
    monkeypatch.setattr(drawings, "FOLDER", tmp_path)
    assert study in drawings.stale()
    drawings.draw_again(study)
    assert study not in drawings.stale()
    text = drawings.file_of(study).read_text(encoding="utf-8")
    assert all(f">{row.name}<" in text for row in study.rows)
    assert ">round<" in text
    before = kept(study)
    changed = replace(next(iter(before.cells.values())), curve=[[1, 0.5]])
    monkeypatch.setattr(drawings, "kept", lambda study: before.with_all([changed]))
    assert study in drawings.stale()


def test_every_paper_has_a_list_of_its_tables_on_some_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in pages.PAGES)
    for paper in {name.partition("/")[0] for name in studies()}:
        assert f"<!-- standing {paper} -->" in text
    assert all(f"| `{name}` |" in text for name in studies())


def test_results_of_tables_with_programs_of_their_own_are_those_of_the_programs() -> None:
    names = []
    for cells in imported():
        assert results_file(cells.name).exists()
        assert kept(studies()[cells.name]) == StudyCells.read(cells.name, results_file(cells.name))
        found = {key: {n: round(v, 6) for n, v in cell.figures.items()} for key, cell in cells.cells.items()}
        assert {key: dict(cell.figures) for key, cell in kept(studies()[cells.name]).cells.items()} == found
        names.append(cells.name)
    assert sorted(names) == sorted(name for name, study in studies().items() if study.program)


def test_only_results_with_the_settings_of_the_study_are_taken(tmp_path: Path) -> None:
    study = studies()["pfedpll/table-4.2"]
    row, column = study.rows[0], study.column("birdsong")
    good = StudyCell(row.name, column.name, 77, digest(study, row, column), {"mean": 0.5})
    tried = StudyCell(row.name, column.name, 78, digest(study, row, column, {"rounds": 2}), {"mean": 0.4})
    StudyCells(study.name).with_all([good, tried]).write(tmp_path / "reproduce" / study.name / "results.json")
    (found,) = pages.taken(tmp_path)
    assert good.key in found.cells
    assert tried.key not in found.cells
    assert kept(study).cells.items() <= found.cells.items()
