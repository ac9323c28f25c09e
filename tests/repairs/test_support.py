"""Whether features bear a repair out: the check of posterior repair, alone and in whole repairs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.components import RepairResult
from imperfed.core.context import ServerView, SiteView
from imperfed.core.exchange import Updates
from imperfed.core.federation import Federation, Trusted
from imperfed.core.labels import Exact, Probabilities
from imperfed.engine.conversation import repair_labels
from imperfed.repairs.posterior import PosteriorRepair
from imperfed.repairs.posterior.cross_fit import CrossFit
from imperfed.repairs.posterior.gates import upper_bound
from imperfed.repairs.posterior.support import Support, below, contradicted_if_right, rates, verdict

SUPPORT = Support(CrossFit("raw", 4))
NAMES = ("careful", "hasty")
POOLED: Tree = {"T": torch.eye(4).double(), "pi": torch.full((4,), 0.25).double()}
"""What the noise model has found, of which the check takes no notice."""


def judged(*sites: tuple[float, float, float, float], rows: int = 500) -> Tree:
    """From shares of one site after the other: predicted, contradicted among the surest, doubted; and surest rows."""
    answers = []
    for predicted, contradicted, doubted, surest in sites:
        sums = {"predicted": rows * predicted, "surest": surest, "contradicted": surest * contradicted}
        answers.append({name: torch.tensor(v).double() for name, v in (sums | {"doubted": rows * doubted}).items()})
    updates = Updates(tuple(range(len(sites))), torch.full((len(sites),), rows), {}, tuple(answers))
    return SUPPORT.judge(dict(POOLED), updates, ServerView(sites=NAMES[: len(sites)]))


@pytest.mark.parametrize(
    ("site", "supported"),
    [
        ((0.75, 0.20, 0.20, 100), True),  # clear classes, and one label in five wrong wherever one looks
        ((0.35, 0.60, 0.60, 100), False),  # the labels held to be right are not predicted
        ((0.55, 0.05, 0.30, 100), False),  # predicted where the probe is sure, and far less elsewhere
        ((0.75, 0.05, 0.20, 100), False),  # more is claimed than the surest rows show
        ((0.75, 0.14, 0.20, 100), True),
        ((0.75, 0.12, 0.20, 100), False),  # more than 1.5 times what the surest rows show, and all else is well
        ((0.80, 0.15, 0.05, 400), False),  # outliers: more is contradicted where the probe is surest than is claimed
        ((0.47, 0.52, 0.50, 100), False),  # most labels are contradicted, so the probe may be what is wrong
        ((0.52, 0.52, 0.50, 100), True),
        ((0.25, 0.75, 0.75, 100), False),  # nothing but chance
        ((0.75, 0.20, 0.99, 100), False),  # no label is held to be right
    ],
)
def test_what_tells_noise_from_overlap(site: tuple[float, float, float, float], supported: bool) -> None:
    assert judged(site)["borne out"].tolist() == [supported]


def test_a_careful_site_is_left_alone_where_the_others_are_not() -> None:
    found = judged((0.75, 0.02, 0.15, 100), (0.70, 0.33, 0.25, 100))
    assert found["borne out"].tolist() == [False, True]
    words = verdict(found, NAMES, insist=False)
    assert words.alone == ("careful",)
    assert words.words.endswith("do not support the estimate at careful, and labels there stay as they are")
    assert (
        "20 % of the labels are wrong; a model of the features predicts 72 % of the labels, and contradicts 18 %"
        in words.words
    )


def test_a_few_surest_rows_of_a_site_do_not_condemn_it() -> None:
    """None of four is contradicted at the first site, which tells little; none of a hundred does."""
    others = (0.75, 0.25, 0.2, 100)
    assert judged((0.75, 0.0, 0.2, 4), others)["borne out"].tolist() == [True, True]
    assert judged((0.75, 0.0, 0.2, 100), others, others, others)["borne out"].tolist()[0] is False


def test_a_share_of_few_rows_counts_for_less() -> None:
    few, many = (below(torch.tensor(0.5), torch.tensor(float(n)), 1.5) for n in (25, 2500))
    assert float(few) == pytest.approx(0.5 - 1.5 * 0.1)
    assert float(many) == pytest.approx(0.5 - 1.5 * 0.01)


@pytest.mark.parametrize(("rows", "supported"), [(150, False), (200, True)])
def test_what_is_enough_of_many_rows_may_not_be_of_few(rows: int, supported: bool) -> None:
    assert judged((0.7, 0.24, 0.2, rows / 5), rows=rows)["borne out"].tolist() == [supported]


class Fitted:
    """Stands for the fit on the clean rows alone: it takes all four rows for class 0, the first one surely."""

    def clean_alone(self, server: Tree, updates: Updates, context: ServerView) -> Tree:
        return server | {"W": torch.ones(1), "logits": torch.tensor([[9.0, 0], [0.1, 0], [0.1, 0], [0.1, 0]]).double()}


def test_what_both_fits_say_of_the_clean_rows_and_how_far_out_these_lie() -> None:
    """The sites' ten rows have coordinates of mean square 3, the clean rows' is 17 / 4."""
    logits = torch.tensor([[0.0, 2], [0, 2], [0, 0.5], [3, 0]]).double()
    A = torch.tensor([[1.0, 1], [2, 2], [1, 2], [1, 1.0]]).double()
    y = torch.tensor([0, 1, 1, 0])
    server = {"A": A, "y": y, "logits": logits, "curvature": torch.diag(torch.tensor([18.0, 12.0])).double()}
    server["n"] = torch.tensor(10.0).double()
    nobody = Updates((), torch.ones(0), {})
    support = Support(Fitted())  # type: ignore[arg-type]
    found = support.fit_clean_rows(server, nobody, ServerView(sites=()))
    assert found["astray"].tolist() == [[True, False, False, False], [False, True, True, False]]
    first = logits.softmax(-1)[[0, 1, 2, 3], [1, 1, 1, 0]].mean()
    second = found["logits"].softmax(-1)[:, 0].mean()
    assert found["sure of clean"].tolist() == pytest.approx([float(first), float(second)])
    assert float(found["clean is wider"]) == pytest.approx((2 + 8 + 5 + 2) / 4 / 3)
    assert torch.equal(found["W of clean"], torch.ones(1))
    without = {"curvature": server["curvature"], "n": server["n"]}
    assert "clean is wider" not in support.fit_clean_rows(without, nobody, ServerView(sites=()))


# -- beside clean rows -------------------------------------------------------------------------------------------------

CLASSES_OF_CLEAN = torch.arange(4).repeat_interleave(100)
DOUBTFUL = {"predicted": 300, "surest": 100, "contradicted": 2, "doubted": 120}
"""Far more is claimed than the surest rows show: without clean rows, labels stay."""


def beside_clean(
    *sites: tuple[float, float],
    astray: tuple[int, int] = (40, 40),
    predicted: float = 300,
    sure: float = 0.9,
    wider: float = 1,
    claims: dict[str, int] = DOUBTFUL,
) -> Tree:
    """Sites of 500 rows: labels that the fit on the clean rows contradicts, and labels to be changed.

    The witness contradicts 200 labels of each; the last site's may be fewer. `astray`: clean rows that the probes do.
    """
    answers = []
    for k, (denied, changes) in enumerate(sites):
        sums = claims | {"denied": denied, "changes": changes}
        sums["predicted"] = predicted if k == len(sites) - 1 else 300
        answers.append({name: torch.tensor(number).double() for name, number in sums.items()})
        answers[-1] |= {"labels": torch.full((4,), 125.0).double(), "sureness": torch.tensor([500 * sure] * 2).double()}
    wrong = torch.stack([torch.arange(400) % 100 < number / 4 for number in astray])
    updates = Updates(tuple(range(len(sites))), torch.full((len(sites),), 500), {}, tuple(answers))
    server = POOLED | {"astray": wrong, "y": CLASSES_OF_CLEAN, "sure of clean": torch.tensor([0.9, 0.9]).double()}
    server["clean is wider"] = torch.tensor(wider)
    return SUPPORT.judge(server, updates, ServerView(sites=NAMES[: len(sites)]))


def test_clean_rows_show_how_much_is_noise_at_the_least() -> None:
    bound = float(upper_bound(torch.tensor([0.1]).double(), torch.tensor(400.0).double()))
    least = [share - 0.6745 * (share * (1 - share) / 500) ** 0.5 for share in (0.4, 0.5)]  # of 500 rows
    by_witness, by_clean_fit = ((share - bound) / (1 - bound) for share in least)
    assert float(beside_clean((100, 100))["shown"]) == pytest.approx(by_witness)
    assert float(beside_clean((250, 100))["shown"]) == pytest.approx(by_clean_fit)
    assert float(beside_clean((0, 100), astray=(240, 240))["shown"]) == 0


def test_clean_rows_bear_out_twice_the_noise_they_show_and_no_more() -> None:
    shown = float(beside_clean((0, 1))["shown"])
    assert beside_clean((0, 0))["borne out"].tolist() == [True]
    assert beside_clean((0, 500 * 2 * shown - 1))["borne out"].tolist() == [True]
    assert beside_clean((0, 500 * 2 * shown + 1))["borne out"].tolist() == [False]
    assert beside_clean((0, 0), astray=(240, 240))["borne out"].tolist() == [False]
    words = verdict(beside_clean((0, 1)), NAMES[:1], insist=False).words
    assert f"the clean rows show that at least {100 * shown:.0f} % are" in words


def test_clean_rows_bear_out_no_more_at_a_site_than_it_shows_itself() -> None:
    """The last site's labels are contradicted hardly more often than clean rows: 0.14 beside 0.1, so 0.044 is noise."""
    careful = {"predicted": 430, "astray": (40, 400)}
    own = (500 * (0.14 - 0.1) / 0.9 + 20 * float(beside_clean((0, 0), (0, 0), **careful)["shown"])) / 520
    for changes, borne_out in ((500 * 2 * own - 1, True), (500 * 2 * own + 1, False)):
        assert beside_clean((0, 50), (0, changes), **careful)["borne out"].tolist() == [True, borne_out]


