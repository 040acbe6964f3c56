"""Uses a trained model: loading, evaluation and prediction."""

from edgeddl.inference.trained_model import TrainedModel, load

__all__ = ["TrainedModel", "load"]
