"""Differential privacy by Gaussian noise: what it costs, and private steps of the sites on their rows of W.

FedALC (An et al., Sec. IV-E) asks for noise in the gradients of the class embeddings at the server, as federated
averaging with a bound for each client has it (McMahan et al., "Learning differentially private recurrent language
models", ICLR 2018).

    symbol     where it lives                                             does it travel
    Delta_k    how far site k moves its rows of W in a round, as a whole  up
    S          clip_w                                                     never
    sigma      noise_w                                                    never
    T_c        server["released"], rounds in which row c was moved        never

The unit is a site. Its part of row c is s_kc Delta_kc, s_kc = n_kc / n_c, and the noise on every number of that row has
the spread sigma S max_k s_kc. Measured in that spread, W with Delta_k and W with 0 in its place are at most
|Delta_k| / (sigma S) apart, and the bound on Delta_k makes that 1 / sigma: the Gaussian mechanism, once a round. Which
site holds which class, in how many rows, and who is on duty count as known, so no round is cheaper for taking only some
sites. All that the server then does to W follows from what is private already. Theta is released without noise: the
guarantee is of what the steps on W tell beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.errors import UsageError, not_negative, positive

RELEASED = "released"


@dataclass(frozen=True)
class PrivateRows:
    """The settings of private steps on rows of W; without noise nothing is bounded either."""

    noise_w: float = 0.0  # sigma: noise multiplier of private steps on rows of W; 0: steps as they are
    clip_w: float = 0.001  # S: private steps: the most that a site moves its rows of W in a round
    delta: float = 1e-5  # delta of (epsilon, delta)

    def check_private(self) -> None:
        """Refuse settings that mean nothing."""
        not_negative("method", noise_w=self.noise_w)
        positive("method", clip_w=self.clip_w, delta=self.delta)
        if self.noise_w:
            accounting()

    def nothing_released(self, label: Tensor, classes: int, one_pass: bool) -> Tree:
        """What the server remembers before round 0, given the classes that all sites hold."""
        if not self.noise_w:
            return {}
        if one_pass and len(label.unique()) < len(label):
            raise UsageError(
                "noise_w bounds what each site does to a row of W, and one pass shows only the sum where several sites "
                "hold a class; set one_pass=false, or give every class to one site (split.partition=label)"
            )
        return {RELEASED: label.new_zeros(classes)}

    def bounded(self, change: Tensor, at: Tensor) -> Tensor:
        """Delta_k min(1, S / |Delta_k|), given in rows; `at` says whose each is."""
        if not self.noise_w:
            return change
        length = change.new_zeros(len(at)).index_add_(0, at, change.square().sum(1)).sqrt()  # over all rows of a site
        return change * (self.clip_w / length.clamp(min=self.clip_w))[at].unsqueeze(1)

    def release(self, server: Tree, W: Tensor, largest: Tensor, draw: torch.Generator) -> tuple[Tensor, Tree]:
        """W with noise, and how often each row has been moved; `largest`: max_k s_kc, 0 where nobody moved row c."""
        if not self.noise_w:
            return W, {}
        noise = torch.randn(W.shape, generator=draw, dtype=W.dtype).to(W.device)
        W = W + self.noise_w * self.clip_w * largest.unsqueeze(1) * noise
        return W, {RELEASED: server[RELEASED] + (largest > 0)}

    def spent_on_rows(self, server: Tree) -> dict[str, float]:
        """What the summary says of it: a site can show itself in a row as often as that was moved."""
        if RELEASED not in server:
            return {}
        releases = int(server[RELEASED].max())
        return {"epsilon_w": spent(self.noise_w, self.delta, releases), "delta": self.delta, "releases_w": releases}


def accounting() -> Any:
    """Return the package that counts what noise costs; without it nothing is made private."""
    try:
        import dp_accounting.rdp
    except ImportError:
        raise UsageError(
            "noise needs dp-accounting, which says how private the result is; install imperfed[dp]"
        ) from None
    return dp_accounting


def spent(noise: float, delta: float, releases: int = 1) -> float:
    """Return epsilon of so many releases with this noise multiplier, by Rényi differential privacy.

    Every site is in each release, so that nothing is gained by chance.
    """
    if not releases:
        return 0.0
    dp = accounting()
    return float(dp.rdp.RdpAccountant().compose(dp.GaussianDpEvent(noise), releases).get_epsilon(delta))
