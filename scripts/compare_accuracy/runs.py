"""One training run with the kernels of one's choice, in a process of its own."""

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
    """Accuracy and losses; the run's checkpoints are not kept."""
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
            # PyTorch's run computes nothing itself but the order of the parameters
            | {"EDGEDDL_KERNELS": "auto" if kernels == "torch" else kernels},
            stdout=subprocess.DEVNULL,  # the banner and the summary; the progress is on stderr
            check=True,
        )
        result = json.loads(summary.read_text())
    kept = ("final_accuracy", "history", "step_losses")
    return {"kernels": kernels, "seed": seed} | {name: result[name] for name in kept}
