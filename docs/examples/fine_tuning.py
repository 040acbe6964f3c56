"""Train a model, then continue from its parameters on new data: python docs/examples/fine_tuning.py

The data are arrays from a callable. The new images are darker, and there are few of them.
"""

import numpy as np

import edgeddl

CLASSES = ("horizontal", "vertical")


def stripes(count, brightness, seed):
    """Images of noisy stripes: uint8 (n, height, width, channels), and their labels."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count)
    waves = np.sin(np.arange(16) * 1.5)[:, None] * np.ones(16)
    pixels = np.where(labels[:, None, None] == 0, waves, waves.T) * 0.3 + 0.5
    pixels = (pixels + random.normal(0, 0.2, pixels.shape)) * brightness
    return np.clip(pixels * 255, 0, 255).astype(np.uint8)[..., None], labels


def day():
    return stripes(400, 1.0, seed=1), stripes(100, 1.0, seed=2), CLASSES


def night():
    return stripes(60, 0.4, seed=3), stripes(100, 0.4, seed=4), CLASSES


def main() -> None:
    common = {"batch_size": 16, "augment": False}
    first = edgeddl.train("resnet9", day, epochs=2, lr=0.01, **common)
    tuned = edgeddl.train("resnet9", night, epochs=1, lr=0.001, init_from=first.folder, **common)
    print(f"day {first.accuracy:.0%}, night {tuned.accuracy:.0%}")
    loaded = edgeddl.load(tuned.folder)
    print("classes:", ", ".join(loaded.classes))


if __name__ == "__main__":
    main()
