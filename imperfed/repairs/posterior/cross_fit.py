"""The probe: multinomial logistic regression on the coordinates, cross-fitted in five folds, Eqs. 4-7.

    exchange         a site sends (sums over its rows)    the server sends
    curvature        sum a a^T                            V, the directions of `axes.py`
    probe, 50 times  the gradients of 5 folds             the weights of 5 folds

The coordinates a replace the features at the site; the rest of the method looks at nothing else.

The fold of a row is its place at its site modulo 5, and its logits come from the fit that left its fold out: a row
never testifies for itself. One Cholesky factor bounds the curvature of every fold's loss, so that accelerated steps
need no step size. All is float64: a fit is 50 steps with a matrix whose smallest eigenvalue may be 1e-6.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from imperfed.core.batch import Tree
from imperfed.core.context import ServerView, SiteView
from imperfed.core.exchange import Query, Updates
from imperfed.core.labels import Labels
from imperfed.repairs.features import phi
from imperfed.repairs.posterior.axes import ROWS, coordinates, no_squares, sum_of_squares, total

FOLDS = 5
STEPS = 50
RIDGE, RIDGE_OF_CLEAN = 0.03, 0.5
"""rho: of fits on the sites' rows, and of fits on the server's clean rows alone."""
CLEAN_WEIGHT = 2
"""The weight of a clean row in fits on the sites' rows."""
JITTER = 1e-6
"""Added to the diagonal of H, which must be positive definite."""


@dataclass(frozen=True)
class CrossFit:
    """Fits on the rows of all sites, and the server's clean rows where it has any."""

    features: str
    classes: int

    def opening(self) -> Query:
        """Return the exchange before the first fit."""
        return Query("curvature", self.prepare, self.send_directions, respond=self.curvature, doubt=no_curvature)

    def exchanges(self) -> tuple[Query, ...]:
        """Return the exchanges of one fit: one per step."""
        return tuple(
            Query("probe", partial(self.step, s), partial(self.send_weights, s), respond=self.gradients)
            for s in range(1, STEPS + 1)
        )

    # -- a site ---------------------------------------------------------------------------------------------------

    def curvature(self, site: SiteView) -> Tree:
        """Return the sum of a a^T, and keep the coordinates in place of the features."""
        parts = phi(self.features, site).split(ROWS)
        A = torch.cat([coordinates(F, site.memory, site.down["V"]) for F in parts])
        site.memory.clear()
        site.memory["A"] = A
        return {"sum a a^T": sum_of_squares(A.split(ROWS))}

    def gradients(self, site: SiteView) -> Tree:
        """Return the sums of Eq. 6 over the site's rows, one for every fold."""
        A = site.memory["A"]
        targets = site.memory["targets"] if "targets" in site.memory else self.first_targets(site.labels)
        return {"gradients": gradients(A, targets, outside_folds(len(A)), site.down["U"])}

    def first_targets(self, labels: Labels) -> Tensor:
        """Return the targets of the first fit: the labels as given."""
        return one_hot(labels.values, self.classes)

    # -- the server -----------------------------------------------------------------------------------------------

    def send_directions(self, server: Tree, site: int) -> Tree:
        """Return the directions."""
        return {"V": server["V"]}

    def prepare(self, server: Tree, updates: Updates, context: ServerView) -> Tree:
        """Keep the curvature, and the coordinates of the clean rows where there are any."""
        server = server | {"curvature": total(updates, "sum a a^T")}
        return server | ({"A": coordinates(server["F"], server, server["V"])} if "F" in server else {})

    def clean_alone(self, server: Tree, updates: Updates, context: ServerView) -> Tree:
        """Fit the clean rows alone, where there are any: for the sites' rows, and in folds."""
        if "A" not in server:
            return server
        A, y = server["A"], one_hot(server["y"], self.classes)
        everywhere = A.new_ones(len(A), 1)
        W = fit(A, y, torch.cat([outside_folds(len(A)), everywhere], 1), RIDGE_OF_CLEAN)
        return server | {"W": W[FOLDS:], "logits": logits(A, W[:FOLDS])}

    def send_fit(self, server: Tree, site: int) -> Tree:
        """Return the weights of the last fit."""
        return {"W": server["W"]}

    def send_weights(self, s: int, server: Tree, site: int) -> Tree:
        """Return U_s of every fold; U_1 = 0."""
        return {"U": self.start(server) if s == 1 else server["U"]}

    def start(self, server: Tree) -> Tensor:
        """Return weights of 0."""
        return server["curvature"].new_zeros(FOLDS, len(server["curvature"]), self.classes)

    def step(self, s: int, server: Tree, updates: Updates, context: ServerView) -> Tree:
        """Make step s of Eq. 7, with the clean rows' part of the gradients."""
        W, U = (self.start(server),) * 2 if s == 1 else (server["W"], server["U"])
        slope, curvature, weight = total(updates, "gradients"), server["curvature"], server["n"]
        if "A" in server:
            A, b = server["A"], CLEAN_WEIGHT * outside_folds(len(server["A"]))
            slope = slope + gradients(A, one_hot(server["y"], self.classes), b, U)
            curvature, weight = curvature + CLEAN_WEIGHT * A.T @ A, weight + CLEAN_WEIGHT * len(A)
        mean_weight = weight * (FOLDS - 1) / FOLDS  # every row is left out of one fit
        W, U = Descent.of(curvature, RIDGE * mean_weight).step(s, W, U, slope)
        return server | {"W": W, "U": U} | ({"logits": logits(server["A"], W)} if "A" in server else {})


