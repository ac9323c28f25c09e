"""Images that three people labelled, with all their labels as candidate sets: CIFAR-10 with the labels of CIFAR-10N.

`python examples/crowd/make.py` writes, for each of three teams, a CSV file of image paths with candidate sets such as
`cat|dog`, and the images; also test images with their true class, and federation.toml. Where all three agree, one
candidate is left. These are real disagreements; nothing is simulated. The true class (column `truth`) is for evaluation
only; the 2 in 100 images for which nobody named it are left out, since their candidate sets would contradict it.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
from PIL import Image

from imperfed.data.stored_files import data_folder

TEAMS = {"animals": range(2, 8), "vehicles": (0, 1, 8, 9), "mixed": range(10)}
DECLARATION = """\
name = "crowd"
sites = "sites/*.csv"
test = "test/test.csv"
id = "image"

[inputs]
image = "image"
size = [32, 32]
channels = 3

[labels]
kind = "candidates"
classes = {classes}
column = "labels"
truth = "truth"
"""


def main() -> None:
    """Write the federation."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("federations/crowd"))
    parser.add_argument("--rows", type=int, default=500, help="images per team, and for testing")
    options = parser.parse_args()
    folder = data_folder() / "cifar10"
    if not folder.exists():
        raise SystemExit(f"{folder}: not there; set IMPERFED_DATA to the folder that holds the data (docs/datasets.md)")
    data, votes = dict(np.load(folder / "cifar10_subset.npz")), np.load(folder / "cifar10n_labels.npz")
    names = [str(name) for name in data["class_names"]]
    said = np.stack([votes[f"random_label{i}"][data["train_index"]] for i in (1, 2, 3)], 1)
    y = data["y_train"]
    free = (said == y[:, None]).any(1)
    for team, shown in TEAMS.items():
        rows = np.flatnonzero(free & np.isin(y, list(shown)))[: options.rows]
        free[rows] = False
        sets = ["|".join(names[c] for c in sorted(set(said[row]))) for row in rows]
        write(options.out / "sites", team, data["x_train"][rows], data["train_index"][rows], sets, y[rows], names)
    x, at, y = (data[name][: options.rows] for name in ("x_test", "test_index", "y_test"))
    write(options.out / "test", "test", x, at, [names[label] for label in y], y, names)
    (options.out / "federation.toml").write_text(DECLARATION.format(classes=names))
    print(f"wrote {options.out}: {len(TEAMS)} teams of {options.rows} images, each labelled by three people")
    print(f"next: imperfed inspect {options.out}")


def write(folder: Path, name: str, x: np.ndarray, at: np.ndarray, sets: list[str], y: np.ndarray, names: list) -> None:
    """Write one CSV file and its images."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "labels", "truth"])
        for image, number, said, label in zip(x, at, sets, y, strict=True):
            Image.fromarray(image).save(folder / name / f"{number:05}.png")
            table.writerow([f"{name}/{number:05}.png", said, names[label]])


if __name__ == "__main__":
    main()
