"""Images of a table or a folder as inputs: all of them read now, or each when a batch needs it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from imperfed.core.lazy import LazyRows
from imperfed.data import from_arrays
from imperfed.data.files.declaration import Inputs
from imperfed.data.files.medical import MIDDLE, is_medical, read_medical, reader_versions, require_readers
from imperfed.data.files.problems import Problems, shown
from imperfed.data.files.table import IMAGE, FileTable
from imperfed.data.lazy.image_rows import Decoder, ImageRows

Pixels = npt.NDArray[np.uint8]


def image_column(table: FileTable, inputs: Inputs) -> str:
    """Return the column of paths."""
    return IMAGE if table.is_folder else inputs.image


def read_images(table: FileTable, inputs: Inputs, problems: Problems) -> Tensor:
    """Return the images [n, channels, height, width] of a table with one path per row; lazily if so declared."""
    paths = table.columns[image_column(table, inputs)]
    folder = table.file if table.is_folder and isinstance(table.file, Path) else table.file.parent
    require_readers(path.as_py() or "" for path in paths)
    read = partial(read_image, size=inputs.size, channels=inputs.channels, slice=inputs.slice, window=inputs.window)
    if inputs.lazy:
        return _lazily(table, (folder, paths), read, inputs, problems)
    pixels: Pixels = np.zeros((table.rows, inputs.channels, *inputs.size), np.uint8)
    for row, path in enumerate(paths):
        image = read(folder / str(path.as_py() or ""))
        if isinstance(image, str):
            _note(table, inputs, problems, row, image)
        else:
            pixels[row] = image
    return from_arrays.scaled(pixels)


def _lazily(table: FileTable, paths: tuple[Path, Any], read: Decoder, inputs: Inputs, problems: Problems) -> Tensor:
    """Return images that are read later; only whether the files exist is looked up now."""

    def problem(row: int, found: str) -> str:
        noted = Problems()
        _note(table.numbered, inputs, noted, row, found)
        return str(noted.kept[0])

    settings = f"{inputs.size} {inputs.channels} {inputs.slice} {inputs.window} {_versions()}"
    source = ImageRows(paths, (inputs.channels, *inputs.size), read, settings, problem)
    for row in source.missing():
        _note(table, inputs, problems, row, "no such file")
    return LazyRows.of(source)


def _versions() -> str:
    """Return the versions of the decoders: others may decode to other pixels."""
    import PIL

    return f"Pillow {PIL.__version__} {reader_versions()}"


def _note(table: FileTable, inputs: Inputs, problems: Problems, row: int, found: str) -> None:
    name = image_column(table, inputs)
    found = found if table.is_folder else f"{shown(table.columns[name][row].as_py())}: {found}"
    table.note(problems, row, name, found, "an image", "fix the path, or replace the image")


def opened(path: Path, slice: int = MIDDLE, window: Sequence[int] = ()) -> Any:
    """Return an image as Pillow has it, to be used in a `with` statement."""
    from PIL import Image

    return Image.fromarray(read_medical(path, slice, window)) if is_medical(path.name) else Image.open(path)


def read_image(
    path: Path, size: Sequence[int], channels: int, slice: int = MIDDLE, window: Sequence[int] = ()
) -> Pixels | str:
    """Return an image file as uint8 [channels, height, width], or why it cannot be read.

    `slice`, `window`: which image of a DICOM or NIfTI file, and which of its values are black and white.
    """
    from PIL import Image

    height, width = size
    try:
        with warnings.catch_warnings(), opened(path, slice, window) as image:
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if image.mode.startswith("I"):  # 16 bits per pixel: Pillow would clip values above 255
                image = Image.fromarray((np.asarray(image).clip(0, 65535) // 257).astype(np.uint8))
            image = image.convert("L" if channels == 1 else "RGB")
            if image.size != (width, height):
                image = image.resize((width, height), Image.Resampling.BILINEAR)
            array = np.asarray(image)
    except FileNotFoundError:
        return "no such file"
    except Exception as error:  # Pillow's decoders share no exception type
        reason = f": {str(error).splitlines()[0]}" if is_medical(path.name) and str(error) else ""
        return f"not readable as an image ({type(error).__name__}{reason})"
    return array[None] if channels == 1 else np.moveaxis(array, -1, 0)