def test_clean_rows_of_another_kind_are_not_asked() -> None:
    assert beside_clean((0, 0), sure=0.81)["borne out"].tolist() == [True]
    assert beside_clean((0, 0), wider=1.9)["borne out"].tolist() == [True]
    for found in (beside_clean((0, 0), sure=0.79), beside_clean((0, 0), wider=2.1)):
        assert found["borne out"].tolist() == [False]
        assert float(found["shown"]) == 0


def test_clean_rows_do_not_speak_for_a_witness_that_is_of_no_use() -> None:
    """Of the labels held to be right it predicts 0.65 and 0.59, above chance."""
    assert beside_clean((0, 0), predicted=290)["borne out"].tolist() == [True]
    assert beside_clean((0, 0), predicted=275)["borne out"].tolist() == [False]


def test_where_clean_rows_show_no_noise_labels_stay() -> None:
    """What the features bear out by themselves they do not bear out against clean rows, unless these are not asked."""
    even = {"predicted": 375, "surest": 100, "contradicted": 20, "doubted": 100}
    nothing: dict[str, Any] = {"astray": (240, 240), "predicted": 375, "claims": even}
    assert beside_clean((0, 400), **nothing)["borne out"].tolist() == [False]
    assert beside_clean((0, 400), **nothing, wider=2.1)["borne out"].tolist() == [True]


