"""The picture of the page on noisy labels: `python -m studies.noise_picture docs/noisy-labels.svg`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from imperfed.core.context import ServerView
from imperfed.core.threads import one_thread
from imperfed.engine.conversation import ask_here, converse, repair_labels, views
from imperfed.evaluation.evaluator import Evaluator
from imperfed.repairs.fb_nll import FBNLL
from studies.fb_nll import NOISES, SITES, Setting

COLOURS = ("#b8483b", "#3b6fb8")


def similarities(setting: Setting) -> torch.Tensor:
    """Return R_ij of all sites (Eq. 6)."""
    federation = setting.federated(0).federation
    exchanges = FBNLL(groups=setting.tasks, features="raw").grouping.exchanges()
    ask = ask_here(exchanges, views(federation))
    return converse(exchanges, {}, ServerView(), federation.sizes(), ask).server["R"]


def noise(setting: Setting) -> tuple[float, float]:
    """Return the shares of wrong labels before and after the repair, in per cent."""
    data = setting.federated(0)
    _, repair_result = repair_labels(FBNLL(features="raw"), data.federation)
    figures = Evaluator(data.oracle).repaired(0, len(repair_result.given), repair_result.given, repair_result.decided)
    assert figures is not None
    assert figures.noise_before is not None
    assert figures.noise_after is not None
    return 100 * figures.noise_before, 100 * figures.noise_after


def draw(path: Path) -> None:
    """Draw similarities of the sites on the left, wrong labels before and after on the right."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "imperfed"
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    shown = left.imshow(similarities(Setting("mnist", "hog", 3, "uniform")), cmap="viridis")
    at = range(0, SITES, 5)
    left.set(title=f"Similarity of {SITES} sites, three tasks", xlabel="site", ylabel="site", xticks=at, yticks=at)
    figure.colorbar(shown, ax=left)
    pairs = [noise(Setting("mnist", "hog", 3, kind)) for kind in NOISES]
    for side, (label, colour) in enumerate(zip(("before", "after"), COLOURS, strict=True)):
        middle = [i + 0.4 * side - 0.2 for i in range(len(pairs))]
        bars = right.bar(middle, [pair[side] for pair in pairs], 0.36, color=colour, label=label)
        right.bar_label(bars, fmt="%.1f")
    right.set(title="Wrong labels, %", xticks=range(len(pairs)), xticklabels=NOISES, ylim=(0, 55))
    right.legend(frameon=False, ncols=2, loc="upper left")
    right.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    with one_thread():
        draw(Path(sys.argv[1]))
