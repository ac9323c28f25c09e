"""The result of a run as an object: its figures, and on request its models, labels and predictions."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from imperfed.api.arguments import SiteName, as_path, as_present, as_site
from imperfed.api.declared import refuse
from imperfed.api.handed_over import as_array, as_memory_table, is_table
from imperfed.cli.screen import printed
from imperfed.core.errors import DataError, UsageError, unknown
from imperfed.core.labels import KINDS
from imperfed.core.network import Network
from imperfed.data.dataset import check_finite
from imperfed.data.files.cells import word
from imperfed.data.files.declaration import FILE, read_declaration
from imperfed.data.files.problems import Problems
from imperfed.data.files.rows import NEW, read_rows
from imperfed.data.scale import Scale
from imperfed.experiments.objects import NO_OBJECTS, Objects
from imperfed.experiments.stored_run import load_net
from imperfed.results.folder import RunFolder
from imperfed.results.mixture import read_mixture
from imperfed.results.predict import as_inputs, check_inputs, own_model, predictions, whose
from imperfed.results.summary import Summary

if TYPE_CHECKING:
    import pyarrow

    from imperfed.results.leak_summary import LeakSummary


@dataclass(frozen=True, repr=False)
class RunResult:
    """A run that has ended: its folder and its figures, and on request its models and labels."""

    folder: Path
    summary: Summary
    objects: Objects = field(default=NO_OBJECTS, repr=False, compare=False)
    """What was handed over as objects, which predictions need."""

    @property
    def sites(self) -> tuple[str, ...]:
        """The names of the sites."""
        return tuple(row.site for row in self.summary.sites)

    @property
    def history(self) -> pyarrow.Table:
        """Every figure of every round, as a table: round, site ("*" for none in particular), metric, value, n."""
        import pyarrow

        keys = ("round", "site", "metric", "value", "n")
        return pyarrow.table(
            {key: [record.get(key) for record in self._files.records()] for key in keys},
            pyarrow.schema(list(zip(keys, ("int64", "string", "string", "float64", "int64"), strict=True))),
        )

    @property
    def report(self) -> Path:
        """The page about the run."""
        return self.folder / "report.html"

    def predict(self, rows: Any, site: SiteName = "") -> Any:
        """Return predictions for new rows by the model of a site, which may be left out if all share one model.

        A table is matched by the names of its columns, in any order, and yields a pyarrow table: the index of a pandas
        frame, the id, the probability of each class, and what is predicted. If the run named sites by a column, rows
        that have it are predicted by their own sites' models.

        An array or tensor [n, ...] has its columns in the order of training and yields a tensor of probabilities.
        Inputs are standardised here. Images of uint8, [n, h, w] or [n, channels, h, w], are divided by 255 as in
        training; numbers of other types are used unchanged. Where sites held rows out, the probabilities are as sure as
        these allow (`summary.calibration`). Where classes do not exclude one another (annotated
        labels), it is the probability that each is present.
        """
        return (self._predict_table if is_table(rows) else self._predict_array)(rows, as_site(site))

    def model(self, site: SiteName) -> Network:
        """Return the network with which a site predicts. It takes inputs as in training: tables standardised."""
        site = self._known(site)
        folder = self._files
        summary = self.summary
        config = folder.config(self.objects)
        return load_net(folder, config, site, summary.input, len(summary.classes), summary.features).module

    def labels(self, site: SiteName = "") -> pyarrow.Table:
        """Return the labels given for a site's training rows and those inferred; without a site, those of all sites.

        The labels of all sites have a column `site`, and a column `index` if the rows came as pandas frames.
        """
        import pyarrow
        from pyarrow import parquet

        if self.summary.labels is None:
            raise UsageError(f"{self.summary.method} inferred no labels in this run")
        if as_site(site):
            return parquet.read_table(self._files.path / "labels" / f"{self._known(site)}.parquet")
        index = self._files.index()
        tables = []
        for name in self.sites:
            table = self.labels(name)
            table = table.add_column(0, "site", pyarrow.array([name] * len(table)))
            if index:  # where every class is a question of its own, a row has one label for each
                own = np.repeat(np.arange(len(index[name])), len(table) // len(index[name]))
                table = table.add_column(0, "index", index[name].take(pyarrow.array(own)))
            tables.append(table)
        return pyarrow.concat_tables(tables)

    def export(self, out: Path | str, format: str = "onnx", site: SiteName = "") -> Path:
        """Write a model for use elsewhere into a new folder, with a model card, and return the model's file.

        `format`: onnx, pt2 (`torch.export`) or safetensors; `site`: whose model, if sites have their own.
        """
        from imperfed.export import export_model

        return export_model(self, as_path(out, "out"), format, whose(self, as_site(site), "site=...")).model

    def leak(
        self,
        data: Any = None,
        *,
        sites: int = 4,
        trained: bool = False,
        iterations: int = 500,
        dishonest: bool = False,
    ) -> LeakSummary:
        """Return what a curious coordinator could reconstruct from a round of this run.

        `data`: the rows, if they were handed over in memory. All others: as for `imperfed.leak`.
        """
        from imperfed.api.call_rows import again
        from imperfed.leakage.leak_run import LeakOptions, leak_of_folder

        folder = self._files
        federated = None if data is None else again(folder, data, {}, folder.config(self.objects))
        return leak_of_folder(folder, LeakOptions(sites, trained, iterations, dishonest), federated, self.objects)

    def __repr__(self) -> str:
        """Return what was run, its leading figure and its folder, in one line."""
        summary = self.summary
        figure = "" if (mean := summary.personal.mean) is None else f": {summary.metric} {_per_cent(mean)}"
        sites = "1 site" if len(summary.sites) == 1 else f"{len(summary.sites)} sites"
        return f"<RunResult {summary.method} on {summary.data}, {sites}{figure}; {self.folder}>"

    def __str__(self) -> str:
        """Return the tables and sentences that `imperfed run` prints at its end."""
        from imperfed.cli.tables import run_table

        return printed(lambda console: run_table(console, self.summary, self.folder))

    def _repr_html_(self) -> str:
        """Return the figures of the run as a table for notebooks."""
        summary = self.summary
        head = f"{summary.method} on {summary.data}, {summary.rounds} round{'' if summary.rounds == 1 else 's'}"
        if summary.auto:
            head = summary.auto.sentence()
        rows = "".join(
            f"<tr><td>{escape(row.site)}</td><td>{row.train}</td><td>{_per_cent(row.value)}</td></tr>"
            for row in summary.sites
        )
        columns = f"<tr><th>site</th><th>training rows</th><th>{escape(summary.metric)}</th></tr>"
        return f"<p><b>{escape(head)}</b></p><table>{columns}{rows}</table><p>{escape(str(self.report))}</p>"

    def _predict_array(self, rows: Any, site: str) -> Tensor:
        array, data = as_array(rows, "rows"), self._files.config(self.objects).run.data
        try:
            x = as_inputs(array, data, "rows")
            check_inputs(x, self.summary, "rows")
            check_finite(x, "rows")
        except DataError as error:
            raise UsageError(str(error)) from error
        return self.probabilities(x, whose(self, site, "site=..."))

    def _predict_table(self, rows: Any, site: str) -> pyarrow.Table:
        table, path = as_memory_table(rows, "rows"), self._files.path / FILE
        declaration = read_declaration(path) if path.exists() else None
        if declaration is None or declaration.inputs.array:
            raise UsageError("predict: the data of this run have no named columns; hand over an array [n, ...]")
        problems = Problems()
        new = read_rows(table, declaration, NEW, problems)
        refuse(problems)
        assert new is not None
        check_inputs(new.x, self.summary, "rows")
        column = declaration.site_column
        shared = not any(own_model(self, name) for name in self.sites)  # it serves rows of other sites too
        if site or shared or column not in table.columns:
            probability = self.probabilities(new.x, whose(self, site, "site=..."))
        else:
            probability = self._by_own_model(new.x, [word(name) for name in table.columns[column].to_pylist()])
        predicted = predictions(self.summary, list(new.ids()), probability)
        return predicted if table.index is None else predicted.add_column(0, "index", table.index)

    def _by_own_model(self, x: Tensor, sites: list[str]) -> Tensor:
        """Return the probabilities that the model of each row's own site gives."""
        probability = torch.empty(len(x), len(self.summary.classes))
        for site in dict.fromkeys(sites):
            if site not in self.sites:
                fix = "choose whose model predicts such rows, with site=..."
                raise UsageError(f"{unknown('site', site, self.sites)}; {fix}")
            own = torch.tensor([other == site for other in sites])
            probability[own] = self.probabilities(x[own], site)
        return probability

    def probabilities(self, x: Tensor, site: str) -> Tensor:
        """Return the probability of each class for inputs that are read but not standardised."""
        scaled, model = self.scale()(x), self.model(site)
        with torch.no_grad():
            logits = torch.cat([model(part) for part in scaled.split(1024)])
        kind, mixture = KINDS[self.summary.facts.labels], read_mixture(self._files, site)
        if mixture is not None:
            return mixture.probabilities(logits, scaled, kind)
        return kind.probabilities(logits / self.summary.temperature)

    def scale(self) -> Scale:
        """Return how inputs are standardised before they enter `model`."""
        path = self.folder / "models" / "scale.safetensors"
        if self.summary.standardised and not path.exists():
            raise DataError(f"{path}: no such file, but the run standardised its inputs; put it back")
        return self._files.scale()

    @property
    def _files(self) -> RunFolder:
        """The files of the run; a folder that is not there is an error."""
        return RunFolder(as_present(self.folder))

    def _known(self, site: SiteName) -> str:
        if (name := as_site(site)) not in self.sites:
            raise unknown("site", name, self.sites)
        return name


def _per_cent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"
