"""Labs with some wrong labels, each in its own way: CIFAR-10 with labels that people gave (CIFAR-10N).

`python examples/mislabelled_labs/make.py` writes one folder per lab with one folder of images per class, as labelled
there; a few images with checked labels for the server; test images with their true class; federation.toml. No mistake
is simulated: the careful lab takes the majority of three people, the hasty one the first of them, the careless one
someone who erred.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from imperfed.data.stored_files import data_folder

LABS = {"careful": "aggre_label", "hasty": "random_label1", "careless": "worse_label"}
CHECKED = 10  # images per class
DECLARATION = """\
name = "mislabelled labs"
sites = "labs/*"
test = "test"
trusted = "trusted"

[inputs]
size = [32, 32]
channels = 3

[labels]
kind = "exact"
classes = {classes}
"""


def main() -> None:
    """Write the federation."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("federations/mislabelled_labs"))
    parser.add_argument("--rows", type=int, default=500, help="images per lab, and for testing")
    options = parser.parse_args()
    folder = data_folder() / "cifar10"
    if not folder.exists():
        raise SystemExit(f"{folder}: not there; set IMPERFED_DATA to the folder that holds the data (docs/datasets.md)")
    data, votes = dict(np.load(folder / "cifar10_subset.npz")), np.load(folder / "cifar10n_labels.npz")
    names, at, y = [str(name) for name in data["class_names"]], data["train_index"], data["y_train"]
    checked = np.concatenate([np.flatnonzero(y == c)[-CHECKED:] for c in range(len(names))])
    write(options.out / "trusted", data["x_train"][checked], at[checked], y[checked], names)
    for number, (lab, given) in enumerate(LABS.items()):
        rows = np.arange(len(y))[number * options.rows : (number + 1) * options.rows]
        labels = votes[given][at[rows]]
        write(options.out / "labs" / lab, data["x_train"][rows], at[rows], labels, names)
        print(f"{lab}: {len(rows)} images, {(labels != y[rows]).sum()} of them with a wrong label")
    x, numbers, y = (data[name][: options.rows] for name in ("x_test", "test_index", "y_test"))
    write(options.out / "test", x, numbers, y, names)
    (options.out / "federation.toml").write_text(DECLARATION.format(classes=names))
    print(f"wrote {options.out}: {len(LABS)} labs, {len(checked)} checked images for the server")
    print(f"next: imperfed inspect {options.out}")


def write(folder: Path, x: np.ndarray, at: np.ndarray, labels: np.ndarray, names: list[str]) -> None:
    """Write one folder of images per class."""
    for image, number, label in zip(x, at, labels, strict=True):
        path = folder / names[label] / f"{number:05}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)


if __name__ == "__main__":
    main()
