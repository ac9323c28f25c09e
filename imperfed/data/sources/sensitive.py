"""Tables with a sensitive attribute, on which fairness is studied."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from imperfed.core.errors import DataError
from imperfed.core.federation import Attribute
from imperfed.data.dataset import Dataset
from imperfed.data.readers import decoding
from imperfed.data.source import Source
from imperfed.data.stored_files import contents

COMPAS_FILE = "compas/compas-scores-two-years.csv"
STUDENT_FILE = "student/Student_performance_data.csv"
RACES = ("African-American", "Asian", "Caucasian", "Hispanic", "Native American", "Other")
RISKS = ("Low", "Medium", "High")
COUNTS = ("age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count")
ETHNICITIES = ("Caucasian", "African American", "Asian", "Other")
GRADES = ("A", "B", "C", "D", "F")
STUDENT_FEATURES = (
    *("Age", "Gender", "ParentalEducation", "StudyTimeWeekly", "Absences", "Tutoring", "ParentalSupport"),
    *("Extracurricular", "Sports", "Music", "Volunteering"),
)

Row = Mapping[str, str]


class AttributeTable:
    """The rows of a CSV file; errors name the line and column."""

    def __init__(self, path: Path, needed: Sequence[str]) -> None:
        self.path = path
        with decoding(path, "a CSV file in UTF-8"):
            reader = csv.reader(io.StringIO(contents(path).decode("utf-8-sig"), newline=""), strict=True)
            header, *lines = reader
        for name in needed:
            if name not in header:
                raise DataError(f"{path}: no column {name!r}; found {', '.join(header)}")
        self.rows: list[tuple[int, Row]] = []
        for number, line in enumerate(lines, start=2):
            if len(line) != len(header):
                raise DataError(f"{path}, line {number}: {len(line)} fields, expected {len(header)}")
            self.rows.append((number, dict(zip(header, line, strict=True))))

    def keep(self, wanted: Callable[[Row], bool]) -> None:
        """Drop the rows that are not wanted."""
        self.rows = [(number, row) for number, row in self.rows if wanted(row)]

    def column(self, name: str) -> list[str]:
        """Return a column as text."""
        return [row[name] for _, row in self.rows]

    def numbers(self, name: str) -> Tensor:
        """Return a column of numbers."""
        return torch.tensor([self._parsed(row[name], name, number) for number, row in self.rows])

    def choices(self, name: str, known: Sequence[str]) -> Tensor:
        """Return a column of known words as their positions."""
        for number, row in self.rows:
            if row[name] not in known:
                raise DataError(
                    f"{self.path}, line {number}, column {name}: {row[name]!r} is none of {', '.join(known)}"
                )
        return torch.tensor([known.index(word) for word in self.column(name)], dtype=torch.int64)

    def _parsed(self, text: str, name: str, number: int) -> float:
        try:
            return float(text)
        except ValueError:
            raise DataError(f"{self.path}, line {number}, column {name}: {text!r} is not a number") from None


def by_propublica(row: Row) -> bool:
    """Return whether ProPublica's analysis keeps a row: charged within 30 days of screening, known outcome, a score."""
    days = row["days_b_screening_arrest"].lstrip("-")
    near = days.isdecimal() and int(days) <= 30
    return near and row["is_recid"] != "-1" and row["c_charge_degree"] != "O" and row["score_text"] != "N/A"


def _compas(folder: Path, name: str, violence: bool) -> Dataset:
    filters = ("days_b_screening_arrest", "is_recid", "c_charge_degree")
    table = AttributeTable(
        folder / COMPAS_FILE, ("id", "sex", "race", "score_text", "v_decile_score", "priors_count", *COUNTS, *filters)
    )
    table.keep(by_propublica)
    features = [table.numbers(column) for column in (*COUNTS, *(("v_decile_score",) if violence else ()))]
    features += [table.choices("sex", ("Female", "Male")), table.choices("c_charge_degree", ("M", "F"))]
    groups, y = table.choices("race", RACES), table.choices("score_text", RISKS)
    return with_attribute(name, features, Attribute("race", RACES, len(features)), groups, y, RISKS, table.column("id"))


def _student(folder: Path, name: str, gpa: bool) -> Dataset:
    columns = (*STUDENT_FEATURES, *(("GPA",) if gpa else ()))
    table = AttributeTable(folder / STUDENT_FILE, ("StudentID", "Ethnicity", "GradeClass", *columns))
    features = [table.numbers(column) for column in columns]
    groups = table.choices("Ethnicity", ("0", "1", "2", "3"))
    y = table.choices("GradeClass", ("0.0", "1.0", "2.0", "3.0", "4.0"))
    attribute = Attribute("ethnicity", ETHNICITIES, len(features))
    return with_attribute(name, features, attribute, groups, y, GRADES, table.column("StudentID"))


def with_attribute(
    name: str,
    features: Sequence[Tensor],
    attribute: Attribute,
    groups: Tensor,
    y: Tensor,
    classes: tuple[str, ...],
    ids: Sequence[str],
) -> Dataset:
    """Return a table whose last columns are the groups, one-hot."""
    x = torch.cat([torch.stack([f.float() for f in features], 1), one_hot(groups, len(attribute.values)).float()], 1)
    return Dataset(name, x, y, None, classes, ids=tuple(ids), attribute=attribute)


PROPUBLICA = (
    "GitHub propublica/compas-analysis, compas-scores-two-years.csv; published by ProPublica, no licence stated."
)
COMPAS_FILES = {COMPAS_FILE: "873148a4dbb099b891ddd96d8f78cd63587d04256c3a74be4efa14a8ac78fcac"}
KHAROUA = "R. El Kharoua, Students Performance Dataset (Kaggle), Student_performance_data.csv; CC BY 4.0."
STUDENT_FILES = {STUDENT_FILE: "211b5cc8fb656bcaf96f6badefd2bd0f2700f8c329f7666a8c93cacd68ce8ce9"}

CATALOGUE = (
    Source(
        "compas",
        "COMPAS, risk of reoffending low, medium or high, 6172 of 7214 people (ProPublica's filter), sensitive: race",
        partial(_compas, name="compas", violence=True),
        PROPUBLICA,
        COMPAS_FILES,
    ),
    Source(
        "compas-without-violence",
        "COMPAS without the score of violent reoffending among its inputs",
        partial(_compas, name="compas-without-violence", violence=False),
        PROPUBLICA,
        COMPAS_FILES,
    ),
    Source(
        "student",
        "Students Performance, grades A to F of 2392 pupils, sensitive: ethnicity (probably synthetic data)",
        partial(_student, name="student", gpa=True),
        KHAROUA,
        STUDENT_FILES,
    ),
    Source(
        "student-without-gpa",
        "Students Performance without the grade point average, from which the grades were made, among its inputs",
        partial(_student, name="student-without-gpa", gpa=False),
        KHAROUA,
        STUDENT_FILES,
    ),
)
