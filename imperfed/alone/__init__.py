"""What a site can do alone: models that a practitioner fits to its own rows, with scikit-learn or as a network.

    kind = alone_models()["forest"]()           # a family with its settings
    model = fit(kind, x, labels, seed=0)        # labels of any kind
    model.probabilities(x)                      # [n, C], whatever classes the site has seen
    model.tensors()                             # plain numbers, from which `SiteModel.of` makes it again

They are references (does federating bring anything?) and candidates (where they are best, they are delivered). A fitted
model is kept as plain numbers and evaluated by torch: no pickles, and scikit-learn is needed for fitting only.
"""

from __future__ import annotations

from functools import cache

from imperfed.alone.base import AloneModel, Fitted
from imperfed.alone.site_model import SiteModel, fit
from imperfed.core.registry import Registry, components

__all__ = ["AloneModel", "Fitted", "SiteModel", "alone_models", "fit"]


@cache
def alone_models() -> Registry[type[AloneModel]]:
    """Return the families of models by name."""
    return components(__name__, __path__, alone=AloneModel)
