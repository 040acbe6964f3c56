"""Batch normalisation layer, as chainer.links.BatchNormalization."""

from __future__ import annotations

from typing import Any

from edgeddl import functions
from edgeddl.chainer_compat import L, chainer


class BatchNormalization(L.BatchNormalization):
    """Chainer's link with edgeddl's functions."""

    def forward(self, x: Any, *, finetune: bool = False) -> Any:
        """Normalises by this batch's statistics in training, by the running ones otherwise."""
        if self.avg_mean is None:
            kept = [size for axis, size in enumerate(x.shape) if axis not in self.axis]
            self._initialize_params(tuple(kept))
        gamma = self._get_gamma()[0] if self.gamma is None else self.gamma
        beta = self._get_beta()[0] if self.beta is None else self.beta
        if not chainer.config.train:
            return functions.fixed_batch_normalization(
                x, gamma, beta, self.avg_mean, self.avg_var, self.eps, axis=self.axis
            )
        # Chainer's recomputation runs forward twice: the second time counts for nothing.
        counts = not chainer.config.in_recomputing
        return functions.batch_normalization(
            x,
            gamma,
            beta,
            eps=self.eps,
            running_mean=self.avg_mean if counts else None,
            running_var=self.avg_var if counts else None,
            decay=self._decay(counts) if finetune else self.decay,
            axis=self.axis,
        )

    def _decay(self, counts: bool) -> float:
        """With this decay the running statistics are the plain mean over all batches so far."""
        if counts:
            self.N += 1
        return 1.0 - 1.0 / self.N
