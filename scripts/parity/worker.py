"""Runs in .venv-parity: computes the outputs of exported models and writes them as npz.

`python -m parity.worker FOLDER MODEL` reads inputs.npz and the exported files in FOLDER and writes
outputs.npz.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import chainer
import numpy as np
import onnx
import onnxruntime
from safetensors.numpy import load_file

from parity.stock_models import STOCK

ONNX_INPUTS = {"plain.onnx": "images", "folded.onnx": "images", "pixels.onnx": "pixels"}


def main(folder: Path, name: str) -> None:
    if importlib.util.find_spec("edgeddl"):
        raise SystemExit("edgeddl is installed here, so Chainer is not stock")
    inputs = np.load(folder / "inputs.npz")
    outputs = {file: _run_onnx(folder / file, inputs[kind]) for file, kind in ONNX_INPUTS.items()}
    classes = outputs["plain.onnx"].shape[1]
    for file, read in (("model.npz", _read_npz), ("model.safetensors", _read_safetensors)):
        model = STOCK[name](classes)
        outputs[file] = read(folder / file, model, inputs["images"])
    np.savez(folder / "outputs.npz", **outputs)  # type: ignore[arg-type]


def _run_onnx(path: Path, images: np.ndarray) -> np.ndarray:
    onnx.checker.check_model(str(path), full_check=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.array(session.run(None, {"images": images})[0])


def _read_npz(path: Path, model: Any, images: np.ndarray) -> np.ndarray:
    chainer.serializers.load_npz(path, model)
    return _run(model, images)


def _read_safetensors(path: Path, model: Any, images: np.ndarray) -> np.ndarray:
    arrays = load_file(path)
    _run(model, images[:1])  # initialises parameters without a shape
    for name, parameter in model.namedparams():
        parameter.array[...] = arrays.pop(name.lstrip("/"))
    for path_of_link, link in model.namedlinks():
        for attribute in link._persistent:
            value = arrays.pop(f"{path_of_link.lstrip('/')}/{attribute}")
            setattr(link, attribute, value if value.ndim else value.item())
    if arrays:
        raise SystemExit(f"{path}: the model has no {', '.join(arrays)}")
    return _run(model, images)


def _run(model: Any, images: np.ndarray) -> np.ndarray:
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        return np.array(model(images).array)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
