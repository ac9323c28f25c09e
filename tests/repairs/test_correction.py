"""Correction of labels: by whole labels and row by row, against clean rows that only the server holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from imperfed.core.components import LabelDecision
from imperfed.core.context import ServerView, SiteView
from imperfed.core.errors import DataError, UsageError
from imperfed.core.exchange import Query
from imperfed.core.federation import Trusted
from imperfed.repairs.fb_nll import calibration
from imperfed.repairs.fb_nll.correction import KEPT, ROW, WHOLE, Correction
from tests.support import crowd
from tests.support.crowd import CLASSES, TASK_OF, Message, clean, rows, site
from tests.support.crowd import view as seen

CORRECTION = Correction(CLASSES, M=2, phase1="margin", threshold=0.5, gate=0.05, rank=3, features="raw", task_of=())


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def held(
    correction: Correction, *views: SiteView, each: int = 30, trusted: Trusted | None = None
) -> tuple[list[Message], list[LabelDecision]]:
    """What the sites and the server say to each other, and what every site decides."""
    trusted = trusted or clean(draw(7), each)
    decisions = []

    def decide(site: SiteView) -> dict[str, Tensor]:
        decisions.append(correction.decide(site))
        return {}

    last = Query("decide", lambda server, updates, context: server, correction.send, respond=decide)
    server = correction.init_server(ServerView(trusted=trusted), None)
    _, messages = crowd.held((*correction.exchanges(), last), views, server, trusted)
    return messages, decisions


def scattered(n: int, rate: float) -> tuple[SiteView, Tensor]:
    """A site with all classes and labels drawn anew with this probability."""
    generator = draw(3)
    y = torch.arange(4).repeat(n // 4)
    anew = torch.rand(n, generator=generator) < rate
    told = torch.where(anew, torch.randint(4, (n,), generator=generator), y)
    return seen(rows(y, generator), told), y


def test_a_label_that_is_wrong_as_a_whole_is_relabelled_as_a_whole() -> None:
    view, y = site(0, [40, 40, 0, 0], draw(), given={1: 3})
    _, (verdict,) = held(CORRECTION, view)
    assert torch.equal(verdict.decided, y)
    assert verdict.why.tolist() == [KEPT] * 40 + [WHOLE] * 40
    assert verdict.noise == 0.5


def test_scattered_wrong_labels_are_set_right_row_by_row() -> None:
    view, y = scattered(400, 0.4)
    _, (verdict,) = held(replace(CORRECTION, phase1="off"), view)
    wrong = view.labels.values != y
    assert wrong.double().mean() > 0.25
    assert (verdict.decided == y).double().mean() > 0.97
    assert set(verdict.why[wrong & (verdict.decided == y)].tolist()) == {ROW}
    assert verdict.noise == pytest.approx(float(wrong.double().mean()), abs=0.03)


@pytest.mark.parametrize(
    ("flipped", "rates", "wrong"),
    [
        (30, (0.05, 0.8), 25 / 0.75),  # 5 of 100 are flipped though right; of those that are wrong 0.8
        (30, (0.0, 1.0), 30.0),
        (4, (0.05, 0.8), 0.0),
        (90, (0.05, 0.5), 100.0),
        (50, (0.5, 0.5), 0.0),
    ],
)
def test_the_estimate_of_wrong_labels_counts_false_and_missed_flips(
    flipped: int, rates: tuple[float, float], wrong: float
) -> None:
    rows = torch.arange(100) < flipped
    assert CORRECTION.estimate(rows, torch.tensor(rates, dtype=torch.float64)) == pytest.approx(wrong)


@pytest.mark.parametrize(("above", "whole"), [(94, False), (97, True)])
def test_a_whole_label_is_as_clear_as_nineteen_of_twenty_clean_ones(
    above: int, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, _ = site(0, [40, 40, 0, 0], draw(), given={1: 3})
    decide, told = Correction.decide, {}

    def watched(self: Correction, site: SiteView) -> LabelDecision:
        told.update(site.down)
        return decide(self, site)

    monkeypatch.setattr(Correction, "decide", watched)
    held(CORRECTION, view)
    monkeypatch.setattr("imperfed.repairs.fb_nll.correction.lead", lambda R: torch.tensor(0.5, dtype=torch.float64))
    leads = (torch.arange(100) >= above).double()  # as many clean labels have a lead of 0, the rest of 1
    view = replace(view, down=told | {"leads": leads})
    assert bool(list(CORRECTION.whole_labels(view, torch.ones(len(CLASSES), dtype=torch.bool)))) == whole


def test_without_noise_the_gate_bounds_the_damage_and_the_paper_does_not() -> None:
    generator = draw(1)
    y = torch.arange(4).repeat(300)
    view = seen(rows(y, generator, spread=0.7), y)
    trusted = clean(generator, 60, spread=0.7)
    damage = {}
    for gate in (0.02, 0.1, 1.0):
        correction = replace(CORRECTION, phase1="off", gate=gate)
        _, (verdict,) = held(correction, replace(view, memory={}), trusted=trusted)
        damage[gate] = float((verdict.decided != y).double().mean())
    assert damage[0.02] < 0.05 < damage[0.1] < 0.15 < damage[1.0]


def test_without_a_gate_it_is_equation_7_as_written_in_numpy() -> None:
    view, _ = scattered(120, 0.5)
    _, (verdict,) = held(replace(CORRECTION, phase1="off", gate=1.0), view)
    server = clean(draw(7))
    norms = []
    for c in range(4):
        F = server.x[server.labels.values == c].double().numpy()
        V = np.linalg.eigh(F.T @ F)[1][:, ::-1][:, :3]
        norms.append(np.linalg.norm(view.x.double().numpy() @ V, axis=1))
    assert verdict.decided.tolist() == np.argmax(norms, 0).tolist()


def test_the_papers_phase_1_wants_exactly_one_class_over_the_threshold() -> None:
    view, y = site(0, [40, 40, 0, 0], draw(), given={1: 3})
    answers = {}
    for threshold in (0.0, 0.6, 0.999):
        correction = replace(CORRECTION, phase1="paper", threshold=threshold)
        _, (verdict,) = held(correction, replace(view, memory={}))
        answers[threshold] = WHOLE in verdict.why.tolist()
        assert torch.equal(verdict.decided, y)
    assert answers == {0.0: False, 0.6: True, 0.999: False}  # all four, one, none


def test_the_papers_phase_1_is_equations_2_to_6_as_written_in_numpy() -> None:
    """A label that is wrong as a whole has the similarity of Eq. 6 to its true class as its confidence."""
    view, _ = site(0, [40, 25, 0, 0], draw(), given={1: 3})
    _, (verdict,) = held(replace(CORRECTION, phase1="paper", threshold=0.6), view)
    server = clean(draw(7))

    def moments(F: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        S = F.T @ F / len(F)
        lam, V = np.linalg.eigh(S)
        return S, lam[::-1][:2], V[:, ::-1][:, :2]

    def one_sided(S: np.ndarray, lam: np.ndarray, V: np.ndarray) -> float:
        e = np.linalg.norm(S @ V, axis=0)
        return float(np.sqrt(np.prod(np.minimum(lam, e) / np.maximum(lam, e))))

    S_k, lam_k, V_k = moments(view.x[40:].double().numpy())
    R = []
    for c in range(4):
        S_c, lam_c, V_c = moments(server.x[server.labels.values == c].double().numpy())
        R.append((one_sided(S_k, lam_k, V_c), one_sided(S_c, lam_c, V_k)))
    both = np.mean(R, 1)
    assert np.abs(np.diff(R, axis=1)[1]) > 0.01  # neither half alone would do
    assert both.argmax() == 1
    assert verdict.why[40:].tolist() == [WHOLE] * 25
    assert verdict.confidence[40:].tolist() == pytest.approx([both.max()] * 25, abs=1e-5)


def test_a_whole_label_stays_within_the_sites_task_too() -> None:
    view, _ = site(0, [60, 60, 30, 0], draw(), given={2: 3})  # the rows of label 3 are of another task
    _, (anywhere,) = held(CORRECTION, view)
    assert anywhere.decided[120:].tolist() == [2] * 30
    _, (at_home,) = held(replace(CORRECTION, task_of=TASK_OF), replace(view, memory={}))
    assert set(at_home.decided.tolist()) == {0, 1}


def test_nothing_but_directions_leaves_a_site_and_small_labels_are_not_shown() -> None:
    generator = draw()
    first, second = site(0, [30, 9, 0, 12], generator)[0], site(1, [4, 5, 0, 0], generator)[0]
    messages, _ = held(CORRECTION, first, second)
    up = [(m.exchange, m.site, {name: tuple(t.shape) for name, t in m.content.items()}) for m in messages if m.up]
    assert up == [("classes", 0, {"V_classes": (2, 12, 1)})]
    V = next(m.content["V_classes"] for m in messages if m.up)
    assert V.norm(dim=1).flatten().tolist() == pytest.approx([1, 1], abs=1e-6)


def test_the_server_says_nothing_of_its_rows_but_directions_and_thresholds() -> None:
    view, _ = site(0, [30, 20, 0, 0], draw())
    messages, _ = held(CORRECTION, view)
    down = {name: tuple(t.shape) for m in messages if not m.up for name, t in m.content.items()}
    assert down == {"U": (4, 12, 3), "margins": (120,), "rates": (2,), "leads": (12,), "s": (2, 4)}


def test_another_sites_rows_change_nothing_here() -> None:
    view, _ = scattered(120, 0.4)
    other, third = site(1, [30, 9, 0, 12], draw())[0], site(1, [0, 0, 50, 3], draw())[0]
    _, (mine, _) = held(CORRECTION, view, other)
    _, (again, _) = held(CORRECTION, replace(view, memory={}), third)
    assert torch.equal(mine.decided, again.decided)
    assert torch.equal(mine.confidence, again.confidence)


def test_known_tasks_keep_labels_within_the_sites_task() -> None:
    view, y = site(0, [60, 60, 0, 0], draw())
    blurred = seen(view.x + 0.8 * torch.randn(view.x.shape, generator=draw(5)), torch.full_like(y, 2))
    free, bound = (replace(CORRECTION, phase1="off", gate=1.0, task_of=t) for t in ((), TASK_OF))
    _, (anywhere,) = held(free, blurred)
    _, (at_home,) = held(bound, replace(blurred, memory={}))
    assert set(anywhere.decided.tolist()) > {0, 1}
    assert set(at_home.decided.tolist()) == {0, 1}
    right = [float((v.decided == y).double().mean()) for v in (anywhere, at_home)]
    assert right[1] > right[0]


def test_confidence_is_a_share_of_clean_rows() -> None:
    view, _ = scattered(400, 0.3)
    _, (verdict,) = held(replace(CORRECTION, phase1="off"), view)
    assert ((verdict.confidence >= 0) & (verdict.confidence <= 1)).all()
    assert (verdict.confidence[verdict.why == ROW] >= 0.95).all()
    assert verdict.confidence[verdict.why == KEPT].median() == 1


def test_a_row_of_zeros_is_kept() -> None:
    view, _ = scattered(40, 0.0)
    view.x[3] = 0
    _, (verdict,) = held(replace(CORRECTION, phase1="off"), view)
    assert verdict.decided[3] == view.labels.values[3]
    assert verdict.confidence.isfinite().all()


def test_too_few_clean_rows_are_named() -> None:
    view, _ = scattered(40, 0.0)
    with pytest.raises(DataError, match=r"5 clean rows of class 'a'; label correction needs 8 of every class"):
        held(CORRECTION, view, each=5)


def test_the_rank_follows_the_clean_rows() -> None:
    y = torch.arange(4).repeat(19)
    assert calibration.usable_rank(10, 200, y, CLASSES) == 5
    assert calibration.usable_rank(3, 200, y, CLASSES) == 3
    assert calibration.usable_rank(10, 200, torch.arange(4).repeat(20), CLASSES) == 10
    assert calibration.usable_rank(50, 200, torch.arange(4).repeat(20), CLASSES) == 15
    assert calibration.usable_rank(10, 12, torch.arange(4).repeat(20), CLASSES) == 3


def test_every_fold_leaves_rows_enough_for_the_rank() -> None:
    y = torch.arange(4).repeat_interleave(torch.tensor([21, 22, 24, 27]))
    F = torch.randn(len(y), 100, generator=draw(), dtype=torch.float64)
    rank = calibration.usable_rank(18, 100, y, CLASSES)
    assert rank == 15
    assert calibration.cross_fitted(F, y, 4, rank).isfinite().all()


def test_the_papers_phase_1_with_fewer_clean_rows_than_directions_is_refused() -> None:
    view, _ = scattered(80, 0.0)
    paper = replace(CORRECTION, phase1="paper", M=9)
    with pytest.raises(UsageError, match=r"repair\.M = 9 directions, but the server holds 8 clean rows of class 'a'"):
        held(paper, view, each=8)
    held(replace(paper, M=8), view, each=8)


def test_margins_of_clean_rows_are_of_directions_they_had_no_part_in() -> None:
    y = torch.arange(4).repeat(12)
    F = rows(y, draw(7), spread=0.7).double()
    crossed = calibration.margins(calibration.cross_fitted(F, y, 4, 5), y)
    own = calibration.margins(calibration.log_projections(F, calibration.class_directions(F, y, 4, 5)), y)
    assert crossed.mean() > own.mean()


def test_leads_of_mixtures_by_hand() -> None:
    assert calibration.lead(torch.tensor([[0.2, 0.9, 0.6], [0.5, 0.5, 0.1]])).tolist() == pytest.approx([0.3, 0.0])


def test_power_by_hand() -> None:
    logs = torch.tensor([[0.0, -1.0, -3.0], [-0.5, 0.0, -1.0]])
    y = torch.tensor([0, 0])
    # Margins of wrong labels: 1 and 3, then 0 and 1; those of the given ones, 0 and 0.5, do not count.
    assert calibration.power(logs, y, torch.tensor(0.9)).item() == 0.75
    assert calibration.power(logs, y, torch.tensor(1.5)).item() == 0.25
