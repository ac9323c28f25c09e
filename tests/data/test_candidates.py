"""Generators of candidate sets: uniform (B.1), by flips (B.2), by a matrix (B.3), and what holds for all of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from imperfed.core.errors import DataError, UsageError
from imperfed.data.corruption.candidates import candidate_generators
from imperfed.data.corruption.candidates.base import draw_each
from imperfed.data.corruption.candidates.flip import EDGES, FlippedSets
from imperfed.data.corruption.candidates.given_sets import GivenSets
from imperfed.data.corruption.candidates.instance import InstanceSets
from imperfed.data.corruption.candidates.matrix import MatrixSets
from imperfed.data.corruption.candidates.uniform_sets import UniformSets
from imperfed.data.dataset import Dataset
from imperfed.data.federate import federate
from imperfed.data.labelling import LabelConfig
from imperfed.data.partitions.iid import IIDPartition
from imperfed.data.split import SplitConfig
from tests.support.drawn_sets import assert_holds_truth, generate, rng, truth

MANY = 200_000
SIZES = {
    "exact": [0.001957, 0.017613, 0.070450, 0.164384, 0.246575, 0.246575, 0.164384, 0.070450, 0.017613],
    "authors": [0.009785, 0.044031, 0.117417, 0.205479, 0.246575, 0.205479, 0.117417, 0.044031, 0.009785],
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def uniform(y, classes, law, generator):
    return UniformSets(law).draw(y, classes, generator)


def flip(y, classes, q, edge, generator):
    return FlippedSets(q, edge).draw(y, classes, generator)


def flipping_matrix(matrix, classes, q):
    return MatrixSets(matrix, q).flipping_matrix(classes)


# -- uniform (B.1) -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["exact", "authors"])
def test_uniform_sizes_follow_their_law(mode):
    sizes = uniform(truth(MANY, 10), 10, mode, rng()).sum(1)
    shares = np.bincount(sizes, minlength=11) / MANY
    assert shares[0] == shares[10] == 0
    assert shares[1:10] == pytest.approx(SIZES[mode], abs=0.004)
    weights = [comb(9, s - 1) / (2**9 - 1) if mode == "exact" else comb(10, s) / (2**10 - 2) for s in range(1, 10)]
    assert weights == pytest.approx(SIZES[mode], abs=1e-6)


@pytest.mark.parametrize(
    ("classes", "mode", "mean"),
    [
        (10, "exact", 5.491194),
        (10, "authors", 5.0),
        (3, "exact", 1.666667),
        (3, "authors", 1.5),
        (100, "exact", 50.5),
        (100, "authors", 50.0),
    ],
)
def test_uniform_mean_sizes(classes, mode, mean):
    n = MANY // 10
    sizes = uniform(truth(n, classes), classes, mode, rng(1)).sum(1)
    assert sizes.mean() == pytest.approx(mean, abs=5 * 0.5 * classes**0.5 / n**0.5)


def test_uniform_gives_every_set_but_the_full_one_equally_often():
    y = np.full(MANY, 2)
    codes = uniform(y, 4, "exact", rng(2)) @ (1 << np.arange(4))
    possible = [code for code in range(16) if code & 4 and code != 15]
    assert sorted(set(codes)) == possible
    assert np.bincount(codes)[possible] / MANY == pytest.approx(1 / 7, abs=0.005)


def test_uniform_authors_chooses_wrong_classes_evenly():
    sets = uniform(np.full(MANY, 1), 4, "authors", rng(3))
    # Given the size s, each of the three wrong classes is in with probability (s - 1) / 3; the mean size is 2.
    assert sets.mean(0) == pytest.approx([1 / 3, 1.0, 1 / 3, 1 / 3], abs=0.006)


# -- flip (B.2) --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("q", "raw", "min2", "nofull"),
    [
        (0.1, 1.9, 2.287420, 1.9),
        (0.3, 3.7, 3.740354, 3.699980),
        (0.5, 5.5, 5.501953, 5.498047),
        (0.7, 7.3, 7.300020, 7.259646),
    ],
)
def test_flip_mean_sizes_and_edges(q, raw, min2, nofull):
    y = truth(MANY, 10)
    for edge, mean in (("raw", raw), ("min2", min2), ("nofull", nofull)):
        sets = flip(y, 10, q, edge, rng(4))
        assert_holds_truth(sets, y)
        assert sets.sum(1).mean() == pytest.approx(mean, abs=0.015)
    same = rng(4).random((MANY, 10)) < q
    same[np.arange(MANY), y] = True
    # The edge rules touch the edge rows only, and by one class.
    added = flip(y, 10, q, "min2", rng(4)).sum(1) - same.sum(1)
    dropped = same.sum(1) - flip(y, 10, q, "nofull", rng(4)).sum(1)
    assert np.array_equal(added, same.sum(1) == 1)
    assert np.array_equal(dropped, same.all(1))


def test_flip_edge_classes_are_uniform():
    lonely = flip(np.full(MANY, 3), 5, 0.0, "min2", rng(5))
    assert lonely.mean(0) == pytest.approx([0.25, 0.25, 0.25, 1.0, 0.25], abs=0.005)
    crowded = flip(np.full(MANY, 3), 5, 1.0, "nofull", rng(5))
    assert crowded.mean(0) == pytest.approx([0.75, 0.75, 0.75, 1.0, 0.75], abs=0.005)


@pytest.mark.parametrize(("q", "raw", "min2"), [(0.01, 1.99, 2.359730), (0.05, 5.95, 5.956232), (0.1, 10.9, 10.900030)])
def test_flip_mean_sizes_of_a_hundred_classes(q, raw, min2):
    y = truth(MANY // 10, 100)
    assert flip(y, 100, q, "raw", rng(6)).sum(1).mean() == pytest.approx(raw, abs=0.09)
    assert flip(y, 100, q, "min2", rng(6)).sum(1).mean() == pytest.approx(min2, abs=0.09)


# -- matrix (B.3) ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "q", "mean"), [("pair", 0.5, 1.5), ("neighbour", 0.3, 1.6), ("band", 0, 2.8), ("dense", 0, 5.0)]
)
def test_flipping_matrices_have_their_row_sums(preset, q, mean):
    T = flipping_matrix(preset, 10, q)
    assert T.sum(1) == pytest.approx(mean)
    assert np.diag(T) == pytest.approx(1.0)
    sets = draw_each(T[truth(MANY, 10)], truth(MANY, 10), rng(7))
    assert sets.sum(1).mean() == pytest.approx(mean, abs=0.02)


def test_flipping_matrices_entry_by_entry():
    assert flipping_matrix("pair", 4, 0.7)[3].tolist() == [0.7, 0, 0, 1]
    assert flipping_matrix("neighbour", 4, 0.7)[0].tolist() == [1, 0.7, 0, 0.7]
    assert flipping_matrix("band", 10, 0)[1].tolist() == [0.5, 1, 0.5, 0.3, 0.1, 0, 0, 0, 0.1, 0.3]
    assert flipping_matrix("dense", 10, 0)[9].tolist() == [0.2, 0.8, 0.8, 0.8, 0.4, 0.4, 0.2, 0.2, 0.2, 1]


def test_a_row_of_the_matrix_is_the_chance_of_each_class():
    T = flipping_matrix("dense", 10, 0)
    y = np.full(MANY, 9)
    assert draw_each(T[y], y, rng(8)).mean(0) == pytest.approx(T[9], abs=0.006)


# -- every generator ---------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(
    generator=st.one_of(
        st.builds(UniformSets, uniform=st.sampled_from(["exact", "authors"])),
        st.builds(FlippedSets, flip=st.floats(0, 1), edge=st.sampled_from(EDGES)),
        st.builds(MatrixSets, matrix=st.just("pair"), matrix_q=st.floats(0, 1)),
    ),
    classes=st.integers(2, 12),
    seed=st.integers(0, 2**32),
)
def test_the_true_class_is_always_a_candidate(generator, classes, seed):
    y = torch.from_numpy(truth(100, classes, seed))
    labels, facts = generate(generator, torch.zeros(100, 1), y, classes, seed)
    assert facts == {}
    sets = labels.values.numpy()
    assert sets.shape == (100, classes)
    assert_holds_truth(sets, y.numpy())
    if isinstance(generator, UniformSets) or generator == FlippedSets(getattr(generator, "flip", 0.3), "nofull"):
        assert not sets.all(1).any()
    if isinstance(generator, FlippedSets) and generator.edge == "min2":
        assert (sets.sum(1) >= 2).all()


@pytest.mark.parametrize(
    ("generator", "settings", "message"),
    [
        (UniformSets, {"uniform": "exat"}, "Did you mean 'exact'"),
        (FlippedSets, {"flip": 1.5}, r"flip must lie in 0 \.\. 1; got 1.5"),
        (FlippedSets, {"edge": "min3"}, "Did you mean 'min2'"),
        (MatrixSets, {"matrix": "bnad"}, "Did you mean 'band'"),
        (MatrixSets, {"matrix": "pair", "matrix_q": -0.1}, "matrix_q must lie in"),
        (MatrixSets, {"matrix": "band"}, "more than 6 classes; the data have 4; use pair"),
        (InstanceSets, {"rho": -1.0}, "rho must lie in"),
        (InstanceSets, {"normalise": "mena"}, "Did you mean 'mean'"),
        (InstanceSets, {"temperature": 0.0}, "temperature must be positive"),
        (InstanceSets, {"temperature": 2.0, "mean_size": 3.0}, "set mean_size = 0"),
    ],
)
def test_settings_that_make_no_sense_are_named(generator, settings, message):
    with pytest.raises(UsageError, match=message):
        generate(generator(**settings), torch.randn(40, 3), torch.arange(40) % 4, 4)


@pytest.mark.parametrize("name", candidate_generators())
def test_every_generator_is_repeatable_and_says_what_it_lacks(name):
    generator = candidate_generators()[name]()
    sets = torch.eye(10, dtype=torch.bool)[torch.arange(40) % 10]
    data = Dataset("d", torch.randn(40, 3), torch.arange(40) % 10, sets, tuple("0123456789"))
    one, again = (generator.generate(data, 0, rng(1)) for _ in range(2))
    assert torch.equal(one[0].values, again[0].values)
    assert one[1] == again[1]
    assert_holds_truth(one[0].values.numpy(), np.arange(40) % 10)
    with pytest.raises(DataError, match="no candidate sets come with" if name == "given" else "no true classes"):
        generator.generate(replace(data, y=None, candidates=None), 0, rng())


def test_sets_that_came_with_the_data_are_left_as_they_are():
    sets = torch.tensor([[True, True, False], [False, True, True]])
    data = Dataset("d", torch.zeros(2, 1), torch.tensor([0, 1]), sets, ("a", "b", "c"))
    assert GivenSets().generate(data, 0, rng())[0].values is sets


def test_one_class_has_no_candidates():
    alike = Dataset("alike", torch.ones(9, 1), torch.zeros(9, dtype=torch.int64), None, ("only",))
    with pytest.raises(DataError, match="alike: candidate sets need at least two classes"):
        federate(alike, SplitConfig(2, IIDPartition()), LabelConfig(candidates=UniformSets()), 0)


def test_labels_of_a_preset_differ_by_seed_and_repeat():
    y = truth(200, 6)
    for seed, other in product((1, 2), repeat=2):
        assert np.array_equal(flip(y, 6, 0.3, "min2", rng(seed)), flip(y, 6, 0.3, "min2", rng(other))) == (
            seed == other
        )


@pytest.mark.parametrize("generator", [FlippedSets(), UniformSets(), MatrixSets("pair"), InstanceSets()])
def test_rows_of_several_classes_have_no_candidate_sets(generator):
    several = Dataset("several", torch.rand(8, 2), torch.ones(8, 3, dtype=torch.int8), None, ("a", "b", "c"))
    labelling = LabelConfig(kind="candidates", candidates=generator)
    with pytest.raises(DataError, match="several: candidate sets need one true class per row, which the data do not"):
        federate(several, SplitConfig(sites=2, partition=IIDPartition()), labelling, 0)
