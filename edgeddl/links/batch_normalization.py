"""Batch normalisation layer, as chainer.links.BatchNormalization."""

from __future__ import annotations

from typing import Any

from edgeddl import functions
from edgeddl.chainer_compat import L
from edgeddl.functions.node import setting
from edgeddl.links.direct_call import DirectCall


class BatchNormalization(DirectCall, L.BatchNormalization):
    """Chainer's link with edgeddl's functions."""

    def forward(
        self, x: Any, *, finetune: bool = False, relu: bool = False, residual: Any = None
    ) -> Any:
        """Normalises with this batch's statistics in training, else with the running statistics.

        Beyond Chainer's, in the same pass over memory: with `relu` the ReLU of the result, with a
        `residual` the ReLU of their sum.
        """
        gamma, beta = self._gamma_and_beta(x)
        options = {"eps": self.eps, "axis": self.axis, "relu": relu, "residual": residual}
        if not setting("train"):
            return functions.fixed_batch_normalization(
                x, gamma, beta, self.avg_mean, self.avg_var, **options
            )
        return functions.batch_normalization(x, gamma, beta, **self._running(finetune), **options)

    def normalize_and_convolve(self, x: Any, W: Any, **geometry: Any) -> Any:
        """A convolution of this layer's output after a ReLU, without keeping that output."""
        gamma, beta = self._gamma_and_beta(x)
        if not setting("train"):
            return functions.fixed_normalized_convolution_2d(
                x, gamma, beta, self.avg_mean, self.avg_var, W, eps=self.eps, **geometry
            )
        return functions.normalized_convolution_2d(
            x, gamma, beta, W, eps=self.eps, **self._running(finetune=False), **geometry
        )

    def _gamma_and_beta(self, x: Any) -> tuple[Any, Any]:
        """gamma and beta; ones and zeros if the layer has none."""
        if self.avg_mean is None:
            kept = [size for axis, size in enumerate(x.shape) if axis not in self.axis]
            self._initialize_params(tuple(kept))
        gamma = self._get_gamma()[0] if self.gamma is None else self.gamma
        beta = self._get_beta()[0] if self.beta is None else self.beta
        return gamma, beta

    def _running(self, finetune: bool) -> dict[str, Any]:
        """The running statistics to update, and their decay.

        Chainer's recomputation runs forward twice: the second run must not update them.
        """
        counts = not setting("in_recomputing")
        return {
            "running_mean": self.avg_mean if counts else None,
            "running_var": self.avg_var if counts else None,
            "decay": self._decay(counts) if finetune else self.decay,
        }

    def _decay(self, counts: bool) -> float:
        """The decay that makes the running statistics the mean over all batches so far."""
        if counts:
            self.N += 1
        return 1.0 - 1.0 / self.N
