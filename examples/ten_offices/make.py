"""Ten offices with a sensitive column that is sometimes ambiguous, from COMPAS with ProPublica's filter.

`python examples/ten_offices/make.py` writes one CSV file with a column `office`, and federation.toml. The label is the
risk category of the score (Low, Medium, High); the sensitive column is `race`. In three of ten rows a second race is
drawn and added to the recorded one, such as `Asian|Other` (the data have one race per row; the recorded one is for
evaluation only).
"""

import argparse
import csv
from pathlib import Path

import numpy as np

from imperfed.data.sources.sensitive import by_propublica
from imperfed.data.stored_files import data_folder

OFFICES = 10
AMBIGUOUS = 0.3
RACES = ["African-American", "Asian", "Caucasian", "Hispanic", "Native American", "Other"]
NUMBERS = ["age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"]
COLUMNS = ["id", "office", *NUMBERS, "sex", "c_charge_degree", "race", "recorded_race", "score_text"]
DECLARATION = f"""\
name = "ten offices"
sites = "people.csv"
site_column = "office"
id = "id"

[inputs]
numeric = {NUMBERS}
categorical = {{ sex = ["Female", "Male"], c_charge_degree = ["F", "M"] }}

[labels]
kind = "exact"
classes = ["Low", "Medium", "High"]
column = "score_text"

[attribute]
column = "race"
values = {RACES}
truth = "recorded_race"
"""


def main() -> None:
    """Write the federation."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("federations/ten_offices"))
    parser.add_argument("--rows", type=int, default=250, help="people per office")
    options = parser.parse_args()
    source = data_folder() / "compas" / "compas-scores-two-years.csv"
    if not source.exists():
        raise SystemExit(f"{source}: not there; set IMPERFED_DATA to the folder that holds the data (docs/datasets.md)")
    with source.open(newline="") as file:
        people = [row for row in csv.DictReader(file) if by_propublica(row)]
    draw = np.random.default_rng(0)
    draw.shuffle(people)
    for row in people:
        row["recorded_race"] = row["race"]
        if draw.random() < AMBIGUOUS:
            row["race"] = "|".join(sorted({row["race"], RACES[draw.integers(len(RACES))]}))
    people = people[: options.rows * OFFICES]
    for number, row in enumerate(people):
        row["office"] = f"office-{number % OFFICES}"
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "people.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        table.writeheader()
        table.writerows(people)
    (options.out / "federation.toml").write_text(DECLARATION)
    print(f"wrote {options.out}: {OFFICES} offices, {len(people)} people")
    print(f"next: imperfed inspect {options.out}")


if __name__ == "__main__":
    main()
