"""The two kinds of measurement: whole training steps, and single convolutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from bench_kernels.alternation import Seconds, alternate, compare, fastest
from bench_kernels.layers import Layer
from bench_kernels.progress import Progress
from bench_kernels.systems import CHAINER, EDGEDDL, PYTORCH, Systems
from edgeddl.table import counted

PYTHON_SHARE_STEPS = 3
# Duration of a convolution's turn, with many calls: a single one may take only a millisecond.
CONVOLUTION_TURN_SECONDS = 0.05

Result = dict[str, Any]


def measure_training(
    systems: Systems, threads: int, stem: str, batch: int, rounds: int, progress: Progress
) -> Result:
    """Measure training steps at one batch size, in new processes, to get their peak memory."""
    progress.begin(f"batch {batch}, {counted(threads, 'thread')}")
    with systems.start("training", (EDGEDDL, CHAINER, *systems.pytorch), threads) as workers:
        seconds = alternate(workers, {"batch": batch, "stem": stem}, rounds, progress)
        kernels = workers[0].request("chosen_kernels")  # of the process that was timed
        measured = [worker for worker in workers if worker.name in seconds]
        memory = {worker.name: worker.request("peak_memory_bytes") for worker in measured}
        progress.print_once(line for worker in workers for line in worker.stderr_lines())
    with systems.start("training", (EDGEDDL,), threads) as (edgeddl,):
        # 2 per MAC, in forward and in both gradients
        flop = 6 * edgeddl.request("macs", stem=stem) * batch
        peak = edgeddl.request("peak_gflops", threads=threads)
        python_share = edgeddl.request(
            "python_share", batch=batch, stem=stem, steps=PYTHON_SHARE_STEPS
        )
    figures = {name: _figures(times, flop, peak) for name, times in seconds.items()}
    for name, of_system in figures.items():
        of_system["images_per_second"] = batch / of_system["median_seconds"]
        of_system["peak_memory_bytes"] = memory[name]
    pytorch = fastest(seconds, PYTORCH)
    return {
        "threads": threads,
        "stem": stem,
        "batch": batch,
        "kernels": kernels,
        "peak_gflops": peak,
        "flop": flop,
        "python_share": python_share,
        "systems": figures,
        "faster_pytorch": pytorch,
        "speedup": _speedups(seconds, {"Chainer": CHAINER, "PyTorch": pytorch}),
        "memory_of_pytorch": memory[EDGEDDL] / memory[pytorch] if pytorch else None,
    }


def measure_convolutions(
    systems: Systems, threads: int, layers: Sequence[Layer], rounds: int, progress: Progress
) -> Iterator[Result]:
    """Measure each pass of each layer, in the same processes."""
    with systems.start("convolution", (EDGEDDL, *systems.pytorch), threads) as workers:
        edgeddl = workers[0]
        kernels = edgeddl.request("chosen_kernels")
        peak = edgeddl.request("peak_gflops", threads=threads)
        for layer in layers:
            for direction in layer.passes:
                progress.begin(f"{layer.name}, {direction}, {counted(threads, 'thread')}")
                case = {"layer": layer, "direction": direction}
                turn = CONVOLUTION_TURN_SECONDS
                seconds = alternate(workers, case, rounds, progress, turn_seconds=turn)
                pytorch = fastest(seconds, PYTORCH)
                yield {
                    "threads": threads,
                    "layer": layer.name,
                    "batch": layer.batch,
                    "pass": direction,
                    "kernels": kernels,
                    "peak_gflops": peak,
                    "flop": layer.flop,
                    "systems": {
                        name: _figures(times, layer.flop, peak) for name, times in seconds.items()
                    },
                    "faster_pytorch": pytorch,
                    "speedup": _speedups(seconds, {"PyTorch": pytorch}),
                }
        progress.print_once(line for worker in workers for line in worker.stderr_lines())


def _figures(seconds: list[float], flop: int, peak_gflops: float | None) -> Result:
    gflops = flop / median(seconds) / 1e9
    return {
        "median_seconds": median(seconds),
        "minimum_seconds": min(seconds),
        "seconds": seconds,
        "gflops": gflops,
        "share_of_peak": gflops / peak_gflops if peak_gflops else None,
    }


def _speedups(seconds: Seconds, baselines: dict[str, str | None]) -> Result:
    """Return edgeddl's speed relative to each baseline."""
    return {
        key: compare(seconds, EDGEDDL, name) for key, name in baselines.items() if name in seconds
    }
