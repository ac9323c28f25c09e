"""Which classes a site annotates, and what it then knows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from imperfed.core.errors import DataError, UsageError
from imperfed.data.corruption.annotations import annotation_patterns
from imperfed.data.corruption.annotations.auto import AutoAnnotation
from imperfed.data.corruption.annotations.base import AnnotationPattern
from imperfed.data.corruption.annotations.drawn import DrawnAnnotation
from imperfed.data.corruption.annotations.fedpsl_tables import TableOne, TableThree
from imperfed.data.corruption.annotations.given_labels import GivenAnnotation
from imperfed.data.corruption.annotations.listed import ListedAnnotation
from imperfed.data.dataset import Dataset
from imperfed.data.labelling import LabelConfig, annotate, keep_wanted_classes

CLASSES = ("cough", "fever", "rash", "gout", "flu")


def data(y: Tensor | None = None, classes: tuple[str, ...] = CLASSES) -> Dataset:
    """Twelve rows of several classes each."""
    draw = torch.Generator().manual_seed(0)
    if y is None:
        y = torch.randint(0, 2, (12, len(classes)), generator=draw).to(torch.int8)
    return Dataset("ward", torch.zeros(len(y), 3), y, None, classes, torch.zeros(4, 3), y[:4].clone())


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def listed(lists: str, classes: str = "") -> LabelConfig:
    return LabelConfig(annotates=ListedAnnotation(lists), classes=classes)


SITES = (torch.arange(0, 5), torch.arange(5, 12))


def test_a_site_knows_the_truth_about_its_classes_and_nothing_else() -> None:
    ward = data()
    labels, facts = annotate(ward, listed("cough, rash; rash, flu"), SITES, rng())
    assert facts == {"labels": "annotated", "annotates": "cough, rash; rash, flu"}
    assert ward.y is not None
    for rows, known in zip(SITES, ([0, 2], [2, 4]), strict=True):
        unknown = [c for c in range(5) if c not in known]
        assert torch.equal(labels.values[rows][:, known], ward.y[rows][:, known])
        assert (labels.values[rows][:, unknown] == -1).all()
    labels.check("ward")


@pytest.mark.parametrize("sites", [1, 2, 3, 9])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_drawn_masks_leave_no_site_and_no_class_out(sites: int, share: float) -> None:
    found = DrawnAnnotation(share).masks(CLASSES, sites, rng())
    assert found.shape == (sites, 5)
    assert found.any(0).all()
    assert found.any(1).all()
    assert (found.sum(1) == max(round(share * 5), -(-5 // sites), 1)).all()


def test_masks_are_a_function_of_the_seed() -> None:
    one, again = (DrawnAnnotation().masks(CLASSES, 4, rng()) for _ in range(2))
    assert (one == again).all()
    assert (one != DrawnAnnotation().masks(CLASSES, 4, np.random.default_rng(1))).any()


def test_the_papers_tables() -> None:
    assert [len(site) for site in TableOne().classes_of_sites()] == [3, 3, 3, 3]
    assert [len(site) for site in TableThree().classes_of_sites()] == [3, 3, 3, 3, 1, 1]
    diseases = ("Atelectasis", "Effusion", "Infiltration", "Nodule", "Pneumothorax", "Consolidation")
    found = TableOne().masks(diseases, 4, rng())
    by_class = dict(zip(diseases, found.T.sum(1).tolist(), strict=True))
    assert by_class == {
        "Infiltration": 1,
        "Effusion": 2,
        "Atelectasis": 3,
        "Nodule": 3,
        "Consolidation": 2,
        "Pneumothorax": 1,
    }


@pytest.mark.parametrize("pattern", [TableOne(), TableThree()])
def test_a_table_is_called_by_its_name_where_the_sites_do_not_fit(pattern: AnnotationPattern) -> None:
    with pytest.raises(UsageError, match=f"annotates = '{pattern.name}' lists classes for . sites, but there are 2"):
        pattern.annotate(torch.zeros(12, 5, dtype=torch.int8), CLASSES, SITES, rng())


def test_labels_that_came_with_the_data_are_left_as_they_are() -> None:
    y = torch.tensor([[1, -1, 0, -1, 1], [0, 1, -1, 1, -1]], dtype=torch.int8)
    for pattern in (AutoAnnotation(), GivenAnnotation()):
        labels, facts = annotate(data(y), LabelConfig(annotates=pattern), (torch.arange(2),), rng())
        assert facts["annotates"] == "given"
        assert torch.equal(labels.values, y)
    labels, facts = annotate(data(), LabelConfig(annotates=AutoAnnotation(0.3)), SITES, rng())
    assert facts["annotates"] == "drawn"
    drawn, _ = annotate(data(), LabelConfig(annotates=DrawnAnnotation(0.3)), SITES, rng())
    assert torch.equal(labels.values, drawn.values)


def test_the_classes_to_learn_are_those_that_are_named() -> None:
    ward = data()
    kept = keep_wanted_classes(ward, listed("rash, cough; rash"))
    assert ward.y is not None
    assert kept.y is not None
    assert kept.test_y is not None
    assert ward.test_y is not None
    assert kept.classes == ("cough", "rash")
    assert torch.equal(kept.y, ward.y[:, [0, 2]])
    assert torch.equal(kept.test_y, ward.test_y[:, [0, 2]])
    assert keep_wanted_classes(ward, listed("flu; flu", classes="flu")).classes == ("flu",)
    for everything in (LabelConfig(), listed("flu; flu", classes="all"), LabelConfig(annotates=DrawnAnnotation())):
        assert keep_wanted_classes(ward, everything) is ward


@pytest.mark.parametrize(
    ("labelling", "told"),
    [
        (listed("cough; fewer"), "'fewer'.*fever"),
        (listed("tabel-1"), "'tabel-1'.*table-1"),
        (LabelConfig(classes="flue"), "'flue'.*flu"),
    ],
)
def test_a_class_that_is_not_there_is_named_with_the_nearest(labelling: LabelConfig, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        keep_wanted_classes(data(), labelling)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="3 sites, but there are 2"):
        annotate(data(), listed("cough; flu; rash"), SITES, rng())
    with pytest.raises(UsageError, match="every site must annotate at least one class"):
        annotate(data(), listed("cough;"), SITES, rng())
    with pytest.raises(UsageError, match="share of the classes"):
        DrawnAnnotation(annotated=0.0)
    single = Dataset("ward", torch.zeros(3, 2), torch.tensor([0, 1, 0]), None, ("a", "b"))
    with pytest.raises(DataError, match="several classes"):
        annotate(single, LabelConfig(), SITES, rng())
    with pytest.raises(DataError, match="several classes"):
        keep_wanted_classes(single, LabelConfig(classes="a"))


@pytest.mark.parametrize("name", annotation_patterns())
def test_no_pattern_changes_the_truth(name: str) -> None:
    diseases = tuple(dict.fromkeys((*TableThree().named_classes(), "Cardiomegaly", "Emphysema")))
    truth = torch.ones(12, len(diseases), dtype=torch.int8)
    settings = {"lists": "; ".join(["Nodule"] * 6)} if name == "listed" else {}
    sites = torch.arange(12).split(3 if name == "table-1" else 2)
    known, title = annotation_patterns()[name](**settings).annotate(truth, diseases, sites, rng())
    assert (truth == 1).all()
    assert ((known == 1) | (known == -1)).all()
    assert bool((known == -1).any()) == (name not in ("given", "all"))
    assert title
