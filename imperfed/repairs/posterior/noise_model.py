"""The noise of the labels and the posterior of every row, Eqs. 8-18.

    exchange                a site sends (sums over its rows)       the server sends
    mean                    sum of p, for every temperature         weights of the fit, temperatures
    noise, 30 times         N: expected rows by true and            mean p; T and pi, pooled over the sites
    (15 in a search)        given class, for every temperature
    temperature (B2)        sums of log-likelihoods                 T and pi, for every temperature
    posterior               nothing                                 T and pi

R is what the features say about a row beside the labels: how much more probable they make each class. T and pi, the
noise of all sites together, hold a site's own estimate J_k near what the others see where its rows are few. J_k and
the posteriors stay at the site.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.context import ServerView, SiteView
from imperfed.core.exchange import Query, Updates
from imperfed.repairs.posterior.axes import total
from imperfed.repairs.posterior.cross_fit import logits, one_hot

TEMPERATURES = tuple(0.4 * (2.5 / 0.4) ** (i / 11) for i in range(12))
POOLED_STEPS, SITE_STEPS = 30, 30
POOLED_STEPS_IN_SEARCH, SITE_STEPS_IN_SEARCH = 15, 10
RIGHT = 0.9
"""The share of right labels from which the estimate of the pooled noise starts."""
PRIOR_RIGHT, PRIOR = 1.0, 0.01
"""Rows added to N before T is estimated: of right labels, and of every pair of classes."""
POOLED_ROWS = 5
"""How many rows of each class the pooled noise counts for in a site's own estimate."""
CELLS = 1 << 22
"""The most numbers in a table of rows, classes and temperatures, unless one temperature alone has more."""
EPS = 1e-12
"""Added in logarithms and divisions."""


@dataclass(frozen=True)
class NoiseModel:
    """The exchanges after a fit, which leave the posterior Q and the noise J of the site in every site's memory."""

    estimated: ClassVar[tuple[str, str]] = ("T", "pi")
    """What all sites together estimate."""

    classes: int
    clean: bool = False
    """Whether the temperature is found on clean rows (B1), Eq. 16; else by a search at the sites (B2), Eq. 17."""

    def exchanges(self) -> tuple[Query, ...]:
        """Return its exchanges."""
        send = self.send_noise
        noise = Query("noise", self.pool, send, respond=self.counts)
        search = (
            *(noise,) * POOLED_STEPS_IN_SEARCH,
            Query("temperature", self.choose, send, respond=self.likelihoods),
        )
        return (
            Query("mean", self.start, self.send_fit, respond=self.means),
            *(() if self.clean else search),
            *(noise,) * POOLED_STEPS,
            Query("posterior", keep, send, respond=self.conclude),
        )

    # -- a site ---------------------------------------------------------------------------------------------------

    def means(self, site: SiteView) -> Tree:
        """Return the sum of p for every temperature, and keep the logits."""
        site.memory["logits"] = logits(site.memory["A"], site.down["W"])
        parts = site.down["temperatures"].split(at_once(site.memory["logits"]))
        return {"sum p": torch.cat([tempered(site.memory["logits"], tau).sum(1) for tau in parts])}

    def counts(self, site: SiteView) -> Tree:
        """Return N of Eq. 10 for every temperature."""
        g = site.labels.values
        return {"N": torch.cat([expected(posterior(R, joint(T, pi), g), g) for R, T, pi in self.ratios(site)])}

    def likelihoods(self, site: SiteView) -> Tree:
        """Return the sum of the labels' log-likelihoods for every temperature, Eq. 15."""
        g, steps = site.labels.values, SITE_STEPS_IN_SEARCH
        sums = [log_likelihood(R, site_noise(R, g, T, pi, steps), g).sum(1) for R, T, pi in self.ratios(site)]
        return {"log-likelihood": torch.cat(sums)}

    def conclude(self, site: SiteView) -> Tree:
        """Keep the site's noise J, its posteriors Q, and the targets of the next fit."""
        ((R, T, pi),), g = self.ratios(site), site.labels.values
        J = site_noise(R, g, T, pi, SITE_STEPS)
        Q = posterior(R, J, g)[0]
        # Without clean rows, squares sharpen the targets: a fit on posteriors alone drifts towards what it said before.
        site.memory.update(J=J[0], Q=Q, targets=Q.clone() if self.clean else normalised(Q.square()))
        return {}

    def ratios(self, site: SiteView) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield R of Eq. 8 with the pooled noise T and pi, for as many temperatures at once as memory should hold."""
        found, down = site.memory["logits"], site.down
        for m in torch.arange(len(down["temperatures"])).split(at_once(found)):
            noise, shares = (down[name][m] for name in self.estimated)
            yield ratio(tempered(found, down["temperatures"][m]), down["mean p"][m]), noise, shares

    # -- the server -----------------------------------------------------------------------------------------------

    def send_fit(self, server: Tree, site: int) -> Tree:
        """Return the weights of the fit, and the temperatures to look at."""
        return {"W": server["W"], "temperatures": self.temperatures(server)}

    def temperatures(self, server: Tree) -> Tensor:
        """Return all temperatures to search in or, with clean rows, the best on them."""
        if self.clean:
            return best_temperature(server["logits"], server["y"])
        return torch.tensor(TEMPERATURES, dtype=torch.float64)

    def start(self, server: Tree, updates: Updates, context: ServerView) -> Tree:
        """Return mean p, and the noise from which the estimates start."""
        temperatures = self.temperatures(server)
        found = {"temperatures": temperatures, "mean p": total(updates, "sum p") / server["n"]}
        return server | found | self.begin(len(temperatures))

    def begin(self, temperatures: int) -> Tree:
        """Return the noise from which the estimates start, for every temperature."""
        return start_noise(temperatures, self.classes)

    def send_noise(self, server: Tree, site: int) -> Tree:
        """Return the temperatures still looked at, with mean p and the pooled noise of each."""
        return {name: server[name] for name in ("temperatures", "mean p", *self.estimated)}

    def pool(self, server: Tree, updates: Updates, context: ServerView) -> Tree:
        """Return the pooled noise after one more step, Eqs. 10 and 11."""
        return server | pooled_noise(total(updates, "N"))

    def choose(self, server: Tree, updates: Updates, context: ServerView) -> Tree:
        """Keep the temperature of the highest likelihood, Eq. 17, and start again with it alone."""
        best = int(total(updates, "log-likelihood").argmax())
        found = {name: server[name][best : best + 1] for name in ("temperatures", "mean p")}
        return server | found | self.begin(1)


def keep(server: Tree, updates: Updates, context: ServerView) -> Tree:
    """Leave the server's memory as it is: the sites only receive."""
    return server


