"""The start-up table of a run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import edgeddl
from edgeddl import kernels
from edgeddl.comm.agreement import describe_ranks
from edgeddl.table import counted, render_facts
from edgeddl.training.forecast import Forecast
from edgeddl.training.memory import MIB
from edgeddl.training.prepared_run import PreparedRun


def render_banner(
    run: PreparedRun,
    ranks: list[tuple[str, str, int]],
    forecast: Forecast | None = None,
    linpack: Sequence[tuple[str, str]] = (),
    *,
    remaining_seconds: float | None = None,
) -> str:
    """`ranks`: host, cpu and threads of each; `linpack`: host and result of each, if required."""
    facts = [
        *_hosts(ranks),
        *[("linpack", f"{host}: {result}") for host, result in linpack],
        ("model", _model(run)),
        ("kernels", kernels.chosen()),
        ("data", _data(run)),
        ("global batch", _batch(run)),
        ("balance", _balance(run)),
        ("learning rate", _learning_rate(run)),
        ("communication", _communication(run)),
        *([("memory", _memory(run))] if run.memory else []),
        *([("link", _link(forecast))] if forecast else []),
        ("run", _position(run)),
        *([("ETA", _eta(remaining_seconds))] if remaining_seconds else []),
    ]
    return f"edgeddl {edgeddl.__version__}\n{render_facts(facts)}"


def _hosts(ranks: list[tuple[str, str, int]]) -> list[tuple[str, str]]:
    """A line for each host: its ranks, threads and cpu."""
    lines = []
    for host in dict.fromkeys(host for host, _, _ in ranks):
        numbers = [rank for rank, (other, _, _) in enumerate(ranks) if other == host]
        cpu, threads = ranks[numbers[0]][1:]
        each = " each" if len(numbers) > 1 else ""
        lines.append(
            (host, f"{describe_ranks(numbers)}, {counted(threads, 'thread')}{each}, {cpu}")
        )
    return lines


def _model(run: PreparedRun) -> str:
    slots, frozen = run.arena.plan.all_slots, run.arena.plan.frozen
    count, of_frozen = (sum(slot.spec.count for slot in each) for each in (slots, frozen))
    stem = f" ({run.config.stem} stem)" if ":" not in run.config.model else ""
    note = f", {of_frozen:,} of them frozen" if frozen else ""
    return f"{run.config.model}{stem}, {count:,} parameters in {len(slots)} tensors{note}"


def _data(run: PreparedRun) -> str:
    train, test = len(run.dataset.train), len(run.dataset.test)
    verified = "" if run.dataset.verified else ", contents not verified"
    return f"{run.dataset.name}, {train:,} training and {test:,} test images{verified}"


def _batch(run: PreparedRun) -> str:
    config, ranks = run.config, run.communicator.size
    return (
        f"{run.global_batch} = {config.batch_size} per rank x {config.accumulation} accumulation"
        f" x {counted(ranks, 'rank')}; {counted(run.steps_per_epoch, 'step')} per epoch"
    )


def _balance(run: PreparedRun) -> str:
    if run.communicator.size == 1:
        return "none: one rank"
    balance, shares = run.config.balance, " ".join(map(str, run.state.shares))
    kind = ",".join(f"{speed:g}" for speed in balance) if isinstance(balance, tuple) else balance
    return f"{kind}, {'initially ' if kind == 'auto' else ''}{shares} images per step"


def _learning_rate(run: PreparedRun) -> str:
    config = run.config
    factor = run.communicator.size * config.accumulation
    linear = config.lr_scaling == "linear"
    scaling = f"{config.lr:g} x {factor}" if linear else f"{config.lr:g}, not scaled"
    return f"{run.peak_learning_rate:g} = {scaling}, {config.schedule}"


def _communication(run: PreparedRun) -> str:
    return "none: one rank" if run.communicator.size == 1 else run.exchange.description


def _memory(run: PreparedRun) -> str:
    """The prediction, and the rank that uses the largest part of its available memory."""
    rank, memory = max(enumerate(run.memory), key=lambda item: item[1].used_fraction)
    which = "" if len(run.memory) == 1 else f" (rank {rank} on {run.communicator.hosts[rank]})"
    peaks = sorted({round(each.peak_bytes / MIB) for each in run.memory})
    each = f"{peaks[0]}" if len(peaks) == 1 else f"{peaks[0]} to {peaks[-1]}"
    most = memory.most_bytes
    limit = "" if most is None else f", at most {memory.used_fraction:.0%} of {most / MIB:.0f} MiB"
    return f"about {each} MiB per rank at its peak{limit}{which if limit else ''}"


def _link(forecast: Forecast) -> str:
    """The measured link, and the predicted communication time of a step."""
    link = forecast.link
    return (
        f"{link.bytes_per_second / 1e6:.0f} MB/s, {link.turn_seconds * 1e3:.2f} ms latency,"
        f" {forecast.allreduce}; all-reduce {forecast.allreduce_seconds:.2f} s per step,"
        f" {forecast.share:.0%} of the compute time of {forecast.compute_seconds:.2f} s"
    )


def _eta(seconds: float) -> str:
    end = datetime.now() + timedelta(seconds=seconds)
    day = "" if end.date() == datetime.now().date() else "%Y-%m-%d "
    return f"about {_rounded(seconds)}, until {end.strftime(f'{day}%H:%M')}"


def _rounded(seconds: float) -> str:
    """Rounded to about two digits, because it is an estimate."""
    for unit, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 1.5 * unit:
            count = seconds / unit
            return f"{count:.1f} {name}s" if count < 10 else f"{count:.0f} {name}s"
    return f"{max(seconds, 1):.0f} seconds"


def _position(run: PreparedRun) -> str:
    state, folder = run.state, run.folder
    start = f"continues after step {state.step}" if state.step else "starts from scratch"
    course = f"{start}, to step {run.total_steps}"
    if run.total_steps == state.step:
        course = f"is complete at step {state.step}"
    return f"{course}, in {folder.path}" if folder else course
