"""Four hospitals that read chest X-rays for different findings, from the first archive of ChestX-ray14.

`python examples/four_hospitals/make.py` writes one CSV file and one folder of images per hospital, test images that
were read for all findings, and federation.toml. Which hospital reads for which findings follows table I of the FedPSL
paper. A blank cell is a finding that nobody looked for; -1 marks a reader in doubt (simulated here in one of 25 cells,
since the data have none).
"""

import argparse
import csv
from pathlib import Path

import numpy as np
from PIL import Image

from imperfed.data.stored_files import data_folder

FINDINGS = ["Atelectasis", "Effusion", "Infiltration", "Nodule", "Pneumothorax", "Consolidation"]
READS = {
    "north": ["Infiltration", "Effusion", "Atelectasis"],
    "east": ["Effusion", "Atelectasis", "Nodule"],
    "south": ["Atelectasis", "Nodule", "Consolidation"],
    "west": ["Nodule", "Consolidation", "Pneumothorax"],
}
IN_DOUBT = 0.04
TEST = 2  # number of the official test list
DECLARATION = f"""\
name = "four hospitals"
sites = "sites/*.csv"
test = "test/test.csv"
id = "image"

[inputs]
image = "image"
size = [64, 64]
channels = 1

[labels]
kind = "annotated"
classes = {FINDINGS}
columns = {FINDINGS}
uncertain = {{ values = ["-1"], read_as = "unknown" }}
"""


def main() -> None:
    """Write the federation."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("federations/four_hospitals"))
    parser.add_argument("--rows", type=int, default=300, help="images per hospital, and for testing")
    options = parser.parse_args()
    source = data_folder() / "chestxray14" / "chestxray14_part1_64.npz"
    if not source.exists():
        raise SystemExit(f"{source}: not there; set IMPERFED_DATA to the folder that holds the data (docs/datasets.md)")
    data = dict(np.load(source))
    draw = np.random.default_rng(0)
    patients = draw.permutation(np.unique(data["patient"][data["split"] != TEST]))
    for site, own in zip(READS, np.array_split(patients, len(READS)), strict=True):  # a patient goes to one hospital
        rows = np.flatnonzero(np.isin(data["patient"], own))[: options.rows]
        write(options.out / "sites", site, data, rows, READS[site], draw)
    write(options.out / "test", "test", data, np.flatnonzero(data["split"] == TEST)[: options.rows], FINDINGS)
    (options.out / "federation.toml").write_text(DECLARATION)
    print(f"wrote {options.out}: {len(READS)} hospitals of up to {options.rows} images, each read for 3 of 6 findings")
    print(f"next: imperfed inspect {options.out}")


def write(folder: Path, name: str, data: dict, rows: np.ndarray, reads: list[str], draw=None) -> None:
    """Write one CSV file and its images; with `draw`, some readings are in doubt."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    columns = [list(data["class_names"]).index(finding) for finding in FINDINGS]
    with (folder / f"{name}.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", *FINDINGS])
        for row in rows:
            path = f"{name}/{data['file_names'][row]}"
            Image.fromarray(data["images"][row]).save(folder / path)
            read = dict(zip(FINDINGS, data["labels"][row, columns], strict=True))
            doubted = {finding: -1 for finding in reads if draw is not None and draw.random() < IN_DOUBT}
            table.writerow([path, *((read | doubted)[f] if f in reads else "" for f in FINDINGS)])


if __name__ == "__main__":
    main()
