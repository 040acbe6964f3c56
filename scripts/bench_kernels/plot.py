"""Plots of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_kernels.layers import PASSES
from bench_kernels.systems import CHAINER, EDGEDDL, PYTORCH
from edgeddl.table import counted

COLOURS = dict(zip((EDGEDDL, *PYTORCH, CHAINER), ("C0", "C1", "C3", "C7"), strict=True))


def plot_training(results: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot images per second by batch size, with a panel for each number of threads."""
    from matplotlib.figure import Figure

    all_threads = sorted({result["threads"] for result in results})
    figure = Figure(figsize=(5.5 * len(all_threads), 4), layout="constrained")
    panels = figure.subplots(1, len(all_threads), sharey=True, squeeze=False)[0]
    for panel, threads in zip(panels, all_threads, strict=True):
        shown = [result for result in results if result["threads"] == threads]
        names = [name for name in COLOURS if any(name in result["systems"] for result in shown)]
        width = 0.8 / len(names)
        for index, name in enumerate(names):
            places = [place + index * width for place in range(len(shown))]
            speeds = [
                result["systems"].get(name, {}).get("images_per_second", 0) for result in shown
            ]
            bars = panel.bar(places, speeds, width, align="edge", label=name, color=COLOURS[name])
            panel.bar_label(bars, fmt="%.0f", fontsize=7)
        panel.set_xticks([place + 0.4 for place in range(len(shown))])
        panel.set_xticklabels([str(result["batch"]) for result in shown])
        panel.set(title=counted(threads, "thread"), xlabel="batch size")
        panel.grid(axis="y", alpha=0.3)
    panels[0].set_ylabel("images per second")
    panels[0].legend()
    figure.suptitle(f"Training throughput of ResNet-18 ({results[0]['stem']} stem)")
    figure.savefig(path, dpi=150)


def plot_convolutions(results: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot the speed relative to PyTorch, by layer and pass, with a panel per thread count."""
    from matplotlib.figure import Figure

    all_threads = sorted({result["threads"] for result in results})
    layers = list(dict.fromkeys(result["layer"] for result in results))
    size = (5 * len(all_threads) + 1.5, 0.45 * len(layers) + 1.5)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(all_threads), sharey=True, squeeze=False)[0]
    height = 0.8 / len(PASSES)
    for panel, threads in zip(panels, all_threads, strict=True):
        for index, direction in enumerate(PASSES):
            ratios = {
                result["layer"]: result["speedup"]["PyTorch"]["median"]
                for result in results
                if (result["threads"], result["pass"]) == (threads, direction)
            }
            places = [layers.index(layer) + index * height for layer in ratios]
            bars = panel.barh(places, ratios.values(), height, align="edge", label=direction)
            panel.bar_label(bars, fmt="%.1f", fontsize=7, padding=2)
        panel.axvline(1, color="black", linewidth=0.8)
        panel.set(title=counted(threads, "thread"), xlabel="speed relative to PyTorch")
        panel.grid(axis="x", alpha=0.3)
    panels[0].set_yticks([place + 0.4 for place in range(len(layers))])
    panels[0].set_yticklabels(layers)
    panels[0].invert_yaxis()
    panels[-1].legend()
    figure.savefig(path, dpi=150)
