"""Trains models briefly, exports them, and compares their outputs outside of edgeddl.

The difference is the largest one over all images and classes. If the largest output is more than 1,
its limit is relative to that output: a float32 near 100 has a precision of only 8e-6.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from edgeddl import machine
from edgeddl.chainer_compat import F, chainer
from edgeddl.data import load_dataset, normalise
from edgeddl.inference import load
from edgeddl.table import render_table
from parity.environment import PACKAGES, REPOSITORY, prepare

LIMIT = 1e-5
MODELS = {
    "resnet18": ["--model", "resnet18"],
    "resnet18-imagenet": ["--model", "resnet18", "--stem", "imagenet"],
    "resnet9": ["--model", "resnet9"],
    "user-model": ["--model", "parity.stock_models:UserNet"],
}
# The exported files and their options.
FILES = {
    "plain.onnx": [],
    "folded.onnx": ["--fold-batch-norm"],
    "pixels.onnx": ["--fold-batch-norm", "--softmax", "--include-normalisation", "uint8"],
    "model.npz": [],
    "model.safetensors": [],
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/test-parity", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS])
    parser.add_argument("--train-images", type=int, default=512, metavar="N")
    parser.add_argument("--test-images", type=int, default=64, metavar="N")
    parser.add_argument(
        "--json", type=Path, default=Path("runs/parity.json"), help="results (default: %(default)s)"
    )
    options = parser.parse_args()
    python = prepare()
    rows = [row for name in options.models for row in compare(name, python, options)]
    headings = ("model", "file", "largest output", "difference", "relative", "within 1e-5")
    print(render_table(headings, [_render(row) for row in rows]))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    results = {"cpu": machine.cpu_name(), "packages": PACKAGES, "limit": LIMIT, "rows": rows}
    options.json.write_text(json.dumps(results, indent=1) + "\n")
    print(f"results: {options.json}")
    return 0 if all(row["passed"] for row in rows) else 1


def compare(name: str, python: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Train, export and compare one model."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        print(f"{name}: training, exporting and comparing", flush=True)
        _edgeddl("train", *MODELS[name], "--run-dir", str(folder / "run"), "--dataset", "shapes",
                 "--epochs", "1", "--batch-size", "32", "--progress", "none", "--limit-train",
                 str(options.train_images), "--limit-test", str(options.test_images))  # fmt: skip
        for file, arguments in FILES.items():
            _edgeddl("export", str(folder / "run"), str(folder / file), *arguments)
        expected = _expected_outputs(folder, options.test_images)
        worker = [str(python), "-m", "parity.worker", temporary, name]
        subprocess.run(worker, check=True, cwd=folder, env=_environment())
        outputs = np.load(folder / "outputs.npz")
        return [_row(name, file, outputs[file], expected[file]) for file in FILES]


def _edgeddl(*arguments: str) -> None:
    command = [sys.executable, "-m", "edgeddl", *arguments]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=_environment(), capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"edgeddl {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(REPOSITORY / "scripts")}


def _expected_outputs(folder: Path, count: int) -> dict[str, np.ndarray]:
    """What edgeddl computes for each file; writes the inputs for the worker."""
    trained = load(folder / "run")
    pixels = load_dataset("shapes", limit_train=1, limit_test=count).test.images
    images = np.ascontiguousarray(normalise(pixels, trained.mean, trained.std))
    np.savez(folder / "inputs.npz", images=images, pixels=pixels)
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        logits = trained.model(images)
        probabilities = F.softmax(logits)
    return dict.fromkeys(FILES, logits.array) | {"pixels.onnx": probabilities.array}


def _row(name: str, file: str, found: np.ndarray, expected: np.ndarray) -> dict[str, Any]:
    largest = float(np.abs(expected).max())
    difference = float(np.abs(found - expected).max())
    relative = difference / max(1, largest)
    return {
        "model": name,
        "file": file,
        "largest_output": largest,
        "difference": difference,
        "relative_difference": relative,
        "passed": relative <= LIMIT,
    }


def _render(row: dict[str, Any]) -> list[str]:
    differences = [f"{row[name]:.1e}" for name in ("difference", "relative_difference")]
    passed = "yes" if row["passed"] else "NO"
    return [row["model"], row["file"], f"{row['largest_output']:.2f}", *differences, passed]


if __name__ == "__main__":
    sys.exit(main())
