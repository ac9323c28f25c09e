"""IML: ignore missing labels. The simplest method for missing labels: only annotated cells have a loss.

The baseline of FedPSL (Dong et al., "Federated partially supervised learning with limited decentralized medical
images", IEEE TMI 2023, Sec. VII-C), where it is trained on all rows in one place: `pooled+iml`.

Source: checked against third parties' code for the same setting; the weight of positives is FedPSL's (Sec. VII-D).

    symbol          where it lives                                            does it travel
    m               1 in annotated cells of a batch: values >= 0              never
    y, p            present (1) or absent (0); sigmoid of the logits          never
    w_c             N_neg / N_pos of a class at the site, batch.site_stats    never

    L = sum_ic m_ic (-w_c y_ic log p_ic - (1 - y_ic) log(1 - p_ic)) / sum_ic m_ic

A cell that is not annotated has no gradient. Where sites annotate different classes, the head's row of a class that a
site never annotates does not move there, and the mean of the sites' heads pulls it back; `fedpsl+iml` merges every row
over the sites that annotate its class.

Departs from the paper in: nothing it says. `masked-bce` differs in the mean: over the annotated cells of each row, then
over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from imperfed.algorithms.masked_bce import MaskedBCE
from imperfed.core.batch import Batch
from imperfed.core.errors import UsageError
from imperfed.core.labels import Annotated
from imperfed.core.objective import Objective
from imperfed.nn.losses import mean_over_cells


@dataclass(frozen=True)
class IML(MaskedBCE):
    """Binary cross-entropy, averaged over all annotated cells of a batch; the others are left out."""

    name: ClassVar[str] = "iml"
    auto: ClassVar[Mapping[str, tuple[Any, ...]] | None] = None
    reference: ClassVar[bool] = False
    row_independent: ClassVar[bool] = False  # the mean is over the cells of a batch

    def loss(self, net: Callable[[Tensor], Tensor], batch: Batch) -> tuple[Tensor, Any]:
        return self.known(net(batch.x), batch), None

    def known(self, z: Tensor, batch: Batch) -> Tensor:
        """Return L of every row."""
        values = batch.labels.values
        return mean_over_cells(self.cells(z, (values == 1).to(z.dtype), batch), values >= 0, batch.real)

    def cells(self, z: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """Return -w y log p - (1 - y) log(1 - p) of every cell, for targets y between 0 and 1."""
        w = batch.site_stats["weight"] if self.balance else None
        return binary_cross_entropy_with_logits(z, y, pos_weight=w, reduction="none")


def refuse_unannotated(method: str, objective: Objective | None) -> None:
    """Refuse an objective that does not learn from annotated classes, for which a method is made."""
    if objective is None or not objective.accepts(Annotated):
        raise UsageError(f"{method} is for classes that are annotated or not, and needs an objective for them: iml")