def at_once(logits: Tensor) -> int:
    """Return for how many temperatures these rows are looked at together."""
    return max(1, CELLS // max(1, logits.numel()))


def tempered(logits: Tensor, tau: Tensor) -> Tensor:
    """Return p = softmax(l / tau) for every temperature, Eq. 8; [m, n, C]."""
    return torch.softmax(logits / tau[:, None, None], -1)


def ratio(p: Tensor, mean: Tensor) -> Tensor:
    """Return R(y) = p(y) / mean p(y), Eq. 8; [m, n, C]."""
    return p / (mean + EPS)[:, None]


def best_temperature(logits: Tensor, y: Tensor) -> Tensor:
    """Return the temperature at which clean rows are most probable, Eq. 16; [1]."""
    grid = torch.tensor(TEMPERATURES, dtype=torch.float64)
    means = (tempered(logits, grid)[:, torch.arange(len(y)), y] + EPS).log().mean(1)
    return grid[means.argmax()][None]


def start_noise(temperatures: int, classes: int) -> Tree:
    """Return T and pi from which the pooled noise starts, Eq. 9, for every temperature."""
    T = torch.full((classes, classes), (1 - RIGHT) / max(classes - 1, 1), dtype=torch.float64).fill_diagonal_(RIGHT)
    pi = torch.full((temperatures, classes), 1 / classes, dtype=torch.float64)
    return {"T": T.repeat(temperatures, 1, 1), "pi": pi}


def joint(T: Tensor, pi: Tensor) -> Tensor:
    """Return J[y, g] = pi(y) T[y, g], Eqs. 9, 12 and 14."""
    return pi[..., None] * T


def posterior(R: Tensor, J: Tensor, g: Tensor) -> Tensor:
    """Return Q(y) ~ R(y) J[y, g] of every row, Eqs. 9 and 12; [..., n, C]."""
    return normalised(R * J.mT[..., g, :])


def normalised(rows: Tensor) -> Tensor:
    """Return rows that sum to 1."""
    return rows / (rows.sum(-1, keepdim=True) + EPS)


def expected(Q: Tensor, g: Tensor) -> Tensor:
    """Return N[y, g]: the expected number of rows of class y that were given g, Eq. 10; [..., C, C]."""
    return Q.mT @ one_hot(g, Q.shape[-1])


def pooled_noise(N: Tensor) -> Tree:
    """Return T, Eq. 10, and pi, Eq. 11, of all sites together."""
    right = PRIOR_RIGHT * torch.eye(N.shape[-1], dtype=N.dtype)
    return {"T": normalised(N + right + PRIOR), "pi": class_shares(N)}


def class_shares(N: Tensor) -> Tensor:
    """Return pi(y) = (N[y, .] + 1) / (n + C), Eqs. 11 and 13."""
    return (N.sum(-1) + 1) / (N.sum((-1, -2)) + N.shape[-1])[..., None]


def site_noise(R: Tensor, g: Tensor, T: Tensor, pi: Tensor, steps: int) -> Tensor:
    """Return J_k of one site after these steps of Eqs. 12-14."""
    J = joint(T, pi)
    for _ in range(steps):
        N = expected(posterior(R, J, g), g)
        J = joint(normalised(N + POOLED_ROWS * T), class_shares(N))
    return J


def log_likelihood(R: Tensor, J: Tensor, g: Tensor) -> Tensor:
    """Return log sum_y R(y) J[y, g] of every row, Eq. 15."""
    return ((R * J.mT[..., g, :]).sum(-1) + EPS).log()


def leads(Q: Tensor, g: Tensor) -> Tensor:
    """Return by how much the most probable class leads the class given, Eq. 18."""
    return (Q.max(1).values + EPS).log() - (Q.gather(1, g[:, None]).flatten() + EPS).log()
