"""Lazy images against images in memory: `python -m benchmarks.scale.lazy`.

Both train the same network on the same files. First, in one process, they take turns, round by round: the lazy ones
with all images, after a first pass that decodes them; those in memory with as many as fit (`--in-memory`). A round is
as many steps for both, so the ratio of their medians is that of two epochs of the same length. Then each is run in a
process of its own, whose peak memory is measured (see `benchmarks.scale.peak`).

The images are JPEG files of smooth random content, linked many times from few sources: what is decoded is every file.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from benchmarks.scale.peak import measure

RESULTS = Path(__file__).parents[1] / "results" / "lazy.json"
CLASSES = ("cat", "dog")
SOURCES = 100
BATCH = 32
Figures = dict[str, Any]


def network(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a small network, whose steps are short: the shorter they are, the more it counts how rows are read."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 16, 7, stride=4),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(512, classes),
    )


def write(folder: Path, images: int, side: int) -> None:
    """Write one site of images by class."""
    draw, sources = np.random.default_rng(0), []
    for number in range(SOURCES):
        small = Image.fromarray(draw.integers(256, size=(14, 14, 3), dtype=np.uint8))
        sources.append(folder / f"source-{number}.jpg")
        small.resize((side, side), Image.Resampling.BICUBIC).save(sources[-1], quality=85)
    for kind in CLASSES:
        (folder / "sites/one" / kind).mkdir(parents=True)
    for number in range(images):
        os.link(sources[number % SOURCES], folder / f"sites/one/{CLASSES[number % 2]}/{number}.jpg")
    for source in sources:
        source.unlink()


def training_of(folder: Path, images: int, side: int, lazy: bool, steps: int) -> Any:
    """Return an engine that trains on the first so many images, read now or when a batch needs them."""
    from imperfed.algorithms import objectives
    from imperfed.algorithms.fedavg import FedAvg
    from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns
    from imperfed.data.files.reading import read_sites
    from imperfed.data.labelling import LabelConfig
    from imperfed.data.own_files import federate_files
    from imperfed.data.split import SplitConfig
    from imperfed.engine.engine import Engine
    from imperfed.engine.local_training import Local
    from imperfed.engine.schedule import Rounds
    from imperfed.evaluation.evaluator import Evaluator
    from imperfed.models import ModelSpec, build

    federation = part_of(folder, images)
    inputs = Inputs(size=(side, side), lazy=lazy, cache=1000)
    labels = LabelColumns("exact", CLASSES)
    declared = Declaration("images", "sites/*", inputs=inputs, labels=labels, folder=federation)
    data = federate_files(read_sites(declared), SplitConfig(test=0), LabelConfig(), 0)
    shape = tuple(data.federation.x.shape[1:])
    return Engine(
        FedAvg(),
        objectives()["cross-entropy"](),
        build(ModelSpec("benchmarks.scale.lazy:network"), shape, len(CLASSES), 0),
        data.federation,
        Evaluator(data.oracle),
        Local(steps=steps, batch=BATCH),
        Rounds(workers=1),
        seed=0,
    )


def part_of(folder: Path, images: int) -> Path:
    """Return a folder with the first so many of the images."""
    part = folder / f"first-{images}"
    for number in range(images if not part.exists() else 0):
        name = Path(f"sites/one/{CLASSES[number % 2]}/{number}.jpg")
        (part / name).parent.mkdir(parents=True, exist_ok=True)
        os.link(folder / name, part / name)
    return part


def decode(engine: Any) -> float:
    """Read all images once; return the seconds."""
    from imperfed.core.lazy import blocks

    began = time.perf_counter()
    for _ in blocks(engine.population.federation.x):
        pass
    return time.perf_counter() - began


def compared(folder: Path, chosen: argparse.Namespace) -> Figures:
    """Return the seconds of a round from memory and of a lazy one, which take turns."""
    engines = {
        "lazy": training_of(folder, chosen.images, chosen.side, True, chosen.steps),
        "memory": training_of(folder, chosen.in_memory, chosen.side, False, chosen.steps),
    }
    first = decode(engines["lazy"])
    print(f"{chosen.images:,} images decoded and kept in {first:.0f} s", flush=True)
    clocks = {"s": time.perf_counter, "CPU s": time.process_time}
    times: dict[tuple[str, str], list[float]] = {(name, clock): [] for name in engines for clock in clocks}
    for t in range(chosen.rounds + 1):
        for name, engine in engines.items():
            began = {clock: now() for clock, now in clocks.items()}
            engine.round(t)
            for clock, now in clocks.items():
                times[name, clock].append(now() - began[clock])
    seconds = {key: statistics.median(of_rounds[1:]) for key, of_rounds in times.items()}
    per_epoch = chosen.images / (chosen.steps * BATCH)
    figures: Figures = {"decoding s": round(first, 1)}
    for clock in clocks:
        figures |= {f"epoch {clock}, {name}": round(seconds[name, clock] * per_epoch, 1) for name in engines}
        figures[f"speed of memory by {clock}"] = round(seconds["memory", clock] / seconds["lazy", clock], 3)
    return figures


def memory(folder: Path, chosen: argparse.Namespace, what: str) -> Figures:
    """Return the peak memory of a process that only trains, with what was kept by others or from nothing."""
    images = chosen.in_memory if what == "memory" else chosen.images
    words = [sys.executable, "-m", "benchmarks.scale.lazy", "--folder", folder, "--alone", what]
    numbers = ["--images", images, "--side", chosen.side, "--steps", chosen.steps, "--rounds", chosen.rounds]
    peak, _ = measure([str(word) for word in (*words, *numbers)])
    return {
        "images": images,
        "anonymous GB": round(peak.anonymous / 1e9, 2),
        "with mapped files GB": round(peak.with_files / 1e9, 2),
    }


def alone(chosen: argparse.Namespace) -> None:
    """Train in this process, from nothing."""
    engine = training_of(chosen.folder, chosen.images, chosen.side, chosen.alone == "lazy", chosen.steps)
    if chosen.alone == "lazy":
        decode(engine)
    for t in range(chosen.rounds):
        engine.round(t)


def main(argv: list[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--images", type=int, default=50_000)
    options.add_argument("--in-memory", type=int, default=2_000)
    options.add_argument("--side", type=int, default=224)
    options.add_argument("--steps", type=int, default=40)
    options.add_argument("--rounds", type=int, default=8)
    options.add_argument("--folder", type=Path, help="where images and what is decoded of them are kept")
    options.add_argument("--alone", choices=("lazy", "memory"), help=argparse.SUPPRESS)
    chosen = options.parse_args(argv)
    torch.set_num_threads(1)
    if chosen.alone:
        alone(chosen)
        return 0
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        folder = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        needed = chosen.images * 3 * chosen.side**2
        if (free := shutil.disk_usage(folder).free) < 2 * needed:
            print(f"{free / 1e9:.0f} GB are free in {folder}, of 2 x {needed / 1e9:.0f}; choose fewer --images")
            return 1
        write(folder, chosen.images, chosen.side)
        figures = {"images": chosen.images, "side": chosen.side} | compared(folder, chosen)
        print(json.dumps(figures, indent=2), flush=True)
        shutil.rmtree(folder / "cache")
        for what in ("lazy", "memory"):
            figures[what] = memory(folder, chosen, what)
            print(what, json.dumps(figures[what]), flush=True)
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
