"""Oracle: all rows in one place and all their labels known, the upper bound in FedPSL's tables (Dong et al.,
"Federated partially supervised learning with limited decentralized medical images", IEEE TMI 2023, Sec. VII-C).

    symbol    where it lives                                          does it travel
    w         server["w"]                                             nowhere: there is one site
    y         labels.values, all annotated: `annotates` is "all"      nowhere

It is plain training. What makes it an oracle is its data: the labels that a simulation hides from sites are not hidden,
and the classes to learn are those that `annotates` names. Where labels are really missing, it is refused.

Departs from the paper in: nothing. `fedavg` with `annotates=all` is the same bound without pooled rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from imperfed.algorithms.iml import IML, refuse_unannotated
from imperfed.core.algorithm import Algorithm
from imperfed.core.objective import Objective


@dataclass(frozen=True)
class FullyLabelled(Algorithm):
    """Centralised training on complete labels: a reference, where a simulation hides some."""

    name: ClassVar[str] = "oracle"
    pools_data: ClassVar[bool] = True
    complete_labels: ClassVar[bool] = True
    objective: Objective | None = field(default=IML())

    def __post_init__(self) -> None:
        refuse_unannotated(self.name, self.objective)