@dataclass(frozen=True)
class Descent:
    """The ridge and the bound on the curvature that all fits of one round share."""

    penalty: Tensor
    """The diagonal of Lambda."""
    factor: Tensor
    """The Cholesky factor of H."""

    @classmethod
    def of(cls, curvature: Tensor, ridge: Tensor) -> Descent:
        """Return Lambda, Eq. 4, and H, Eq. 5, from the weighted sum of a a^T over all rows."""
        penalty = curvature.new_ones(len(curvature)) * ridge
        penalty[-1] = 0  # the bias is not penalised
        H = curvature / 2 + (penalty + JITTER).diag()
        return cls(penalty, torch.linalg.cholesky(H))

    def step(self, s: int, W: Tensor, U: Tensor, gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Return W_s and U_{s+1} from W_{s-1}, U_s and the sums of Eq. 6, [F, p + 1, C] each; Eq. 7."""
        slope = gradients + self.penalty[:, None] * U
        new = U - torch.cholesky_solve(slope, self.factor)
        return new, new + (s - 1) / (s + 2) * (new - W)


def no_curvature(server: Tree, answer: Tree, rows: int) -> str:
    """Return why this cannot be sum a a^T: a ends in 1, and no product is larger than squares allow."""
    products = answer["sum a a^T"]
    if float(products[-1, -1]) != rows:
        return f"'sum a a^T' is over {float(products[-1, -1]):g} rows, of {rows}"
    return no_squares("sum a a^T", answer, torch.full_like(products[0], torch.inf))


def fit(A: Tensor, y: Tensor, b: Tensor, rho: float) -> Tensor:
    """Return the weights of fits on rows at hand, [F, p + 1, C]; `b`: the weight of every row in every fit, [n, F]."""
    W = U = A.new_zeros(b.shape[1], A.shape[1], y.shape[1])
    descent = Descent.of((A * b.max(1, keepdim=True).values).T @ A, rho * b.sum(0).mean())
    for s in range(1, STEPS + 1):
        W, U = descent.step(s, W, U, gradients(A, y, b, U))
    return W


def outside_folds(n: int) -> Tensor:
    """Return the weight of every row in the fits that leave one fold out, 0 or 1; [n, FOLDS]."""
    return (torch.arange(n)[:, None] % FOLDS != torch.arange(FOLDS)).double()


def gradients(A: Tensor, y: Tensor, b: Tensor, W: Tensor) -> Tensor:
    """Return the sum over rows of b a (softmax(W^T a) - y)^T, Eq. 6, for every fit; [F, p + 1, C]."""
    F, d, C = W.shape
    wide, sums = W.transpose(0, 1).reshape(d, F * C), W.new_zeros(d, F * C)
    for rows, targets, weights in zip(A.split(ROWS), y.split(ROWS), b.split(ROWS), strict=True):
        residuals = torch.softmax((rows @ wide).view(-1, F, C), -1).sub_(targets[:, None]).mul_(weights[:, :, None])
        sums.addmm_(rows.T, residuals.view(-1, F * C))
    return sums.view(d, F, C).transpose(0, 1)


def logits(A: Tensor, W: Tensor) -> Tensor:
    """Return the logits of every row by the fit without its fold, or by the only fit; [n, C]."""
    if len(W) == 1:
        return A @ W[0]
    found = A.new_empty(len(A), W.shape[2])
    for fold in range(FOLDS):
        found[fold::FOLDS] = A[fold::FOLDS] @ W[fold]
    return found


def one_hot(y: Tensor, classes: int) -> Tensor:
    """Return classes as targets, float64 [n, C]."""
    return torch.nn.functional.one_hot(y, classes).double()
