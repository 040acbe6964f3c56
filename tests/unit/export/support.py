"""Trained models without training, and onnxruntime to run them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgeddl.chainer_compat import chainer

IMAGES = np.random.default_rng(1).integers(0, 256, (5, 32, 32, 3), np.uint8)


def make_trained(model: Any, shape: tuple[int, int, int] = (3, 32, 32), classes: int = 10) -> Any:
    """A model with running statistics of its own, as edgeddl.inference.load returns it."""
    random = np.random.default_rng(2)
    for _ in range(20):
        model(random.standard_normal((8, *shape), np.float32))
    return SimpleNamespace(
        model=model,
        classes=tuple(f"class {index}" for index in range(classes)),
        image_shape=shape,
        mean=np.float32([0.5, 0.4, 0.3, 0.2])[: shape[0]],
        std=np.float32([0.2, 0.3, 0.4, 0.5])[: shape[0]],
    )


def run_model(model: Any, images: np.ndarray) -> np.ndarray:
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        return np.array(model(images).array)


def run_onnx(content: bytes, images: np.ndarray) -> np.ndarray:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs pip install onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return np.array(session.run(None, {"images": images})[0])


def largest_difference(found: np.ndarray, expected: np.ndarray) -> float:
    """Relative to the largest expected value, if that is more than 1."""
    assert found.shape == expected.shape and found.dtype == expected.dtype
    return float(np.abs(found - expected).max() / max(1, np.abs(expected).max()))