def test_rates_of_classes_and_of_one_without_clean_rows() -> None:
    y, astray = torch.tensor([0, 0, 0, 0, 2]), torch.tensor([[True, False, False, False, True]])
    assert rates(astray, y, 3).tolist() == [[0.25, 1.0, 1.0]]
    assert rates(~astray, y, 3).tolist() == [[0.75, 1.0, 0.0]]


def test_clean_rows_count_as_their_classes_do_at_the_sites() -> None:
    """Right labels of class 1 are often contradicted; sites with twice as many of them expect more of it."""
    y = torch.tensor([0] * 50 + [1] * 50)
    astray = torch.tensor([[False] * 50 + [True] * 10 + [False] * 40])
    shares = torch.tensor([1 / 3, 2 / 3]).double()
    rows = 1 / (50 * ((1 / 150) ** 2 + (2 / 150) ** 2))
    wanted = upper_bound(torch.tensor([2 / 3 * 0.2]).double(), torch.tensor(rows).double())
    assert torch.allclose(contradicted_if_right(astray, y, shares), wanted)


def test_of_a_class_without_clean_rows_all_labels_might_be_contradicted() -> None:
    y, astray = torch.zeros(50, dtype=torch.long), torch.zeros(1, 50, dtype=torch.bool)
    few = upper_bound(torch.zeros(1).double(), torch.tensor(50.0).double())
    bound = contradicted_if_right(astray, y, torch.tensor([0.7, 0.3]).double())
    assert torch.allclose(bound, 0.7 * few + 0.3)


def test_next_to_no_noise_needs_no_support() -> None:
    found = judged((0.99, 0.0, 0.001, 100), (0.99, 0.0, 0.2, 100))
    assert verdict(found, NAMES, insist=False).alone == ("hasty",)
    quiet = verdict(judged((0.99, 0.0, 0.001, 100)), NAMES[:1], insist=False)
    assert quiet.alone == ()


def test_a_site_cannot_claim_more_rows_than_it_has() -> None:
    found = judged((1e9, 0.2, -7.0, 1e9))
    assert float(found["agreement"]) == 1
    assert float(found["claimed"]) == 0


