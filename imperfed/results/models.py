"""The models that a run writes."""

from __future__ import annotations

from imperfed.data.federate import FederatedData
from imperfed.engine.engine import Engine
from imperfed.results.folder import RunFolder


def write_models(folder: RunFolder, engine: Engine, data: FederatedData) -> None:
    """Write `models/global.safetensors` with the shared tensors, and one whole model per site if sites differ."""
    if scale := data.scale.tree():
        folder.save_model("scale", scale)
    if shared := engine.shared_model():
        folder.save_model("global", shared)
    if engine.personalised and not data.federation.elsewhere:
        for k, name in enumerate(data.federation.sites):
            folder.save_model(name, engine.model(k))
