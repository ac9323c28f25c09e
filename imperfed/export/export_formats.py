"""The formats of an export. Each writer takes the model, an example of its inputs, its description and the file."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from imperfed.core.errors import UsageError
from imperfed.export.delivered_model import DeliveredModel

Description = dict[str, Any]
Writer = Callable[[DeliveredModel, Tensor, Description, Path], None]
INPUT, OUTPUT = "x", "probability"


def write_onnx(model: DeliveredModel, x: Tensor, description: Description, path: Path) -> None:
    """Write an ONNX model; what a caller must know is in its metadata too."""
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"onnx needs a package that is not there ({error.name}): pip install 'imperfed[onnx]'"
        ) from error
    with quietly():
        program = torch.onnx.export(
            model,
            (x,),
            dynamo=True,
            verbose=False,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes=any_number_of_rows(),
        )
    assert program is not None
    proto = program.model_proto
    for name in ("input", "output"):
        entry = proto.metadata_props.add()
        entry.key, entry.value = name, json.dumps(description[name])
    onnx.save(proto, path)


def write_program(model: DeliveredModel, x: Tensor, description: Description, path: Path) -> None:
    """Write a program of `torch.export`; the description is the file `description.json` inside it."""
    with quietly():
        program = torch.export.export(model, (x,), dynamic_shapes=any_number_of_rows())
        torch.export.save(program, path, extra_files={"description.json": json.dumps(description)})


def write_tensors(model: DeliveredModel, x: Tensor, description: Description, path: Path) -> None:
    """Write plain named tensors, for other code; the description is in the header."""
    from safetensors.torch import save

    tree = {f"network.{name}": t for name, t in model.network.state_dict().items()}
    tree |= {f"scale.{name}": t for name, t in model.scale.tree().items()}
    tree["temperature"] = torch.tensor(model.temperature)
    if model.mixture is not None:
        tree |= {f"alone.{name}": t for name, t in model.mixture.tree().items()}
    header = {"description": json.dumps(description)}
    path.write_bytes(save({name: t.contiguous() for name, t in tree.items()}, header))


def any_number_of_rows() -> dict[str, Any]:
    """Return which dimension of the input is left open."""
    return {INPUT: {0: torch.export.Dim("rows")}}


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keep the exporter's own progress and its notes about itself from the terminal."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


FORMATS: dict[str, tuple[str, Writer]] = {
    "onnx": ("onnx", write_onnx),
    "pt2": ("pt2", write_program),
    "safetensors": ("safetensors", write_tensors),
}
"""The suffix of the file, and how it is written."""
