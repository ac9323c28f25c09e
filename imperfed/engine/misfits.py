"""Whether the parts of a run fit together."""

from __future__ import annotations

from imperfed.core.algorithm import Algorithm
from imperfed.core.components import Adversaries, Defence
from imperfed.core.errors import UsageError
from imperfed.core.exchange import WeightedGradient
from imperfed.core.federation import Federation
from imperfed.core.network import Layout
from imperfed.core.objective import Objective
from imperfed.engine.local_training import Local


def refuse_misfits(
    algorithm: Algorithm,
    objective: Objective,
    local: Local,
    layout: Layout,
    federation: Federation,
    defence: Defence | None,
    on_duty: int,
    adversaries: Adversaries | None,
) -> None:
    """Refuse, before training, parts that do not fit together."""
    sums = any(isinstance(exchange, WeightedGradient) for exchange in algorithm.exchanges(0))
    if defence:
        if algorithm.pools_data or layout.shared == 0:
            raise UsageError(f"{defence.name} looks at what sites send; under {algorithm.name} they send nothing")
        defence.check(federation, algorithm, on_duty)
        if sums:
            raise UsageError(f"{defence.name} looks at each site's answer, and {algorithm.name} only sees their sum")
    if adversaries is not None and (algorithm.pools_data or layout.shared == 0 or sums):
        attack = adversaries.attack.name
        raise UsageError(f"{attack} falsifies the updates that sites send; under {algorithm.name} they send none")
    if sums and not objective.row_independent:
        raise UsageError(
            f"here {algorithm.name} makes one pass over the rows of all sites, and the loss of {objective.name} "
            "depends on which rows are together; choose another objective"
        )
    if local.weight_decay and sums:
        raise UsageError(f"local.weight_decay acts in local steps, and here {algorithm.name} makes none; set it to 0")
