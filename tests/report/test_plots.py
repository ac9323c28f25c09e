"""Pictures of a run."""

from __future__ import annotations

from matplotlib.figure import Figure

from imperfed.report.plots import up_to_all, whole_rounds


def ticks(rounds: list[int]) -> list[float]:
    ax = Figure().subplots()
    ax.plot(rounds, [50.0] * len(rounds))
    whole_rounds(ax, rounds)
    return [float(tick) for tick in ax.get_xticks()]


def test_rounds_are_whole_numbers_even_if_there_is_only_one() -> None:
    assert ticks([1]) == [1.0]
    assert all(tick.is_integer() for tick in ticks([1, 2, 3]))


def test_an_axis_of_per_cent_ends_at_all() -> None:
    ax = Figure().subplots()
    ax.plot([1, 2], [100.0, 100.0])
    up_to_all(ax, "accuracy, %")
    assert ax.get_ylim()[1] == 101
    ax = Figure().subplots()
    ax.plot([1, 2], [100.0, 300.0])
    up_to_all(ax, "training loss")
    assert ax.get_ylim()[1] > 300
