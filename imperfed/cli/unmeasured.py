"""Why a figure of a run is blank, one sentence each, for below its tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from imperfed.data.files.problems import listed
from imperfed.results.summary import SiteSummary, Summary

APART = ("annotated", "never")
"""Titles of the figures over the classes that a site annotates and over those that it never annotates."""


def why_blank(summary: Summary) -> Iterator[str]:
    """Yield a sentence for every kind of blank in the tables of a run."""
    sites, metric = summary.sites, summary.metric
    if not summary.personal.n and summary.common:
        return  # without test rows of their own, no table of the sites is printed
    if not summary.personal.n and summary.facts.common_test_rows:
        yield "test rows are common to all sites, and no one model serves them all: no model was measured"
        return
    if not any(site.test for site in sites):
        yield "there are no test rows (they need true labels), so no model was measured"
        return
    if without := [site.site for site in sites if not site.test]:
        yield f"{metric} is blank at {listed(without)}: no test rows"
    if undefined := [site.site for site in sites if site.test and site.value is None]:
        yield f"{metric} is blank at {listed(undefined)}: its test rows hold one class only"
    for title, values in apart(sites).items():
        if blank := [site.site for site, value in zip(sites, values, strict=True) if value is None]:
            yield f"{title} is blank at {listed(blank)}: no such class has test rows with and without it"
    if undefined := [one.name for one in summary.by_class if one.auroc is None]:
        yield f"auroc is blank for {listed(undefined)}: no site's test rows hold rows with and without it"


def apart(sites: Sequence[SiteSummary]) -> dict[str, list[float | None]]:
    """Return the figures over the classes that a site annotates and over those it never does, where there are any.

    Without the second, the first are the leading figures themselves, and are not shown twice.
    """
    columns = ([site.auroc_annotated for site in sites], [site.auroc_never_annotated for site in sites])
    if all(value is None for value in columns[1]):
        return {}
    return {title: values for title, values in zip(APART, columns, strict=True) if any(v is not None for v in values)}
