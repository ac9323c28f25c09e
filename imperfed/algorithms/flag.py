"""FLAG (reconstruction), after Chang, Hsu, Chang, Tseng, "FLAG: fast label-adaptive aggregation for multi-label
classification in federated learning", 2023.

Source: title, abstract and how others describe it; the formula of the weights could not be read, and no code of the
authors was found. Both forms below are a reconstruction, unverified; the first is in a public re-implementation. Call
its figures "FLAG (reconstruction)".

    symbol    where it lives                                          does it travel
    w         server["w"]                                             down and up
    n_k       Updates.n                                               the site's claim
    n_kc      memory["positives"], rows known to have class c         up; the site's claim, at most n_k
    q_kc      n_kc / sum_j n_jc over the sites that answer; 1/M       never
              where none of them has the class

    rows:    row c of the head (and its bias) by q_kc, everything else by n_k / n
    whole:   everything by p_k = (1/C) sum_c q_kc
    both:    row c of the head by q_kc, everything else by p_k

Sites make the run's steps on the objective, by default with all classes that are not named as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from imperfed.algorithms._head_rows import merged_rows
from imperfed.algorithms.assume_negative import AssumeNegative
from imperfed.core.algorithm import Algorithm
from imperfed.core.batch import Tree
from imperfed.core.context import LocalResult, ServerContext, SiteSetup
from imperfed.core.exchange import Updates
from imperfed.core.objective import Objective


@dataclass(frozen=True)
class FLAG(Algorithm):
    """For several classes per row: a site counts for a class by its share of the rows that have it."""

    name: ClassVar[str] = "flag"
    tuned: ClassVar[Mapping[str, tuple[Any, ...]]] = {"adapt": ("rows", "both", "whole")}
    objective: Objective | None = field(default=AssumeNegative())
    adapt: Literal["rows", "whole", "both"] = "rows"  # what is merged by q: the head's rows, the whole model, or both

    @property
    def not_mixable_because(self) -> str:
        return "" if self.adapt == "whole" else "each counts for a class by its rows of it (method.adapt)"

    def init_site(self, site: SiteSetup) -> Tree:
        return {"positives": site.labels.counts().positive.to(torch.get_default_dtype())}  # n_kc

    def reply(self, done: LocalResult) -> tuple[Tree, Tree]:
        return dict(done.memory), done.memory

    def merge(self, server: Tree, updates: Updates, context: ServerContext) -> Tree:
        q = shares(torch.minimum(updates["positives"].clamp(min=0), updates.n.unsqueeze(1)))
        new = updates.average(updates.by_size() if self.adapt == "rows" else q.mean(1))
        if self.adapt != "whole":
            for name, rows in merged_rows(updates["w"], q, context.net.layout):
                context.net.layout.view(new["w"], name).copy_(rows)
        return server | new


def shares(n: Tensor) -> Tensor:
    """Return q_kc."""
    total = n.sum(0)
    return torch.where(total > 0, n / total.clamp(min=1), 1 / len(n))
