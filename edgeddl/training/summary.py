"""What came out of a run: the summary as JSON and as a text for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgeddl import machine
from edgeddl.comm.communicator import Communicator
from edgeddl.config import TrainConfig
from edgeddl.table import counted, render_facts, render_table
from edgeddl.training.clock import Stopwatch
from edgeddl.training.state import RunState


def rank_summary(
    communicator: Communicator, stopwatch: Stopwatch, threads: int, bytes_sent: int
) -> dict[str, Any]:
    """What one rank has to say of itself."""
    return {
        "rank": communicator.rank,
        "host": communicator.host,
        "cpu": machine.cpu_name(),
        "threads": threads,
        "images_per_second": stopwatch.images_per_second,
        "images_per_second_alone": stopwatch.images_per_second_alone,
        "phase_seconds": stopwatch.phase_seconds,
        "step_seconds": stopwatch.seconds,
        "peak_memory_bytes": machine.peak_memory_bytes(),
        "bytes_sent": bytes_sent,
    }


def summarise(
    config: TrainConfig,
    state: RunState,
    stopwatch: Stopwatch,
    ranks: list[dict[str, Any]],
    *,
    final_accuracy: float | None,
    stopped: bool,
) -> dict[str, Any]:
    """The whole run, as written to the summary file.

    Scaling efficiency is the global throughput over the sum of what the ranks would do without
    communication: a rank's images over its step time less what it waited for all-reduces.
    """
    global_speed = stopwatch.global_images / stopwatch.seconds if stopwatch.seconds else 0.0
    alone = sum(rank["images_per_second_alone"] for rank in ranks)
    return {
        "options": config.to_json(),
        "versions": machine.versions() | {"blas": machine.blas_name()},
        "steps": state.step,
        "epochs": state.epoch,
        "images": state.images,
        "measured_steps": stopwatch.steps,
        "images_per_second": global_speed,
        "scaling_efficiency": global_speed / alone if alone else None,
        "final_accuracy": final_accuracy,
        "best_accuracy": state.best_accuracy,
        "stopped": stopped,
        "ranks": ranks,
        "history": state.history,
        "step_losses": state.step_losses,
    }


def render_summary(summary: Mapping[str, Any], files: Mapping[str, str]) -> str:
    """The end of a run for people: ranks in a table, results, and where the files are."""
    lines = ["", render_table(RANK_HEADINGS, [_rank_row(rank) for rank in summary["ranks"]]), ""]
    lines.append(render_facts([*_results(summary), *files.items()]))
    return "\n".join(lines)


RANK_HEADINGS = (
    "rank", "host", "threads", "img/s",
    "forward", "backward", "wait", "update", "data", "memory", "sent",
)  # fmt: skip


def _rank_row(rank: Mapping[str, Any]) -> list[str]:
    phases, total = rank["phase_seconds"], rank["step_seconds"] or 1.0
    shares = ("forward", "backward", "allreduce_wait", "update", "data")
    return [
        str(rank["rank"]),
        rank["host"],
        str(rank["threads"]),
        f"{rank['images_per_second']:.1f}",
        *(f"{phases[name] / total:.1%}" for name in shares),
        f"{rank['peak_memory_bytes'] / 2**20:.0f} MiB",
        f"{rank['bytes_sent'] / 1e6:.1f} MB",
    ]


def _results(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    efficiency, accuracy = summary["scaling_efficiency"], summary["final_accuracy"]
    losses, ranks = summary["step_losses"], len(summary["ranks"])
    ending = "stopped after" if summary["stopped"] else "trained"
    return [
        ("run", f"{ending} {counted(summary['steps'], 'step')}, {summary['images']:,} images"),
        ("throughput", f"{summary['images_per_second']:.1f} img/s on {counted(ranks, 'rank')}"),
        (
            "efficiency",
            "-" if efficiency is None else f"{efficiency:.1%} of the ranks without waiting",
        ),
        ("loss", f"{losses[0]:.4f} first, {losses[-1]:.4f} last step" if losses else "-"),
        ("accuracy", "not evaluated" if accuracy is None else f"{accuracy:.2%} of the test images"),
    ]
