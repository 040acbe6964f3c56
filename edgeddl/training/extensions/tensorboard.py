"""--tensorboard DIR: event files, which `tensorboard --logdir DIR` shows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from edgeddl.training.extensions.trackers import Tracker
from edgeddl.training.prepared_run import PreparedRun


class TensorBoard(Tracker):
    """Writes to a folder with the name of the run, so that TensorBoard compares runs."""

    name = "TensorBoard"

    def __init__(self, folder: Path, run: PreparedRun) -> None:
        super().__init__()
        assert run.folder is not None
        target = folder / run.folder.path.name
        target.mkdir(parents=True, exist_ok=True)
        self._writer = EventFileWriter(str(target))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        content = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=content))
        self._writer.add_event(event)

    def flush(self) -> None:
        self._writer.flush()

    def close(self, succeeded: bool) -> None:
        self._writer.close()
