"""Who rewrites which rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from imperfed.core.components import Attack, apply_attack
from imperfed.core.errors import UsageError
from imperfed.core.federation import Attribute
from imperfed.core.labels import Exact, Labels
from imperfed.testing.toy import world


@dataclass(frozen=True)
class Shifting(Attack):
    """Adds 1 to every input and takes the next class for every label."""

    name: ClassVar[str] = "shifting"

    def rewrite(
        self, x: Tensor, labels: Labels, attribute: Attribute | None, classes: tuple[str, ...]
    ) -> tuple[Tensor, Labels, str]:
        return x + 1, Exact((labels.values + 1) % labels.classes, labels.classes), f"{len(x)} rows shifted"


def test_only_the_adversaries_rows_change() -> None:
    federation, _ = world(Exact)
    before = federation.x.clone()
    done = apply_attack(Shifting(adversaries=2), federation, torch.Generator().manual_seed(0))
    assert len(done.adversaries) == len(done.notes) == 2
    for k in range(4):
        a, b = federation.starts[k], federation.starts[k + 1]
        shifted = float(k in done.adversaries)
        assert torch.equal(done.federation.x[a:b], before[a:b] + shifted)
        assert torch.equal(done.federation.labels.values[a:b], (federation.labels.values[a:b] + int(shifted)) % 4)
    assert torch.equal(federation.x, before)
    assert (
        done.notes[0]
        == f"shifting at site{done.adversaries[0]}: {federation.sizes()[done.adversaries[0]]} rows shifted"
    )


def test_an_example_at_several_sites_is_rewritten_at_the_adversarys_only() -> None:
    federation, _ = world(Exact)
    at = torch.arange(89)
    at[12:20] = at[:8]  # eight examples of site 0 sit at site 1, too
    done = apply_attack(Shifting(adversaries=1), replace(federation, at=at), torch.Generator().manual_seed(0))
    for k in range(4):
        a, b = federation.starts[k], federation.starts[k + 1]
        assert torch.equal(done.federation.inputs(a, b), federation.x[at[a:b]] + float(k in done.adversaries))


def test_somebody_must_be_honest() -> None:
    with pytest.raises(UsageError, match=r"adversaries is 4, but there are 4 sites; leave some honest"):
        apply_attack(Shifting(adversaries=4), world(Exact)[0], torch.Generator())
