"""The training step of all systems: the same images, network and update rule."""

from __future__ import annotations

import numpy as np

LEARNING_RATE = 0.01
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
CLASSES = 10


def make_batch(images: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return random images of CIFAR's shape (N, 3, 32, 32) and labels, fixed by the seed."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((images, 3, 32, 32), np.float32)
    return x, rng.integers(0, CLASSES, images, np.int32)
