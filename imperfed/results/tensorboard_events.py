"""Event files for TensorBoard: `tensorboard --logdir RUN/tensorboard`."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import ClassVar

from imperfed.results.folder import Record
from imperfed.results.tracking import Tracker

FILE = "events.out.tfevents.imperfed"
"""TensorBoard knows its files by the middle part; its own writer would add the name of the machine."""
VERSION = "brain.Event:2"
"""What the first event of a file must say."""


class TensorBoardEvents(Tracker):
    """One curve per metric and site: each site is a "run" of TensorBoard, figures of no particular site are in "."."""

    package: ClassVar[str] = "tensorboard"
    place: ClassVar[str] = "tensorboard"

    def write(self, records: list[Record]) -> None:
        """Append to the file of every site that has a record. Files are not kept open: there may be thousands."""
        by_site = defaultdict(list)
        for record in records:
            by_site[record["site"]].append(record)
        for site, own in by_site.items():
            append_events(self.folder / ("" if site == "*" else site) / FILE, own)


def append_events(path: Path, records: list[Record]) -> None:
    """Append one event per record."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    now, new = time.time(), not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        writer = RecordWriter(file)
        if new:
            writer.write(Event(wall_time=now, file_version=VERSION).SerializeToString())
        for record in records:
            value = Summary.Value(tag=record["metric"], simple_value=record["value"])
            event = Event(wall_time=now, step=record["round"], summary=Summary(value=[value]))
            writer.write(event.SerializeToString())
