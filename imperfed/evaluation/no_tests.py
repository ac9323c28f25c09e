"""An evaluator for runs that must not see test rows."""

from __future__ import annotations

from collections.abc import Collection

import torch

from imperfed.core.network import Net
from imperfed.engine.population import Scores


class NoTests:
    """An evaluator without test rows: a search never sees them."""

    sites = 0
    figure_names: tuple[tuple[str, ...], ...] = ()

    def site(self, site: int, net: Net) -> Scores:
        """Return nothing."""
        return {}

    def common(self, net: Net) -> Scores:
        """Return nothing."""
        return {}

    def to(self, device: torch.device) -> NoTests:
        """Return itself."""
        return self

    def of_sites(self, sites: Collection[int], common: bool) -> NoTests:
        """Return itself."""
        return self
