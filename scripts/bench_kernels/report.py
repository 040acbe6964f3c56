"""Tables of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench_kernels.layers import PASSES
from bench_kernels.systems import EDGEDDL
from edgeddl.table import counted, render_table

Result = Mapping[str, Any]

PEAK_NOTE = (
    "of peak: 6 flop for each multiply-accumulate of the network, as in direct convolution,\n"
    "relative to the processor's peak. Winograd's algorithm needs fewer, so it can exceed 100 %."
)
ABSENT = "-"


def render_training(results: Sequence[Result]) -> str:
    """Render the results of all systems, then edgeddl relative to the others."""
    speeds = render_table(
        ("threads", "batch", "", "img/s", "median", "fastest", "of peak", "memory", "turns"),
        [
            _speed_row(result, name, figures)
            for result in results
            for name, figures in result["systems"].items()
        ],
    )
    standing = render_table(
        (
            "threads", "batch", "x PyTorch", "(fastest)", "x Chainer", "(fastest)",
            "memory / PyTorch's", "outside kernels", "peak",
        ),
        [_standing_row(result) for result in results],
    )  # fmt: skip
    return (
        f"Training steps, ResNet-18 ({results[0]['stem']} stem), {_kernels(results)}"
        f"\n\n{speeds}\n\n{PEAK_NOTE}\n\n{standing}"
    )


def _kernels(results: Sequence[Result]) -> str:
    """Name edgeddl's kernels, so that NumPy's results are not taken for native ones."""
    names = sorted({result["kernels"] for result in results})
    return f"edgeddl's kernels: {' and '.join(names)}"


def _speed_row(result: Result, name: str, figures: Result) -> list[str]:
    return [
        str(result["threads"]),
        str(result["batch"]),
        name,
        f"{figures['images_per_second']:.1f}",
        _milliseconds(figures["median_seconds"]),
        _milliseconds(figures["minimum_seconds"]),
        _percent(figures["share_of_peak"]),
        f"{figures['peak_memory_bytes'] / 2**20:.0f} MiB",
        str(len(figures["seconds"])),
    ]


def _standing_row(result: Result) -> list[str]:
    memory, peak = result["memory_of_pytorch"], result["peak_gflops"]
    return [
        str(result["threads"]),
        str(result["batch"]),
        *_speedup(result, "PyTorch"),
        *_speedup(result, "Chainer"),
        f"{memory:.2f}" if memory else ABSENT,
        _percent(result["python_share"], digits=1),
        f"{peak:.0f} GFLOPS" if peak else ABSENT,
    ]


def render_convolutions(results: Sequence[Result]) -> str:
    """Render a table for each number of threads, with a row for each layer."""
    tables = []
    for threads in sorted({result["threads"] for result in results}):
        cells = {
            (result["layer"], result["pass"]): _convolution_cells(result)
            for result in results
            if result["threads"] == threads
        }
        batches = {result["layer"]: result["batch"] for result in results}
        rows = [
            [layer, str(batch), *(c for p in PASSES for c in cells.get((layer, p), [ABSENT] * 3))]
            for layer, batch in batches.items()
        ]
        columns = [column for name in PASSES for column in (name, "GFLOPS", "x PyTorch")]
        title = f"Convolutions, {counted(threads, 'thread')}, {_kernels(results)}"
        tables.append(f"{title}\n\n{render_table(('layer', 'batch', *columns), rows)}")
    return "\n\n".join(tables)


def _convolution_cells(result: Result) -> list[str]:
    figures = result["systems"][EDGEDDL]
    return [
        _milliseconds(figures["median_seconds"]),
        f"{figures['gflops']:.1f}",
        _speedup(result, "PyTorch")[0],
    ]


def _speedup(result: Result, name: str) -> tuple[str, str]:
    speedup = result["speedup"].get(name)
    return (f"{speedup['median']:.2f}", f"{speedup['of_minima']:.2f}") if speedup else (ABSENT,) * 2


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.{2 if seconds < 0.1 else 0}f} ms"


def _percent(share: float | None, digits: int = 0) -> str:
    return ABSENT if share is None else f"{share:.{digits}%}"
