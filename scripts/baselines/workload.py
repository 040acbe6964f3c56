"""The training step everybody takes: the same images, the same network, the same update rule."""

from __future__ import annotations

import numpy as np

LEARNING_RATE = 0.01
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
CLASSES = 10


def make_batch(images: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images of CIFAR's shape (N, 3, 32, 32) and their labels: random, but the same for all."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((images, 3, 32, 32), np.float32)
    return x, rng.integers(0, CLASSES, images, np.int32)
