"""Records a few steps of all ranks: layers, phases and the all-reduce of each bucket."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from edgeddl.atomic_file import write_json
from edgeddl.chainer_compat import chainer
from edgeddl.comm.bucket import Bucket
from edgeddl.comm.clock_offset import ClockFix, measure_offsets
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.compression import BucketSum
from edgeddl.log import logger
from edgeddl.run_format import WARM_UP_STEPS
from edgeddl.training.clock import StepClock
from edgeddl.training.late_update import LateUpdate
from edgeddl.training.loop import StepReport
from edgeddl.training.parameters import named_parameters
from edgeddl.training.state import RunState
from edgeddl.training.trace import COMPUTE, RankTrace, Span, render_trace


class Timeline:
    """On every rank: records steps after the first ones, and rank 0 writes what all have recorded.

    Nothing is looked at before and after these steps, and nothing else is computed in them.
    """

    def __init__(
        self,
        path: Path,
        steps: int,
        communicator: Communicator,
        model: chainer.Chain,
        late_update: LateUpdate,
    ) -> None:
        self._path = path
        self._late_update = late_update
        self._communicator = communicator
        self._steps_to_come = WARM_UP_STEPS
        self._steps_to_record = steps
        self._hook = _FunctionSpans(self, model)
        self._fixes: list[list[ClockFix]] = []
        self._spans: list[Span] = []
        self._step_started = 0.0
        self._computing_thread = threading.get_ident()
        self.recording = False

    def clock(self) -> StepClock:
        """For the step that begins now."""
        self._step_started = time.perf_counter()
        return _RecordingClock(self, self._hook) if self.recording else StepClock()

    def add(self, name: str, start: float, **details: Any) -> None:
        """Something that this thread did from `start` until now."""
        computes = threading.get_ident() == self._computing_thread
        track = COMPUTE if computes else threading.current_thread().name
        self._spans.append(Span(track, name, start, time.perf_counter(), details))

    def on_step(self, report: StepReport) -> None:
        if self.recording:
            self.add(f"step {report.state.step}", self._step_started, loss=report.loss)
            self._steps_to_record -= 1
            if not self._steps_to_record:
                self._finish()
        elif self._steps_to_come:
            self._steps_to_come -= 1
            if not self._steps_to_come:
                self._fix_clocks()
                self.recording = True

    def on_epoch(self, state: RunState) -> None:
        """Nothing: steps are recorded."""

    def on_pause(self, state: RunState, *, final: bool) -> None:
        if final and self.recording:
            self._finish()
        elif final and not self._fixes and self._communicator.rank == 0:
            logger.warning("no timeline: the run ended before the first step to record")

    def _fix_clocks(self) -> None:
        """With nothing on the links; what was on its way belongs to the steps before."""
        self._late_update.settle()
        self._fixes.append(measure_offsets(self._communicator))

    def _finish(self) -> None:
        self._fix_clocks()
        self.recording = False
        spans = self._communicator.allgather(self._spans)
        self._spans = []
        if self._communicator.rank == 0:
            before_and_after = zip(*self._fixes, strict=True)
            ranks = zip(self._communicator.hosts, spans, before_and_after, strict=True)
            self._write(render_trace([RankTrace(*rank) for rank in ranks]))

    def _write(self, trace: dict[str, Any]) -> None:
        try:
            write_json(self._path, trace)
        except OSError as error:
            logger.warning("no timeline in %s: %s", self._path, error.strerror or error)
        else:
            logger.info("timeline: %s, to be opened in ui.perfetto.dev", self._path)


class RecordedSum:
    """A bucket sum whose calls are on the timeline, on the track of the thread that makes them."""

    def __init__(self, bucket_sum: BucketSum, timeline: Timeline) -> None:
        self._sum = bucket_sum
        self._timeline = timeline
        self.payloads = bucket_sum.payloads

    def __call__(self, communicator: Communicator, bucket: Bucket, gradients: np.ndarray) -> int:
        if not self._timeline.recording:
            return self._sum(communicator, bucket, gradients)
        start = time.perf_counter()
        sent = self._sum(communicator, bucket, gradients)
        first = bucket.slots[0].spec.name
        more = f" and {len(bucket.slots) - 1} more" if len(bucket.slots) > 1 else ""
        self._timeline.add(
            f"all-reduce {first}{more}", start, bucket_bytes=gradients.nbytes, bytes_sent=sent
        )
        return sent


class _RecordingClock(StepClock):
    """The clock of a step that is on the timeline."""

    def __init__(self, timeline: Timeline, hook: chainer.FunctionHook) -> None:
        super().__init__()
        self._timeline = timeline
        self._hook = hook

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        with super().phase(name), self._hook if name in ("forward", "backward") else nullcontext():
            yield
        self._timeline.add(name, start)


class _FunctionSpans(chainer.FunctionHook):
    """Functions under the names of their layers: those of the links that own their parameters."""

    name = "edgeddl-timeline"

    def __init__(self, timeline: Timeline, model: chainer.Chain) -> None:
        super().__init__()
        self._timeline = timeline
        self._layers = {
            id(parameter.array): name.rpartition("/")[0]
            for name, parameter in named_parameters(model).items()
        }
        self._started: list[float] = []

    def forward_preprocess(self, function: Any, in_data: Any) -> None:
        self._started.append(time.perf_counter())

    def forward_postprocess(self, function: Any, in_data: Any) -> None:
        self._end(function, in_data, "forward")

    def backward_preprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        self._started.append(time.perf_counter())

    def backward_postprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        self._end(function, in_data, "backward")

    def _end(self, function: Any, in_data: Any, direction: str) -> None:
        layers = (self._layers.get(id(array)) for array in in_data)
        name = next((layer for layer in layers if layer), function.label)
        self._timeline.add(name, self._started.pop(), function=function.label, direction=direction)
