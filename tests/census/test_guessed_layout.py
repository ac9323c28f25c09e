"""What is guessed of the layout of undescribed data: files, folders, images, arrays; and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from imperfed.census.guess import guess
from imperfed.core.errors import DataError
from imperfed.data.files.declaration import Inputs, LabelColumns
from tests.support.guessed import CROWD, read_back, write


def test_a_test_file_among_the_sites_files_is_no_site(tmp_path: Path) -> None:
    found = read_back(guess(write(tmp_path, north=CROWD, south=CROWD, test=CROWD))).declaration
    assert found.sites == {"north": "north.csv", "south": "south.csv"}
    assert found.test == "test.csv"


def test_a_folder_a_site(tmp_path: Path) -> None:
    found = read_back(guess(write(tmp_path, north__rows=CROWD, south__rows=CROWD))).declaration
    assert found.sites == "*/rows.csv"


def test_a_folder_a_site_beside_one_for_tests(tmp_path: Path) -> None:
    found = read_back(guess(write(tmp_path, north__rows=CROWD, south__rows=CROWD, test__rows=CROWD))).declaration
    assert found.sites == {"north": "north/rows.csv", "south": "south/rows.csv"}
    assert found.test == "test/rows.csv"


def test_a_folder_a_site_with_its_rows_and_its_tests(tmp_path: Path) -> None:
    rows = {f"{site}__{part}": CROWD for site in ("north", "south", "west") for part in ("test", "train")}
    found = read_back(guess(write(tmp_path, **rows))).declaration
    assert (found.sites, found.test) == ("*/train.csv", "*/test.csv")


def test_the_test_files_of_sites_beside_their_rows(tmp_path: Path) -> None:
    found = read_back(guess(write(tmp_path, a=CROWD, b=CROWD, test_a=CROWD, test_b=CROWD))).declaration
    assert found.sites == {"a": "a.csv", "b": "b.csv"}
    assert found.test == "test_*.csv"


def test_a_folder_with_the_tests_of_all_sites(tmp_path: Path) -> None:
    found = read_back(guess(write(tmp_path, rows__a=CROWD, rows__b=CROWD, test__a=CROWD, test__b=CROWD))).declaration
    assert (found.sites, found.test) == ("rows/*.csv", "test/*.csv")


def test_rows_of_parquet_files_are_counted(tmp_path: Path) -> None:
    for site, first in (("a", 0), ("b", 100)):
        age = ["old" if (site, i) == ("b", 7) else str(first + i) for i in range(40)]
        parquet.write_table(pa.table({"age": age, "label": ["x", "y"] * 20}), tmp_path / f"{site}.parquet")
    assert any("'old' (b.parquet, row 7)" in sentence for sentence in guess(tmp_path).why)


def paint(path: Path, mode: str, side: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (side, side // 2)).save(path)


def test_folders_of_images(tmp_path: Path) -> None:
    for site, label in (("a", "cat"), ("b", "cat"), ("b", "dog"), ("test", "cat")):
        paint(tmp_path / site / label / "1.png", "RGB", 448)
    found = read_back(guess(tmp_path)).declaration
    assert found.sites == {"a": "a", "b": "b"}
    assert found.test == "test"
    assert found.inputs == Inputs(size=(112, 224), channels=3)
    assert found.labels == LabelColumns("exact", ("cat", "dog"))


def test_paths_of_images_in_a_column(tmp_path: Path) -> None:
    for number in range(4):
        paint(tmp_path / "shots" / f"{number}.png", "L", 30)
    rows = "file,label\n" + "".join(f"shots/{i}.png,{'ab'[i % 2]}\n" for i in range(4))
    found = read_back(guess(write(tmp_path, a=rows, b=rows))).declaration
    assert found.inputs == Inputs(image="file", size=(15, 30), channels=1)
    assert found.id == "file"


def test_npz_files(tmp_path: Path) -> None:
    for site in ("a", "b"):
        np.savez(tmp_path / f"{site}.npz", x=np.ones((2, 3)), candidates=np.eye(2, dtype=bool), classes=["u", "v"])
    found = read_back(guess(tmp_path)).declaration
    assert found.inputs == Inputs(array="x")
    assert found.labels == LabelColumns("candidates", ("u", "v"), "candidates")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("w,v,label\n1,2,a\n2,3,b\n3,4,a\n", "a column that names the site"),
        ("site,w,label\na,1,u\na,2,v\n,3,u\nb,4,v\nb,5,u\n", "line 4, column site: found a blank, expected a site's"),
        ("site,w,v\na,1.5,2.5\na,2.5,3.5\nb,3.5,4.5\nb,3.6,4.6\n", "no column looks like labels"),
        ("site,w,label\na,1\n", "line 2: found 2 cells, expected 3 as in the header"),
    ],
)
def test_what_cannot_be_guessed_is_said_with_the_file(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DataError, match=said) as error:
        guess(write(tmp_path, all=text) / "all.csv")
    assert "all.csv" in str(error.value)


def test_text_that_is_not_utf_8_is_told_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, a=CROWD, b=CROWD)
    (tmp_path / "b.csv").write_bytes(CROWD.replace("dog|cat", "d\xf6g|cat").encode("latin-1"))
    with pytest.raises(DataError, match=r"b\.csv, line 6: found b'\\xf6', expected UTF-8 text"):
        guess(tmp_path)


def test_all_ragged_rows_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    write(tmp_path, a=CROWD.replace("r2,1.5,", "r2,"), b=CROWD, c=CROWD.replace("r4,", "r4,,").replace("r5,", ""))
    with pytest.raises(DataError) as error:
        guess(tmp_path)
    first, *lines = str(error.value).splitlines()
    assert first == f"{tmp_path.name}: 3 problems; nothing was trained or written"
    assert [line.partition("; ")[0] for line in lines] == [
        f"  {tmp_path / 'a.csv'}, line 3: found 3 cells, expected 4 as in the header",
        f"  {tmp_path / 'c.csv'}, line 5: found 5 cells, expected 4 as in the header",
        f"  {tmp_path / 'c.csv'}, line 6: found 3 cells, expected 4 as in the header",
    ]


def test_quoted_text_may_span_lines_in_files_of_any_size(tmp_path: Path) -> None:
    rows = "w,note,label\n" + "".join(f'{i}.5,"one{" " * 70}\n\n, two {i}\n",{"ab"[i % 2]}\n' for i in range(20_000))
    assert guess(write(tmp_path, a=rows, b=rows)).declaration.inputs == Inputs(("w",))


def test_what_only_the_fast_reader_refuses_is_told_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.csv: found straddling object .*, expected a table; write it again"):
        guess(write(tmp_path, a=f"w,note,label\n1,{'x' * 3_000_000},a\n2,y,b\n", b="w,note,label\n1,x,a\n2,y,b\n"))


def test_files_that_are_no_tables_are_told_at_once(tmp_path: Path) -> None:
    for site in ("a", "b"):
        (tmp_path / f"{site}.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="2 problems") as error:
        guess(tmp_path)
    assert "b.parquet" in str(error.value)
    with pytest.raises(DataError, match=r"a\.csv: found no rows"):
        guess(write(tmp_path / "more", a="", b=CROWD))


def test_files_that_have_nothing_in_common(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column in common"):
        guess(write(tmp_path, a="w,label\n1,a\n2,b\n", b="v,class\n1,a\n2,b\n"))


def test_one_archive_for_all_is_given_to_a_run_as_it_is(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x=np.ones((4, 3)), y=[0, 1, 0, 1], site=[0, 0, 1, 1])
    with pytest.raises(DataError, match="toml; use it for a run as it is"):
        guess(tmp_path / "all.npz")


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="found no sites"):
        guess(tmp_path)
