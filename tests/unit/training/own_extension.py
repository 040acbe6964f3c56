"""Extensions as a user writes them."""

from __future__ import annotations

from typing import Any

CALLS: list[tuple[Any, ...]] = []  # of all ranks, which are threads


class Plain:
    rank = 0

    def on_step(self, report: Any) -> None:
        CALLS.append((self.rank, "step", report.loss))

    def on_epoch(self, state: Any) -> None:
        CALLS.append((self.rank, "epoch", state.epoch))

    def on_pause(self, state: Any, *, final: bool) -> None:
        CALLS.append((self.rank, "pause", final))


class Recorder(Plain):
    def __init__(self, run: Any) -> None:
        self.rank = run.communicator.rank

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        CALLS.append((self.rank, "exit", kind))


class Failing(Plain):
    def __init__(self, run: Any) -> None:
        pass

    def on_step(self, report: Any) -> None:
        if report.state.step == 3:
            raise RuntimeError("third step")


def takes_nothing() -> None:
    pass


def broken(run: Any) -> float:
    return 1 / 0


def incomplete(run: Any) -> object:
    return object()
