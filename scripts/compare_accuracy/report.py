"""Compares the differences between kernels with the differences between seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

from edgeddl.table import render_table

# Runs with equal starts must have equal losses until training has amplified rounding differences
# between kernels. That happens soon: a ReLU with an input near 0 is active in one run only. At the
# third step of ResNet-18 (16 images, rate 0.02) the losses of stock Chainer and of the reference
# differed by 1e-4, at the fourth by 3e-3.
FIRST_STEPS = 2
FIRST_STEPS_TOLERANCE = 1e-4

Run = dict[str, Any]


def first_losses_apart(runs: Sequence[Run], kernels: str, base: str) -> float:
    """Return the largest relative difference to the base's first losses, over all seeds."""
    losses = {(run["kernels"], run["seed"]): run["step_losses"][:FIRST_STEPS] for run in runs}
    return max(
        abs(loss / base_loss - 1)
        for (name, seed), of_seed in losses.items()
        if name == kernels
        for loss, base_loss in zip(of_seed, losses[base, seed], strict=True)
    )


def summarise(runs: Sequence[Run], base: str) -> dict[str, Run]:
    """Return for each kind of kernels: accuracies, mean, deviation, and difference to the base."""
    accuracies: dict[str, list[float]] = {}
    for run in runs:
        accuracies.setdefault(run["kernels"], []).append(run["final_accuracy"])
    return {
        name: {
            "accuracies": values,
            "mean": mean(values),
            "deviation": _deviation(values),
            "difference": mean(values) - mean(accuracies[base]),
            "standard_error": _standard_error(values, accuracies[base]),
            "first_losses_apart": first_losses_apart(runs, name, base),
        }
        for name, values in accuracies.items()
    }


def _deviation(values: Sequence[float]) -> float | None:
    """Return the standard deviation over seeds; None for a single seed."""
    return stdev(values) if len(values) > 1 else None


def _standard_error(values: Sequence[float], others: Sequence[float]) -> float | None:
    """Return the standard error of the difference between the means.

    Runs with the same seed diverge after some steps, so they are not paired.
    """
    if len(values) < 2:
        return None
    return math.hypot(stdev(values), stdev(others)) / math.sqrt(len(values))


def render(summary: dict[str, Run], seeds: Sequence[int], base: str) -> str:
    """Render a row for each kind of kernels, with accuracies in percent."""
    headings = ("kernels", *(f"seed {seed}" for seed in seeds), "mean", "deviation",
                f"vs {base}", "standard error", "first losses differ")  # fmt: skip
    rows = [
        [
            name,
            *(f"{accuracy:.2%}" for accuracy in of_kernels["accuracies"]),
            f"{of_kernels['mean']:.2%}",
            _points(of_kernels["deviation"]),
            f"{of_kernels['difference'] * 100:+.2f}",
            _points(of_kernels["standard_error"]),
            f"{of_kernels['first_losses_apart']:.1e}",
        ]
        for name, of_kernels in summary.items()
    ]
    return render_table(headings, rows)


def _points(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.2f}"
