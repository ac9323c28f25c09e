"""DICOM and NIfTI files as grey or colour images of 8 bits.

Of several frames or slices one is taken: the middle one, or the one that is declared. Values become grey by a window:
the declared one, else the file's own, else from the smallest to the largest value of the image.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from imperfed.core.errors import UsageError

Floats = npt.NDArray[np.float64]
Grey = npt.NDArray[np.uint8]

DICOM, NIFTI = (".dcm",), (".nii", ".nii.gz")
MEDICAL = (*DICOM, *NIFTI)
READERS = {DICOM: "pydicom", NIFTI: "nibabel"}
MIDDLE = -1


def is_medical(name: str) -> bool:
    """Return whether a file of this name is read here."""
    return name.lower().endswith(MEDICAL)


def require_readers(names: Iterable[str]) -> None:
    """Refuse files for whose format no reader is installed."""
    endings = {ending for name in names for ending in READERS if name.lower().endswith(ending)}
    for ending in sorted(endings):
        try:
            import_module(READERS[ending])
        except ImportError as error:
            raise UsageError(
                f"{ending[0]} files need the packages of the extra `medical`: pip install 'imperfed[medical]' ({error})"
            ) from error


def reader_versions() -> str:
    """Return the versions of the readers that are installed: another one may read other values."""
    found = []
    for package in READERS.values():
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return " ".join(found)


def read_medical(path: Path, slice: int = MIDDLE, window: Sequence[int] = ()) -> Grey:
    """Return one image, [height, width] or [height, width, 3]; any error says what is wrong with the file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of oddities that can be read all the same
        if path.name.lower().endswith(DICOM):
            return _read_dicom(path, slice, window)
        return _shades(_nifti_slice(path, slice), window)


def _read_dicom(path: Path, slice: int, window: Sequence[int]) -> Grey:
    """Return a frame: rescaled, windowed, and with MONOCHROME1, in which 0 is white, inverted."""
    pydicom, pixels = import_module("pydicom"), import_module("pydicom.pixels")
    file = pydicom.dcmread(path)
    colours = str(file.PhotometricInterpretation)
    frame = _chosen(slice, int(file.get("NumberOfFrames") or 1), "frames")
    array = pixels.pixel_array(file, index=frame)
    if array.ndim == 3 and array.dtype == np.uint8:
        return np.asarray(array, np.uint8)
    if array.ndim != 2 or not colours.startswith("MONOCHROME"):
        raise ValueError(f"{colours} of {array.dtype} and shape {array.shape}")
    values = np.asarray(pixels.apply_modality_lut(array, file), np.float64)
    grey = _shades(values, window or _own_window(file), str(file.get("VOILUTFunction") or "LINEAR"))
    return 255 - grey if colours == "MONOCHROME1" else grey


def _own_window(file: Any) -> tuple[float, ...]:
    """Return centre and width of the first window of a DICOM file; empty if it has none."""
    pair = file.get("WindowCenter"), file.get("WindowWidth")
    first = [value[0] if hasattr(value, "__getitem__") else value for value in pair if value not in (None, "")]
    return tuple(map(float, first)) if len(first) == 2 else ()


def _nifti_slice(path: Path, slice: int) -> Floats:
    """Return a slice along the third axis, of the first volume, turned so that the second axis points up."""
    image = import_module("nibabel").load(path)
    first_volume = (0,) * max(0, len(image.shape) - 3)
    if len(image.shape) < 2:
        raise ValueError(f"{len(image.shape)} axes")
    depth = () if len(image.shape) == 2 else (_chosen(slice, image.shape[2], "slices"),)
    values = np.asarray(image.dataobj[(..., *depth, *first_volume)], np.float64)
    return np.rot90(values)


def _chosen(slice: int, count: int, what: str) -> int:
    if slice >= count:
        raise ValueError(f"{count} {what}, and number {slice} is declared, counting from 0")
    return count // 2 if slice == MIDDLE else slice


def _shades(values: Floats, window: Sequence[float], function: str = "LINEAR") -> Grey:
    """Return grey values from 0 to 255, by a window (centre, width) or from the smallest value to the largest."""
    values = np.nan_to_num(values)
    if not window:
        low, high = float(values.min()), float(values.max())
        share = (values - low) / max(high - low, np.finfo(np.float64).tiny)
    else:  # DICOM PS3.3, C.11.2.1.2 and C.11.2.1.3
        centre, width = window
        if function == "SIGMOID":
            share = 1 / (1 + np.exp(-4 * (values - centre) / width))
        elif function == "LINEAR_EXACT":
            share = (values - centre) / width + 0.5
        else:
            share = (values - (centre - 0.5)) / max(width - 1, 1e-9) + 0.5
    return np.asarray((share.clip(0, 1) * 255).round(), np.uint8)
