"""Small files of a site's state: a bit that changed on disk is noticed, and the run ends with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from imperfed.core.errors import DataError
from imperfed.core.labels import Exact
from imperfed.engine.failures import Crashed
from imperfed.flower.messages.payload import failure_of, pack
from imperfed.flower.site.agreement import Agreement
from imperfed.flower.site.handlers import handle
from imperfed.flower.site.privacy_ledger import PrivacyLedger, Release
from imperfed.flower.site.reading_ledger import READINGS, ReadingLedger, RowReading
from imperfed.flower.site.runtime import LEDGER, ROWS, RowsAtFirst
from imperfed.flower.site.sealed_words import read_sealed, write_sealed
from imperfed.flower.site.site_folder import AGREEMENT
from tests.support.rehearsal import Apart, raw, settled

VALUES = (
    Agreement("[run]", "", False, "accepted", "", RowReading("a.csv", "00", True, 0.2, 3), 0.25),
    PrivacyLedger(b"secret", (Release("run", 1, 0.5, "ab"),)),
    ReadingLedger().noted(RowReading("a.csv", "00", False, 0.2, 3), "run", 0.0),
    RowsAtFirst(40, "abc"),
)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_every_bit_counts(value: object, tmp_path: Path) -> None:
    path = tmp_path / "words.json"
    assert read_sealed(path, type(value)) is None
    write_sealed(path, value)
    assert read_sealed(path, type(value)) == value
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in (1, 4, 16):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
            with pytest.raises(DataError, match=r"words.json: not readable \("):
                read_sealed(path, type(value))


def test_files_of_earlier_versions_are_read(tmp_path: Path) -> None:
    (tmp_path / ROWS).write_text(json.dumps({"rows": 40, "digest": "abc"}))
    assert read_sealed(tmp_path / ROWS, RowsAtFirst) == RowsAtFirst(40, "abc")


@pytest.mark.parametrize("name", [AGREEMENT, READINGS])
def test_a_site_with_a_damaged_file_answers_nothing_and_says_which(name: str, tmp_path: Path) -> None:
    apart = Apart(settled("fedavg", **{"rounds.rounds": 2}), raw(Exact), tmp_path).start()
    place, backend = apart.place(apart.holdings[1]), apart.server.backend
    path = (place.state if name in (READINGS, LEDGER) else place.state / "run") / name
    content = path.read_bytes()
    path.write_bytes(content.replace(b"run", b"rum", 1) if name == READINGS else content.replace(b"batch", b"bauch", 1))
    failure = failure_of(handle(place, "train", pack(backend._payload(1, 0, 0))))
    assert failure == Crashed("DataError; its log says why")
    assert f"{path}: not readable (damaged: its checksum is wrong)" in (place.state / "log.txt").read_text()
    path.write_bytes(content)
    answer = handle(place, "train", pack(backend._payload(1, 0, 0)))
    assert torch.isfinite(answer.trees["up"]["w"]).all()
