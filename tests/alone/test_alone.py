"""What a site can do alone: stored models predict as scikit-learn does, for labels of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from imperfed.alone import AloneModel, SiteModel, alone_models, fit
from imperfed.alone.boosting import Boosting
from imperfed.alone.forest import Forest
from imperfed.alone.logistic import Logistic
from imperfed.alone.trained_network import NetworkAlone
from imperfed.core.labels import Annotated, Candidates, Exact, Labels, Memberships, Positive, Positives


def rows(n: int = 120, k: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(k, (n,), generator=draw)
    return torch.randn(n, 5, generator=draw) + 1.5 * torch.eye(k, 5)[y], y


def weights(n: int) -> Any:
    return np.linspace(0.2, 2.0, n)


@pytest.mark.parametrize("k", [2, 4])
def test_a_stored_forest_predicts_as_scikit_learn_does(k: int) -> None:
    x, y = rows(k=k)
    ours = Forest(trees=7).fit_examples(x.double().numpy(), y.numpy(), weights(len(x)), seed=3)
    model = RandomForestClassifier(7, random_state=3).fit(x.numpy(), y.numpy(), sample_weight=weights(len(x)))
    np.testing.assert_allclose(ours.probabilities(x).numpy(), model.predict_proba(x.numpy()), atol=1e-6)


@pytest.mark.parametrize("k", [2, 4])
def test_stored_boosting_predicts_as_scikit_learn_does(k: int) -> None:
    x, y = rows(k=k)
    ours = Boosting(rounds=9).fit_examples(x.double().numpy(), y.numpy(), weights(len(x)), seed=3)
    model = HistGradientBoostingClassifier(
        max_iter=9, min_samples_leaf=len(x) // 20, early_stopping=False, random_state=3
    ).fit(x.double().numpy(), y.numpy(), sample_weight=weights(len(x)))
    new, _ = rows(seed=1, k=k)
    np.testing.assert_allclose(ours.probabilities(new).numpy(), model.predict_proba(new.double().numpy()), atol=1e-6)


@pytest.mark.parametrize("k", [2, 4])
def test_stored_logistic_regression_predicts_as_scikit_learn_does(k: int) -> None:
    x, y = rows(k=k)
    x = torch.cat([30 + 7 * x, torch.full((len(x), 1), 4.0)], 1)  # other units, and a constant column
    ours = Logistic(penalty=2.0).fit_examples(x.double().numpy(), y.numpy(), np.ones(len(x)), seed=0)
    scaled = ((x - x.mean(0)) / x.std(0, correction=0).clamp(min=1e-9)).double().numpy()
    model = LogisticRegression(C=0.5, max_iter=300).fit(scaled, y.numpy())
    np.testing.assert_allclose(ours.probabilities(x).numpy(), model.predict_proba(scaled), atol=1e-4)


def labels_of(kind: type[Labels], y: torch.Tensor, k: int) -> Labels:
    """Labels of this kind that name the true class, and more where the kind allows it."""
    marks = torch.eye(k)[y]
    if kind in (Exact, Positive):
        return kind(y, k)
    if kind is Annotated:
        values = marks.to(torch.int8)
        values[::3, 0] = -1
        return Annotated(values, k)
    marks[::2] = torch.maximum(marks[::2], torch.eye(k)[(y[::2] + 1) % 3] * (1.0 if kind is Candidates else 0.0))
    return kind(marks.to(kind.dtype), k)


@pytest.mark.parametrize("name", sorted(alone_models()))
@pytest.mark.parametrize("kind", [Exact, Candidates, Memberships, Annotated, Positives, Positive])
def test_every_family_learns_from_every_kind_and_is_stored_as_numbers(name: str, kind: type[Labels]) -> None:
    x, y = rows()
    model = fit(small(name), x, labels_of(kind, y, 4), seed=0)  # class 3 is never seen
    stored = SiteModel.of(load(save({name: t.contiguous() for name, t in model.tensors().items()})))
    p = stored.probabilities(x)
    assert p.shape == (len(x), 4)
    assert torch.equal(p, model.probabilities(x))
    assert (p[:, 3] == 0).all()
    assert float((p.argmax(1) == y).float().mean()) > 0.6
    if not kind.several:
        torch.testing.assert_close(p.sum(1), torch.ones(len(x)))


def small(name: str) -> AloneModel:
    sizes: dict[str, dict[str, int]] = {"forest": {"trees": 10}, "boosting": {"rounds": 10}}
    return alone_models()[name](**sizes.get(name, {}))


def test_one_class_leaves_nothing_to_learn() -> None:
    x, _ = rows(n=6)
    p = fit(Forest(), x, Exact(torch.full((6,), 2), 4), seed=0).probabilities(x)
    assert p.tolist() == [[0, 0, 1, 0]] * 6


def test_a_class_that_nobody_marked_is_an_even_bet() -> None:
    x, y = rows(n=40)
    values = torch.eye(4)[y].to(torch.int8)
    values[:, 1] = -1
    p = fit(Logistic(), x, Annotated(values, 4), seed=0).probabilities(x)
    assert (p[:, 1] == 0.5).all()
    assert (p[:, 3] == 0).all()


def test_candidates_share_the_weight_of_their_row() -> None:
    labels = Candidates(torch.tensor([[True, True, False], [False, False, True]]), 3)
    row, named, weight = labels.weighted_examples()
    assert (row.tolist(), named.tolist(), weight.tolist()) == ([0, 0, 1], [0, 1, 2], [0.5, 0.5, 1.0])
    degrees = Memberships(torch.tensor([[0.2, 0.6, 0.0]]), 3).weighted_examples()[2]
    torch.testing.assert_close(degrees, torch.tensor([0.25, 0.75]))


def test_a_network_is_shortened_to_a_share_of_its_rounds() -> None:
    whole = NetworkAlone(lr=0.1)
    assert whole.shortened(0.25) == NetworkAlone(lr=0.1, rounds=15)
    assert whole.shortened(0.25).steps(100) == whole.steps(100) / 4
    assert whole.shortened(0.0).rounds == 3
    assert Forest().shortened(0.1) == Forest()


def test_rounds_end_where_they_were_cut() -> None:
    x, y = rows()
    (part,) = NetworkAlone(rounds=2).fit(x, Exact(y, 3), 0)
    (same,) = NetworkAlone(rounds=3).fit(x[:20], Exact(y[:20], 3), 0)  # too few rows to set some aside
    (more,) = NetworkAlone(rounds=12).fit(x[:20], Exact(y[:20], 3), 0)
    (most,) = NetworkAlone(rounds=60).fit(x[:20], Exact(y[:20], 3), 0)
    assert part.fitted.tensors()["row"].isfinite().all()
    assert torch.equal(more.fitted.tensors()["row"], most.fitted.tensors()["row"])
    assert not torch.equal(same.fitted.tensors()["row"], most.fitted.tensors()["row"])


def test_only_a_loss_that_decides_makes_a_network_decide() -> None:
    decide = [NetworkAlone(objective=name).resolves for name in ("", "cc", "average-ce")]
    assert decide == [True, True, False]
    assert not Forest().resolves


def test_images_are_taken_pixel_by_pixel() -> None:
    x, y = rows()
    image = x.view(len(x), 1, 5, 1)
    labels = Exact(y, 3)
    assert torch.equal(
        fit(Logistic(), image, labels, seed=0).probabilities(image), fit(Logistic(), x, labels, seed=0).probabilities(x)
    )
