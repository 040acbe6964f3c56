"""The summary of a run, as JSON and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgeddl import kernels, log, machine
from edgeddl.atomic_file import write_json
from edgeddl.comm.communicator import Communicator
from edgeddl.config import TrainConfig
from edgeddl.log import logger
from edgeddl.table import counted, render_facts, render_table
from edgeddl.training.clock import Stopwatch
from edgeddl.training.run_folder import RunFolder
from edgeddl.training.state import RunState


def rank_summary(
    communicator: Communicator,
    stopwatch: Stopwatch,
    *,
    threads: int,
    bytes_sent: int,
    batch_share: int,
) -> dict[str, Any]:
    """The figures of one rank."""
    return {
        "rank": communicator.rank,
        "host": communicator.host,
        "cpu": machine.cpu_name(),
        "threads": threads,
        "batch_share": batch_share,
        "images": stopwatch.images,
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
    measured_steps: int,
    ranks: list[dict[str, Any]],
    *,
    final_accuracy: float | None,
    stopped: bool,
    data_verified: bool,
) -> dict[str, Any]:
    """The whole run, as written to the summary file.

    Scaling efficiency is the global throughput over the sum of the ranks' throughputs without
    communication: a rank's images over its step time less its wait for all-reduces.
    """
    seconds = max(rank["step_seconds"] for rank in ranks)
    global_speed = sum(rank["images"] for rank in ranks) / seconds if seconds else 0.0
    alone = sum(rank["images_per_second_alone"] for rank in ranks)
    return {
        "options": config.to_json(),
        "versions": machine.versions() | {"blas": machine.blas_name(), "kernels": kernels.chosen()},
        "steps": state.step,
        "epochs": state.epoch,
        "images": state.images,
        "measured_steps": measured_steps,
        "images_per_second": global_speed,
        "scaling_efficiency": global_speed / alone if alone else None,
        "final_accuracy": final_accuracy,
        "best_accuracy": state.best[1],
        "stopped": stopped,
        "data_verified": data_verified,
        "ranks": ranks,
        "history": state.history,
        "step_losses": state.step_losses,
    }


def publish_summary(config: TrainConfig, folder: RunFolder, summary: dict[str, Any]) -> None:
    """Rank 0 writes the summary to its files and to the screen."""
    paths = [config.summary] if config.summary else []
    if summary["measured_steps"]:
        paths.append(folder.summary)
    else:
        limit = "--epochs" if summary["epochs"] >= config.epochs else "--max-steps"
        logger.info("the run is already complete; use a larger %s to continue", limit)
    written = [path for path in paths if _write_summary(path, summary)]
    files = [("checkpoints", str(folder.checkpoints))]
    log.print_text(render_summary(summary, files + [("summary", str(path)) for path in written]))


def _write_summary(path: Path, summary: dict[str, Any]) -> bool:
    try:
        write_json(path, summary)
    except OSError as error:
        logger.warning("the summary could not be written to %s: %s", path, error.strerror)
        return False
    return True


def render_summary(summary: Mapping[str, Any], files: Sequence[tuple[str, str]]) -> str:
    """The end of a run as text: a table of ranks, results, and the paths of files."""
    lines = ["", render_table(RANK_HEADINGS, [_rank_row(rank) for rank in summary["ranks"]]), ""]
    lines.append(render_facts([*_results(summary), *files]))
    return "\n".join(lines)


RANK_HEADINGS = (
    "rank", "host", "threads", "img/step", "img/s",
    "forward", "backward", "wait", "other", "memory", "sent",
)  # fmt: skip


def _rank_row(rank: Mapping[str, Any]) -> list[str]:
    total = rank["step_seconds"] or 1.0
    names = ("forward", "backward", "allreduce_wait")
    shares = [rank["phase_seconds"][name] / total for name in names]
    shares.append(max(1 - sum(shares), 0.0) if rank["step_seconds"] else 0.0)
    return [
        str(rank["rank"]),
        rank["host"],
        str(rank["threads"]),
        str(rank["batch_share"]),
        f"{rank['images_per_second']:.1f}",
        *(f"{share:.1%}" for share in shares),
        f"{rank['peak_memory_bytes'] / 2**20:.0f} MiB",
        f"{rank['bytes_sent'] / 1e6:.1f} MB",
    ]


def _results(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    losses, ranks = summary["step_losses"], len(summary["ranks"])
    ending = "stopped after" if summary["stopped"] else "trained"
    return [
        ("run", f"{ending} {counted(summary['steps'], 'step')}, {summary['images']:,} images"),
        ("throughput", f"{summary['images_per_second']:.1f} img/s on {counted(ranks, 'rank')}"),
        ("efficiency", _efficiency(summary["scaling_efficiency"])),
        ("loss", f"{losses[0]:.4f} first, {losses[-1]:.4f} last step" if losses else "-"),
        ("accuracy", _accuracy(summary)),
        *([] if summary["data_verified"] else [("data", "contents not verified")]),
    ]


def _efficiency(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%} of the ranks without waiting"


def _accuracy(summary: Mapping[str, Any]) -> str:
    accuracy = summary["final_accuracy"]
    if accuracy is None:
        return "not evaluated"
    evaluated = [entry["epoch"] for entry in summary["history"] if "accuracy" in entry]
    when = f", after epoch {evaluated[-1]}" if summary["stopped"] else ""
    return f"{accuracy:.2%} of the test images{when}"
