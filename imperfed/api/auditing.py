"""`imperfed.audit` of files, named datasets and data in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imperfed.api.arguments import SiteName, as_path, as_present, as_site
from imperfed.api.call_rows import Rows, guessed, prepared
from imperfed.api.column_names import Columns, OneColumn
from imperfed.api.declared import MemoryData
from imperfed.core.errors import UsageError, unknown
from imperfed.core.federation import Federation
from imperfed.core.loading import import_path, is_importable
from imperfed.data.federate import FederatedData
from imperfed.data.own_files import federate_ready
from imperfed.experiments.config import Config
from imperfed.label_audit.audit_folder import audit as judge_labels
from imperfed.label_audit.audit_settings import audit_config
from imperfed.label_audit.audit_summary import AuditSummary
from imperfed.label_audit.audited_rows import load_rows
from imperfed.label_audit.sentences import per_cent

if TYPE_CHECKING:
    import pyarrow

Index = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, repr=False)
class AuditResult:
    """The findings of an audit, and on request the judgement of every label."""

    folder: Path
    summary: AuditSummary
    guessed: tuple[str, ...] = ()
    """One sentence for everything that was guessed about the columns."""
    index: Index | None = field(default=None, repr=False)
    """The caller's own name of each row, by site and id; None for rows without an index."""

    @property
    def sites(self) -> tuple[str, ...]:
        """The names of the sites."""
        return tuple(site.site for site in self.summary.sites)

    @property
    def report(self) -> Path:
        """The page about the audit."""
        return self.folder / "audit.html"

    def labels(self, site: SiteName = "") -> pyarrow.Table:
        """Return the judgement of every label of a site; without a site, those of all sites.

        The labels of all sites have a column `site`, and a column `index` if the rows came as pandas frames.
        """
        import pyarrow
        from pyarrow import parquet

        if one := as_site(site):
            if one not in self.sites:
                raise unknown("site", one, self.sites)
            return parquet.read_table(as_present(self.folder) / "labels" / f"{one}.parquet")
        tables = []
        for name in self.sites:
            table = self.labels(name)
            table = table.add_column(0, "site", pyarrow.array([name] * len(table)))
            if self.index is not None:
                own = [self.index[name][row] for row in table["id"].to_pylist()]
                table = table.add_column(0, "index", pyarrow.array(own))
            tables.append(table)
        return pyarrow.concat_tables(tables)

    def repaired(self, site: SiteName = "") -> pyarrow.Table:
        """Return the labels as a repair leaves them, in a column `label`, with those that were `given`.

        The rows, and the columns that name them, are those of `labels`. Where the features do not support the noise
        (`summary.trusted`), the labels are as they were given.
        """
        from pyarrow import compute

        if self.summary.sets:
            raise UsageError(f"{self.folder}: candidate sets are ranked by an audit, and not repaired")
        judged = self.labels(site)
        changed = compute.equal(judged["decision"], "change")
        label = compute.if_else(changed, judged["suggested"], judged["given"])
        names = [name for name in ("index", "site", "id", "given") if name in judged.column_names]
        return judged.select(names).append_column("label", label)

    def __repr__(self) -> str:
        """Return what was audited, how much seems to be wrong, and where the details lie, in one line."""
        summary = self.summary
        labels = f"{summary.rows:,} {'candidate sets' if summary.sets else 'labels'}"
        return f"<AuditResult {summary.data}: {per_cent(summary.noise)} of {labels} wrong, estimated; {self.folder}>"

    def __str__(self) -> str:
        """Return the findings in sentences."""
        summary = self.summary
        return "\n".join(
            (*summary.findings, summary.advice, *(f"Be careful: {caution}" for caution in summary.cautions))
        )

    def _repr_html_(self) -> str:
        """Return the findings as a table and sentences for notebooks."""
        columns = "<tr><th>site</th><th>rows</th><th>wrong, estimated</th><th>suspects</th></tr>"
        rows = "".join(
            f"<tr><td>{escape(site.site)}</td><td>{site.rows}</td><td>{per_cent(site.noise)}</td>"
            f"<td>{site.suspects}</td></tr>"
            for site in self.summary.sites
        )
        sentences = "".join(f"<p>{escape(line)}</p>" for line in str(self).splitlines())
        return f"<table>{columns}{rows}</table>{sentences}<p>{escape(str(self.report))}</p>"


def audit(
    data: Any,
    out: str | Path | None = None,
    *,
    label: Columns | None = None,
    site: OneColumn | None = None,
    features: Any = None,
    **keywords: Any,
) -> AuditResult:
    """Find the labels that are probably wrong, site by site, and write the findings into a new folder.

    No model is trained. `data` and the keywords that describe data in memory: as for `run`; with `truth`, the audit
    also says how well it did, and with `trusted` it uses rows whose labels are true. `out`: the new folder; by default
    one below `audits`. `features`: auto, raw, hog, efficientnet-lite0, `module:function`, or a function that can be
    imported. All other keywords are settings of the data and the repair, as `--set` takes them.
    """
    rows, name, settings = prepared(data, {"label": label, "site": site, **keywords})
    if features is not None:
        settings["repair.features"] = _named(features)
    config = audit_config(name, settings)
    federated, sentences = _loaded(rows, config)
    folder, summary = judge_labels(config, federated, None if out is None else as_path(out, "out"))
    return AuditResult(folder, summary, sentences, rows.index() if isinstance(rows, MemoryData) else None)


def _loaded(rows: Rows | None, config: Config) -> tuple[FederatedData, tuple[str, ...]]:
    if rows is None:
        return load_rows(config)
    return federate_ready(rows) if isinstance(rows, Federation) else rows.federate(config), guessed(rows)


def _named(features: Any) -> str:
    """Return the name of features; that of a function is where it is imported from."""
    if isinstance(features, str):
        return features
    if not is_importable(features):
        raise UsageError(
            f"features: expected a name, or a function that can be imported; got a value of type "
            f"{type(features).__name__}: put the function into a module of its own"
        )
    return import_path(features)
