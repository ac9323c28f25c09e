"""Differential privacy by Gaussian noise: the privacy cost, and private updates of the sites' rows of W.

FedALC (An et al., Sec. IV-E) asks for noise in the gradients of the class embeddings at the server, as in federated
averaging with a bound per client (McMahan et al., "Learning differentially private recurrent language models", ICLR
2018).

    symbol     where it lives                                             does it travel
    Delta_k    the change of all of site k's rows of W in a round         up
    S          clip_w                                                     never
    sigma      noise_w                                                    never
    T_c        server["released"], rounds in which row c was moved        never

The unit of privacy is a site. It contributes s_kc Delta_kc to row c, with s_kc = n_kc / n_c, and the noise on every
entry of that row has the standard deviation sigma S max_k s_kc. Measured in those standard deviations, W with Delta_k
and W with 0 in its place are at most |Delta_k| / (sigma S) apart, and clipping Delta_k bounds that by 1 / sigma: the
Gaussian mechanism, once per round. Which site holds which class, in how many rows, and which sites take part count as
known, so sampling sites makes no round cheaper. Whatever the server then does to W is post-processing of private
values. Theta is released without noise: the guarantee covers only what the updates of W reveal beyond theta.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.errors import UsageError, not_negative, positive
from imperfed.core.privacy_cost import accounting, spent

RELEASED = "released"


@dataclass(frozen=True)
class PrivateRows:
    """The settings of private updates of rows of W; without noise nothing is clipped either."""

    noise_w: float = 0.0  # sigma: noise multiplier of private updates of rows of W; 0: neither noise nor clipping
    clip_w: float = 0.001  # S: with noise_w, the largest norm of a site's change to its rows of W in a round
    delta: float = 1e-5  # delta of (epsilon, delta)

    def check_private(self) -> None:
        """Refuse invalid settings."""
        not_negative("method", noise_w=self.noise_w)
        positive("method", clip_w=self.clip_w, delta=self.delta)
        if self.noise_w:
            accounting()

    def nothing_released(self, label: Tensor, classes: int, one_pass: bool) -> Tree:
        """Return the server's memory of releases before round 0, given the classes that all sites hold."""
        if not self.noise_w:
            return {}
        if one_pass and len(label.unique()) < len(label):
            raise UsageError(
                "noise_w bounds each site's change to a row of W, but one_pass gives only the sum where several sites "
                "hold a class; set one_pass=false, or give every class to one site (split.partition=label)"
            )
        return {RELEASED: label.new_zeros(classes)}

    def bounded(self, change: Tensor, at: Tensor) -> Tensor:
        """Return Delta_k min(1, S / |Delta_k|) for changes given row by row; `at` holds the site of each row."""
        if not self.noise_w:
            return change
        length = change.new_zeros(len(at)).index_add_(0, at, change.square().sum(1)).sqrt()  # over all rows of a site
        return change * (self.clip_w / length.clamp(min=self.clip_w))[at].unsqueeze(1)

    def release(self, server: Tree, W: Tensor, largest: Tensor, draw: torch.Generator) -> tuple[Tensor, Tree]:
        """Return W with noise, and how often each row was moved; `largest`: max_k s_kc, 0 where nobody moved row c."""
        if not self.noise_w:
            return W, {}
        noise = torch.randn(W.shape, generator=draw, dtype=W.dtype).to(W.device)
        W = W + self.noise_w * self.clip_w * largest.unsqueeze(1) * noise
        return W, {RELEASED: server[RELEASED] + (largest > 0)}

    def spent_on_rows(self, server: Tree) -> dict[str, float]:
        """Return the privacy spent, for the summary: a site can show in a row as often as that row was moved."""
        if RELEASED not in server:
            return {}
        releases = int(server[RELEASED].max())
        return {"epsilon_w": spent(self.noise_w, self.delta, releases), "delta": self.delta, "releases_w": releases}
