"""A site's model as a file that runs without imperfed: `imperfed export RUN --site north --format onnx`."""

from __future__ import annotations

from imperfed.export.export_folder import ExportedFiles, export_model
from imperfed.export.export_formats import FORMATS

__all__ = ["FORMATS", "ExportedFiles", "export_model"]
