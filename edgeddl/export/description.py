"""What an exported file says about its model."""

from __future__ import annotations

import json

from edgeddl.inference import TrainedModel


def describe(trained: TrainedModel) -> dict[str, str]:
    """Class names, image shape and normalisation, each as JSON."""
    facts = {
        "classes": list(trained.classes),
        "image_shape": [int(size) for size in trained.image_shape],
        "mean": [float(value) for value in trained.mean],
        "std": [float(value) for value in trained.std],
    }
    return {name: json.dumps(value, ensure_ascii=False) for name, value in facts.items()}
