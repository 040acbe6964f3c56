"""The kernel tests cover every convolution that the models run."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from edgeddl import kernels
from tests.unit.kernels.layers import MODEL_LAYERS

pytestmark = pytest.mark.skipif(find_spec("chainer") is None, reason="needs Chainer")

MODELS = [("resnet18", "cifar"), ("resnet18", "imagenet"), ("resnet9", "cifar")]


def test_every_model_is_checked() -> None:
    from edgeddl.registry import MODELS as NAMES

    assert {name for name, _ in MODELS} == set(NAMES)


@pytest.mark.parametrize(("model", "stem"), MODELS)
def test_every_layer_of_a_model_is_tested(monkeypatch, model: str, stem: str) -> None:
    from edgeddl.models import build_model

    seen = set()
    compute = kernels.convolution_forward

    def note(x, W, b, window, groups=1, *others):
        seen.add((x.shape[1:], len(W), window, groups))
        return compute(x, W, b, window, groups, *others)

    monkeypatch.setattr(kernels, "convolution_forward", note)
    build_model(model, stem=stem).forward(np.zeros((2, 3, 32, 32), np.float32))
    assert len(seen) >= 6
    assert seen <= {
        (layer.shape[1:], layer.k, layer.window, layer.groups) for layer in MODEL_LAYERS
    }
