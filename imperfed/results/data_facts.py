"""The part of a run's summary about its data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import field

from imperfed.results.part import Part


class DataFacts(Part, frozen=True, kw_only=True, omit_defaults=True):
    """The data in numbers: of training rows unless stated otherwise; None if a fact does not apply."""

    labels: str
    """The kind of labels that the sites hold."""
    rows: tuple[int, ...]
    """By site."""
    test_rows: tuple[int, ...]
    """By site."""
    common_test_rows: int
    """The number of rows of the common test set, which belongs to no site."""
    rows_left_out: int
    """Rows of the dataset that no site holds."""
    public_rows: int
    """Unlabelled inputs at the server."""
    public_from: str = "nowhere"
    trusted_rows: int = 0
    """Labelled rows at the server."""
    validation_rows: int = 0
    """Labelled rows of no site, on which settings are chosen."""
    held_out_rows: tuple[int, ...] | None = None
    """Rows that each site holds out from training, to judge rounds by."""
    common_test: bool = False
    """Whether every site is evaluated on the common test set."""
    examples: int | None = None
    """The number of distinct examples, if an example appears once for each of its labels, at different sites."""
    counts: tuple[tuple[int, ...], ...] | None = None
    """[true class][site]: rows."""
    classes_at_nobody: tuple[str, ...] = ()
    """Classes that occur at no site."""
    most_frequent: dict[str, float] | None = None
    """Figures of always predicting the most frequent labels."""
    sites_not_used: int | None = None
    """The number of sites named in the dataset, if the run simulates other ones."""
    instead_of: str | None = None
    """The kind of labels that come with the dataset, if the run uses the true ones instead."""
    sets: str | None = None
    """The origin of candidate sets: "given", or the name of a generator."""
    temperature: float | None = None
    """The temperature to which a generator of candidate sets was calibrated."""
    mean_size: float | None = None
    """The mean size of a candidate set."""
    min_size: int | None = None
    max_size: int | None = None
    singletons: float | None = None
    """The share of candidate sets with a single class."""
    noise: str | None = None
    """The origin of wrong labels: "given", or the name of a noise model."""
    noise_rates: tuple[float, ...] | None = None
    """The share of wrong labels by site."""
    annotates: str | None = None
    """The origin of the choice of annotated classes: "given", or a pattern."""
    annotated_rows: tuple[tuple[int, ...], ...] | None = None
    """[class][site]: rows annotated."""
    attribute: str | None = None
    """The name of the sensitive attribute."""
    groups: dict[str, int] | None = None
    """Rows that may belong to each group of the sensitive attribute."""
    mean_groups: float | None = None
    """The mean number of groups that a row may belong to."""
    adversaries: tuple[str, ...] | None = None
    """Sites that attack; None if unknown."""
    attack: tuple[str, ...] = ()
    """The effects of a simulated attack, in sentences."""
    further: dict[str, Any] = field(default_factory=dict)
    """Facts under other names, such as those of your own generator."""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> DataFacts:
        """Read the facts that `FederatedData` carries."""
        names = {spec.name for spec in msgspec.structs.fields(cls)}
        known = {name: value for name, value in facts.items() if name in names}
        further = {name: value for name, value in facts.items() if name not in names}
        return msgspec.convert({**known, "further": further}, cls)
