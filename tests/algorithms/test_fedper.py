"""FedPer: everything but the head is averaged; the head never leaves its site."""

from __future__ import annotations

from imperfed.algorithms.fedper import FedPer
from tests.support.averaging import learn


def test_only_the_head_stays_at_its_site():
    engine = learn(FedPer())
    fields = engine.population.spec.layout.fields
    personal = {name for name in fields if FedPer().is_personal(name)}
    assert personal == {"head.weight", "head.bias"}
    assert engine.state.personal.std(0).min() > 0  # every site has moved its own
    assert engine.shared_model().keys() == fields.keys() - personal
