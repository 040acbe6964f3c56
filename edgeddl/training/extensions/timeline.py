"""Records a few steps of all ranks: layers, phases and the all-reduce of each bucket."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from edgeddl.atomic_file import write_json
from edgeddl.chainer_compat import chainer
from edgeddl.comm.clock_offset import ClockFix, measure_offsets
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.exchange import SummedBucket
from edgeddl.log import logger
from edgeddl.run_format import WARM_UP_STEPS
from edgeddl.training.clock import StepClock
from edgeddl.training.loop import StepReport
from edgeddl.training.parameters import named_parameters
from edgeddl.training.prepared_run import PreparedRun
from edgeddl.training.state import RunState
from edgeddl.training.trace import COMPUTE, RankTrace, Span, render_trace


def make_timeline(run: PreparedRun, finish_pending_update: Callable[[], None]) -> Timeline | None:
    """The timeline that --timeline asks for, as an observer of the exchange."""
    path, steps = run.config.timeline, run.config.timeline_steps
    if path is None:
        return None
    timeline = Timeline(path, steps, run.communicator, run.model, finish_pending_update)
    run.exchange.observers.append(timeline.add_bucket)
    return timeline


class Timeline:
    """Records some steps on every rank; rank 0 writes the trace of all ranks.

    Recording does not change the results of these steps, and other steps are not observed.
    """

    def __init__(
        self,
        path: Path,
        steps: int,
        communicator: Communicator,
        model: chainer.Chain,
        finish_pending_update: Callable[[], None],
    ) -> None:
        self._path = path
        self._finish_pending_update = finish_pending_update
        self._communicator = communicator
        self._steps_to_skip = WARM_UP_STEPS
        self._steps_to_record = steps
        self._hook = _FunctionSpans(self, model)
        self._fixes: list[list[ClockFix]] = []
        self._spans: list[Span] = []
        self._step_started = 0.0
        self._computing_thread = threading.get_ident()
        self.recording = False

    def clock(self) -> StepClock:
        """The clock of the step that begins now."""
        self._step_started = time.perf_counter()
        return _RecordingClock(self, self._hook) if self.recording else StepClock()

    def add_bucket(self, summed: SummedBucket) -> None:
        """An observer of the exchange: puts sums on the track of the thread that computed them."""
        if self.recording:
            slots = summed.bucket.slots
            more = f" and {len(slots) - 1} more" if len(slots) > 1 else ""
            self.add(
                f"all-reduce {slots[0].spec.name}{more}",
                summed.started,
                bucket_bytes=summed.gradient_bytes,
                bytes_sent=summed.bytes_sent,
            )

    def add(self, name: str, start: float, **details: Any) -> None:
        """Add a span of this thread, from `start` until now."""
        computes = threading.get_ident() == self._computing_thread
        track = COMPUTE if computes else threading.current_thread().name
        self._spans.append(Span(track, name, start, time.perf_counter(), details))

    def on_step(self, report: StepReport) -> None:
        if self.recording:
            self.add(f"step {report.state.step}", self._step_started, loss=report.loss)
            self._steps_to_record -= 1
            if not self._steps_to_record:
                self._finish()
        elif self._steps_to_skip:
            self._steps_to_skip -= 1
            if not self._steps_to_skip:
                self._fix_clocks()
                self.recording = True

    def on_epoch(self, state: RunState) -> None:
        """Nothing to do."""

    def on_pause(self, state: RunState, *, final: bool) -> None:
        if final and self.recording:
            self._finish()
        elif final and not self._fixes and self._communicator.rank == 0:
            logger.warning("no timeline: the run ended before the first step to record")

    def _fix_clocks(self) -> None:
        """Without traffic on the links: gradients still travelling belong to the steps before."""
        self._finish_pending_update()
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
            logger.warning(
                "the timeline could not be written to %s: %s", self._path, error.strerror or error
            )
        else:
            logger.info("timeline: %s (open it in ui.perfetto.dev)", self._path)


class _RecordingClock(StepClock):
    """The clock of a recorded step."""

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
    """Records functions under the names of their layers, the links that own their parameters."""

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