def test_sites_send_the_surest_fifth_of_their_rows() -> None:
    g = torch.tensor([0, 1, 1, 1, 0, 2])
    memory = {
        "prediction": torch.tensor([0, 1, 0, 1, 1, 2]),
        "sureness": torch.tensor([0.4, 0.5, 0.9, 0.3, 0.8, 0.7]).double(),
        "Q": torch.full((6, 4), 0.25).double(),
    }
    sent = SUPPORT.compare(SiteView(0, torch.empty(6, 0), Exact(g, 4), {}, memory))
    assert {name: float(number) for name, number in sent.items()} == {
        "predicted": 4,
        "surest": 2,
        "contradicted": 2,  # rows 2 and 4
        "doubted": 4.5,
    }


# -- whole repairs -----------------------------------------------------------------------------------------------------


def federation(x: Tensor, given: Tensor, trusted: Trusted | None = None) -> Federation:
    n, ids = len(x), tuple(map(str, range(len(x))))
    return Federation("four", x, Exact(given, 4), (0, n // 2, n), NAMES, tuple("abcd"), ids, x[:0], trusted=trusted)


def chance(clean: bool = False) -> Federation:
    """Features of pure chance and labels that are all right."""
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(440, 6, generator=draw), torch.randint(4, (440,), generator=draw)
    return federation(x[:400], y[:400], Trusted(x[400:], Exact(y[400:], 4)) if clean else None)


@cache
def repaired(clean: bool, insist: bool) -> RepairResult:
    return repair_labels(PosteriorRepair(features="raw", insist=insist), chance(clean))[1]


@pytest.mark.parametrize("clean", [False, True])
def test_features_of_pure_chance_change_nothing(clean: bool) -> None:
    found = repaired(clean, insist=False)
    assert torch.equal(found.decided, found.given)
    assert found.verdict is not None
    assert found.verdict.alone == NAMES
    assert "the classes overlap in these features, and all labels stay as they are" in found.notes[1]
    suspected = any("is more probable" in reason for reason in found.reason)
    assert suspected == any(reason.endswith("the features do not support it") for reason in found.reason)


def test_who_insists_is_obeyed() -> None:
    found = repaired(clean=False, insist=True)
    assert (found.decided != found.given).double().mean() > 0.2
    assert found.verdict is not None
    assert found.verdict.words.endswith("the classes overlap in these features")
    assert found.verdict.figures == repaired(clean=False, insist=False).verdict.figures  # type: ignore[union-attr]


def test_soft_targets_are_the_labels_as_given_where_nothing_is_borne_out() -> None:
    given = chance()
    mended, _ = repair_labels(PosteriorRepair(features="raw"), given, Probabilities)
    assert torch.equal(mended.labels.values, torch.eye(4)[given.labels.values])


def test_clean_rows_decide_where_classes_overlap() -> None:
    """Noise among classes that overlap is repaired with clean rows, and left alone without."""
    draw = torch.Generator().manual_seed(3)
    y = torch.randint(4, (900,), generator=draw)
    x = torch.randn(4, 6, generator=draw)[y] + 0.9 * torch.randn(900, 6, generator=draw)
    given = torch.where(torch.rand(900, generator=draw) < 0.4, (y + 1) % 4, y)
    sites = federation(x[:600], given[:600], Trusted(x[600:], Exact(y[600:], 4)))
    repair = PosteriorRepair(features="raw")
    found = [repair_labels(replace(repair, clean_rows=rows), sites)[1] for rows in ("auto", "ignore")]
    assert [len(one.verdict.alone) for one in found if one.verdict is not None] == [0, 2]
    with_clean, without = (float((one.decided != y[:600]).double().mean()) for one in found)
    assert without > 0.35
    assert with_clean < 0.1
    assert found[0].verdict is not None
    assert found[0].verdict.figures["shown"] > 0.2


def test_clear_classes_are_repaired() -> None:
    draw = torch.Generator().manual_seed(1)
    y = torch.randint(4, (400,), generator=draw)
    x = 2 * torch.randn(4, 6, generator=draw)[y] + 0.5 * torch.randn(400, 6, generator=draw)
    given = torch.where(torch.rand(400, generator=draw) < 0.2, (y + 1) % 4, y)
    _, found = repair_labels(PosteriorRepair(features="raw"), federation(x, given))
    assert (given != y).double().mean() > 0.15
    assert (found.decided != y).double().mean() < 0.01
    assert found.verdict is not None
    assert found.verdict.words.endswith("the features tell the classes apart")
