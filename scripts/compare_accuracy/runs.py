"""Makes one training run with given kernels, in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from baselines.process import SCRIPTS

KERNELS = ("native", "reference", "chainer", "torch")


def train(
    kernels: str, seed: int, options: Sequence[str], torch_python: Path | None
) -> dict[str, Any]:
    """Train and return accuracy and losses; checkpoints are deleted."""
    if kernels == "torch":
        command = ["compare_accuracy.train_with_torch", str(torch_python)]
    else:
        command = ["edgeddl.train"]
    with tempfile.TemporaryDirectory() as folder:
        summary = Path(folder) / "summary.json"
        files = ["--run-dir", f"{folder}/run", "--summary", str(summary)]
        subprocess.run(
            [sys.executable, "-m", *command, *options, "--seed", str(seed), *files],
            env=os.environ
            | {"PYTHONPATH": str(SCRIPTS)}
            # in PyTorch's run, edgeddl's kernels only determine the order of the parameters
            | {"EDGEDDL_KERNELS": "auto" if kernels == "torch" else kernels},
            stdout=subprocess.DEVNULL,  # banner and summary; progress goes to stderr
            check=True,
        )
        result = json.loads(summary.read_text())
    kept = ("final_accuracy", "history", "step_losses")
    return {"kernels": kernels, "seed": seed} | {name: result[name] for name in kept}
