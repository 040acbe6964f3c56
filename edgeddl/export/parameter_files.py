"""The parameters and running statistics of a model as npz or safetensors."""

from __future__ import annotations

import io

import numpy as np

from edgeddl.chainer_compat import chainer
from edgeddl.errors import ConfigError
from edgeddl.export.description import describe
from edgeddl.inference import TrainedModel
from edgeddl.training.parameters import named_parameters
from edgeddl.training.statistics import persistent_numbers


def render_npz(trained: TrainedModel) -> bytes:
    """What chainer.serializers.load_npz reads into a model of the same links."""
    file = io.BytesIO()
    chainer.serializers.save_npz(file, trained.model, compression=False)
    return file.getvalue()


def render_safetensors(trained: TrainedModel) -> bytes:
    """Arrays by their names in Chainer, such as "stem/convolution/W", and a description."""
    try:
        from safetensors.numpy import save
    except ImportError as error:
        raise ConfigError(
            f"export to .safetensors needs the package safetensors, which cannot be imported:"
            f" {error}",
            hint="run pip install 'edgeddl[export]'",
        ) from None
    parameters = {name: one.array for name, one in named_parameters(trained.model).items()}
    arrays = parameters | persistent_numbers(trained.model)
    ordered = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    content: bytes = save(ordered, describe(trained) | {"format": "chainer"})
    return content
