"""The network trained on true classes, by which instance-dependent sets are drawn, and its cache."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from imperfed.data.corruption.candidates import clean_network
from imperfed.data.corruption.candidates.clean_network import clean_logits


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "imperfed" / "clean"


def blobs(n=600, classes=5):
    y = torch.arange(n) % classes
    noise = torch.Generator().manual_seed(0)
    x = torch.eye(classes)[y].repeat(1, 2) * 3 + torch.randn(n, 2 * classes, generator=noise)
    return torch.cat([x, torch.full((n, 1), 7.0)], 1), y  # the last column is constant


def test_the_clean_network_learns_and_repeats_itself(cache):
    x, y = blobs()
    before, state = torch.get_num_threads(), torch.get_rng_state()
    first = clean_logits(x, y, 5, 0)
    assert (first.argmax(1) == y.numpy()).mean() > 0.97
    assert torch.get_num_threads() == before
    assert torch.equal(torch.get_rng_state(), state)
    (kept,) = cache.iterdir()
    kept.unlink()
    torch.set_num_threads(before + 1)
    try:
        assert np.array_equal(clean_logits(x, y, 5, 0), first)
    finally:
        torch.set_num_threads(before)
    assert not np.array_equal(clean_logits(x, y, 5, 1), first)


def test_what_was_kept_is_used_and_only_for_the_same_data(cache, monkeypatch):
    x, y = blobs(60)
    first = clean_logits(x, y, 5, 0)
    trained = []
    monkeypatch.setattr(
        clean_network, "train_clean", lambda x, y, c, s: trained.append(s) or np.zeros((60, 5), np.float32)
    )
    assert np.array_equal(clean_logits(x, y, 5, 0), first)
    assert trained == []
    clean_logits(x + 1, y, 5, 0)
    clean_logits(x, (y + 1) % 5, 5, 0)
    clean_logits(x, y, 5, 7)
    assert trained == [0, 0, 7]
    assert len(list(cache.iterdir())) == 4


@pytest.mark.parametrize("damage", [b"", b"no numbers", "half", "other shape"])
def test_a_damaged_file_is_made_anew(cache, damage):
    x, y = blobs(60)
    first = clean_logits(x, y, 5, 0)
    (kept,) = cache.iterdir()
    if damage == "other shape":
        np.save(kept, first[:-1])
    else:
        kept.write_bytes(kept.read_bytes()[:700] if damage == "half" else damage)
    assert np.array_equal(clean_logits(x, y, 5, 0), first)
    assert np.array_equal(np.load(kept), first)


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("a file, not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    x, y = blobs(60)
    assert np.isfinite(clean_logits(x, y, 5, 0)).all()
