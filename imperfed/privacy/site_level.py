"""A site's whole data hidden in what it sends: clipping and Gaussian noise at the site, before anything leaves it.

Clipping a participant's update and adding Gaussian noise is from McMahan et al., "Learning differentially private
recurrent language models", ICLR 2018. There the server adds the noise to the average; here each site adds its own, so
that the guarantee needs no trust in the server ("local" differential privacy of a site).

    symbol    where it lives                                       does it travel
    w_t       down["w"], the weights that the site was sent        down
    w_k       the site's weights after training                    never
    u_k       w_k - w_t                                            never
    C         clip                                                 never
    sigma     noise                                                never
    z_k       standard normal numbers, from the site's own key     never

The site sends w_t + u_k min(1, C / |u_k|) + sigma C z_k. Shared buffers stay as they were received, and the loss is not
sent. Two contents of a site's rows, however different, give clipped updates at most 2 C apart, so that the noise is
sigma / 2 times what the rows can change: the Gaussian mechanism, once for every round with the site. Whatever the
server then computes, with any weights n_k / n, is post-processing of private values. The number of rows, and in which
rounds the site takes part, count as known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.core.errors import positive
from imperfed.core.mechanism import PrivacyMechanism
from imperfed.privacy.keyed_noise import gaussian


@dataclass(frozen=True)
class SiteLevel(PrivacyMechanism):
    """Clip each site's update and add Gaussian noise, so that what it sends says little about its rows."""

    name: ClassVar[str] = "site"
    clip: float = 1.0  # C: the largest norm of a site's update in a round
    noise: float = 1.0  # sigma: standard deviation of the noise on every weight, divided by C

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("privacy", clip=self.clip, noise=self.noise)

    @property
    def multiplier(self) -> float:
        return self.noise / 2  # two clipped updates are at most 2 C apart

    def protect(self, sent: Tensor, w: Tensor, key: bytes) -> Tensor:
        start = sent.double()
        u = w.double() - start
        u *= (self.clip / torch.linalg.vector_norm(u)).clamp(max=1)
        z = gaussian(key, len(u)).to(u.device)
        return (start + u + self.noise * self.clip * z).to(w.dtype)
