"""DICOM and NIfTI files as images."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian

from imperfed.core.errors import DataError, UsageError
from imperfed.data.files import medical
from imperfed.data.files.declaration import Declaration, Inputs, LabelColumns, read_declaration
from imperfed.data.files.image_files import read_image
from imperfed.data.files.medical import read_medical
from imperfed.data.files.reading import read_sites
from tests.support.terminal import done
from tests.support.written_files import declare

VALUES = np.array([[0, 10, 20], [30, 40, 1000]], np.uint16)


def dicom(path: Path, values: Any = VALUES, **tags: Any) -> Path:
    file = FileDataset(str(path), {}, file_meta=FileMetaDataset(), preamble=b"\0" * 128)
    file.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    file.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.1"
    file.file_meta.MediaStorageSOPInstanceUID = "1.2.3"
    file.Rows, file.Columns = values.shape[-2:]
    file.BitsAllocated = file.BitsStored = 16
    file.HighBit, file.PixelRepresentation, file.SamplesPerPixel = 15, 0, 1
    file.PhotometricInterpretation = "MONOCHROME2"
    for name, value in tags.items():
        setattr(file, name, value)
    file.PixelData = values.tobytes()
    file.save_as(path, enforce_file_format=True)
    return path


WINDOW = {"WindowCenter": 20.5, "WindowWidth": 41, "RescaleSlope": 2, "RescaleIntercept": -10}


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({}, [[0, 3, 5], [8, 10, 255]]),  # without a window: from the smallest value to the largest
        (WINDOW, [[0, 64, 191], [255, 255, 255]]),  # 2 v - 10 from 0 to 40
        ({**WINDOW, "WindowCenter": [20.5, 900]}, [[0, 64, 191], [255, 255, 255]]),  # the first of several
        ({**WINDOW, "PhotometricInterpretation": "MONOCHROME1"}, [[255, 191, 64], [0, 0, 0]]),
        ({**WINDOW, "VOILUTFunction": "SIGMOID"}, [[12, 67, 183], [241, 253, 255]]),
    ],
)
def test_dicom_is_rescaled_windowed_and_inverted(tags: Mapping[str, Any], expected: Any, tmp_path: Path) -> None:
    assert read_medical(dicom(tmp_path / "a.dcm", **tags)).tolist() == expected


def test_a_declared_window_counts_more_than_the_files_own(tmp_path: Path) -> None:
    path = dicom(tmp_path / "a.dcm", **WINDOW)
    assert read_medical(path, window=(0, 21)).tolist() == [[6, 255, 255], [255, 255, 255]]


def test_one_frame_of_several_is_taken(tmp_path: Path) -> None:
    frames = np.stack([VALUES + 100 * k for k in range(5)])
    path = dicom(tmp_path / "a.dcm", frames, NumberOfFrames=5, WindowCenter=512.5, WindowWidth=1025)
    alone = [
        read_medical(dicom(tmp_path / f"{k}.dcm", f, WindowCenter=512.5, WindowWidth=1025))
        for k, f in enumerate(frames)
    ]
    assert (read_medical(path) == alone[2]).all()
    assert (read_medical(path, 4) == alone[4]).all()
    found = read_image(path, (2, 3), 1, slice=5)
    assert found == "not readable as an image (ValueError: 5 frames, and number 5 is declared, counting from 0)"


def nifti(path: Path, values: Any) -> Path:
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), path)
    return path


def test_one_slice_of_a_volume_is_taken(tmp_path: Path) -> None:
    volume = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for ending in ("nii", "nii.gz"):
        path = nifti(tmp_path / f"a.{ending}", volume)
        values = volume[:, :, 2].T[::-1]  # the second axis points up
        shades = ((values - values.min()) / np.ptp(values) * 255).round()
        assert (read_medical(path) == shades).all()
        assert read_medical(path, 0, (8, 17)).tolist() == [[135, 255], [72, 255], [8, 199]]
    two = np.stack([volume, 5 - volume], 3)
    assert (read_medical(nifti(tmp_path / "b.nii", two), 1) == read_medical(tmp_path / "a.nii", 1)).all()
    assert read_medical(nifti(tmp_path / "c.nii", volume[:, :, 0])).shape == (3, 2)


def sites(folder: Path, **inputs: Any) -> Path:
    draw = np.random.default_rng(0)
    for site in ("north", "south"):
        for kind in ("ill", "well"):
            home = folder / "sites" / site / kind
            home.mkdir(parents=True)
            for k in range(3):
                dicom(home / f"{k}.dcm", draw.integers(1000, size=(9, 8), dtype=np.uint16))
                nifti(home / f"{k}.nii.gz", draw.normal(size=(8, 9, 3)))
    declared = Inputs(size=(8, 8), channels=1, **inputs)
    labels = LabelColumns("exact", ("ill", "well"))
    return declare(folder, Declaration("scans", "sites/*", inputs=declared, labels=labels))


def test_a_folder_of_scans_is_read_now_or_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    now, later = (
        read_sites(read_declaration(sites(tmp_path / str(lazy), lazy=lazy))).check().sites for lazy in (False, True)
    )
    for one, other in zip(now, later, strict=True):
        assert one.rows.x.shape == (12, 1, 8, 8)
        assert (one.rows.x.numpy() == other.rows.x.numpy()).all()
    (tmp_path / "False/federation.toml").unlink()
    assert "north" in done("inspect", tmp_path / "False").out
    assert read_declaration(tmp_path / "False").inputs.size == (9, 8)


def test_damaged_files_are_named_with_the_reason(tmp_path: Path) -> None:
    folder = sites(tmp_path)
    cut, other = folder / "sites/north/ill/0.dcm", folder / "sites/south/well/1.nii.gz"
    cut.write_bytes(cut.read_bytes()[:-40])
    other.write_bytes(b"no volume")
    with pytest.raises(DataError) as raised:
        read_sites(read_declaration(folder)).check()
    said = str(raised.value)
    assert "2 problems" in said
    assert f"{cut}, column image: found not readable as an image (ValueError: " in said
    assert f"{other}, column image: found not readable as an image (" in said


def test_without_the_extra_one_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sites(tmp_path)
    monkeypatch.setattr(medical, "READERS", {medical.DICOM: "no_such_pydicom", medical.NIFTI: "nibabel"})
    with pytest.raises(UsageError, match=r"\.dcm files need the packages .* pip install 'imperfed\[medical\]'"):
        read_sites(read_declaration(folder))


def test_slices_and_windows_are_for_images_only() -> None:
    from imperfed.data.files.declaration import parse

    text = 'sites = "*.csv"\n[inputs]\n{}\n[labels]\nkind = "exact"\ncolumn = "y"\nclasses = ["a", "b"]\n'
    with pytest.raises(DataError, match="slice or window, expected images"):
        parse(text.format('numeric = ["a"]\nslice = 3'))
    with pytest.raises(DataError, match=r"inputs\.window: found \[40, 0\], expected centre and width"):
        parse(text.format('image = "a"\nsize = 8\nwindow = [40, 0]'))
