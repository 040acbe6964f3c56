"""Small networks for tests."""

from __future__ import annotations

import math
import os
import threading
import time
from typing import Any

import numpy as np

from edgeddl import functions
from edgeddl.chainer_compat import F, L, chainer
from edgeddl.links import BatchNormalization, Convolution2D, Linear


class TinyNet(chainer.Chain):
    """4,798 parameters and no batch normalisation, so that a batch may be split at will."""

    activation = staticmethod(functions.relu)

    def __init__(self, classes: int = 10, seed: int = 0) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        with self.init_scope():
            self.first = Convolution2D(3, 16, 3, pad=1, rng=rng)
            self.second = Convolution2D(16, 28, 3, stride=2, pad=1, rng=rng)
            self.head = Linear(28, classes, rng=rng)

    def forward(self, x: Any) -> Any:
        h = self.activation(self.first(x))
        h = self.activation(self.second(h))
        return self.head(functions.global_average_pooling_2d(h))


class SmoothNet(TinyNet):
    """Its gradients have no jumps; those of a ReLU have, where rounding turns it over."""

    activation = staticmethod(F.tanh)


class TinyNormalisedNet(chainer.Chain):  # type: ignore[misc]
    """A convolution, batch normalisation and a head: the least that has running statistics."""

    def __init__(self, classes: int = 10, seed: int = 0) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        with self.init_scope():
            self.conv = Convolution2D(3, 8, 3, stride=2, pad=1, nobias=True, rng=rng)
            self.bn = BatchNormalization(8)
            self.head = Linear(8, classes, rng=rng)

    def forward(self, x: Any) -> Any:
        return self.head(functions.global_average_pooling_2d(functions.relu(self.bn(self.conv(x)))))


class StockNet(chainer.Chain):  # type: ignore[misc]
    """A user's model of Chainer's own links, which know nothing of gradient sinks."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        initial = chainer.initializers.HeNormal(rng=np.random.RandomState(0))
        with self.init_scope():
            self.conv = L.Convolution2D(None, 6, 3, stride=2, initialW=initial)
            self.head = L.Linear(6, classes, initialW=initial)

    def forward(self, x: Any) -> Any:
        return self.head(F.average(F.relu(self.conv(x)), axis=(2, 3)))


class ForgetfulNet(TinyNet):
    """TinyNet, of which a part runs again in backward, in a backward pass of its own."""

    def forward(self, x: Any) -> Any:
        image = chainer.Variable(x)  # forget wants an input that needs a gradient
        h = F.forget(lambda x: F.leaky_relu(self.second(functions.relu(self.first(x))), 0), image)
        return self.head(functions.global_average_pooling_2d(h))


class ForgetfulStockNet(StockNet):
    """Likewise, of Chainer's own links."""

    def forward(self, x: Any) -> Any:
        h = F.forget(lambda x: F.relu(self.conv(x)), chainer.Variable(x))
        return self.head(F.average(h, axis=(2, 3)))


class TwiceUsedNet(TinyNet):
    """Uses its layers twice in a graph, but for the first."""

    def forward(self, x: Any) -> Any:
        h = self.activation(self.first(x))
        one, other = (self.activation(self.second(h * factor)) for factor in (1, 2))
        one, other = (self.head(functions.global_average_pooling_2d(g)) for g in (one, other))
        return one + other


class PenalisedNet(TinyNet):
    """Its head's weights are read by a function of Chainer's, too."""

    def forward(self, x: Any) -> Any:
        return super().forward(x) * F.sqrt(F.mean(self.head.W**2) + 1)


class FrozenNet(TinyNormalisedNet):
    """A network of which only the head is trained."""

    def __init__(self, classes: int = 10, seed: int = 0) -> None:
        super().__init__(classes, seed)
        self.conv.disable_update()
        self.bn.disable_update()


class HalfFrozenNet(TinyNet):
    """Of which a layer in the middle is frozen, by another means of Chainer's."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__(classes)
        chainer.optimizers.SGD().setup(self)
        self.second.disable_update()


class FullyFrozenNet(TinyNet):
    def __init__(self, classes: int = 10) -> None:
        super().__init__(classes)
        self.disable_update()


def _trains(x: Any) -> bool:
    """Whether this pass belongs to a training step; start-up measures with blank images."""
    return bool(chainer.config.train and chainer.config.enable_backprop and np.any(x))


class FailingNet(TinyNet):
    """Fails in the second step of rank 1 under mpirun, and nowhere else."""

    passes = 0

    def forward(self, x: Any) -> Any:
        if _trains(x):
            self.passes += 1
            if self.passes == 2 and os.environ.get("OMPI_COMM_WORLD_RANK") == "1":
                raise ZeroDivisionError("a bug in rank 1's model")
        return super().forward(x)


class HangingNet(FailingNet):
    """Hangs where FailingNet fails."""

    def forward(self, x: Any) -> Any:
        try:
            return super().forward(x)
        except ZeroDivisionError:
            time.sleep(3600)


class SleepyNet(TinyNet):
    """Sleeps 20 ms an image on rank 1 under mpirun, but in evaluation."""

    def forward(self, x: Any) -> Any:
        if self.is_sleepy(x) and os.environ.get("OMPI_COMM_WORLD_RANK") == "1":
            time.sleep(0.02 * len(x))
        return super().forward(x)

    def is_sleepy(self, x: Any) -> bool:
        return bool(chainer.config.enable_backprop)


class TiringNet(SleepyNet):
    """Begins to sleep in the first step."""

    def is_sleepy(self, x: Any) -> bool:
        return _trains(x)


class DivergingNet(TinyNet):
    """Finite until the file $TEST_DIVERGES is there."""

    def forward(self, x: Any) -> Any:
        factor = math.inf if os.path.exists(os.environ["TEST_DIVERGES"]) else 1.0
        return super().forward(x) * np.float32(factor)


def make_sequential(classes: int = 10) -> Any:
    """A user's model without a class, with a lambda in it."""
    initial = chainer.initializers.HeNormal(rng=np.random.RandomState(0))
    return chainer.Sequential(
        L.Convolution2D(3, 6, 3, stride=2, initialW=initial),
        L.BatchNormalization(6),
        lambda h: F.average(F.relu(h), axis=(2, 3)),
        L.Linear(6, classes, initialW=initial),
    )


class RankDependentNet(TinyNet):
    """Differs from rank to rank as $TEST_DIFFERENCE says; ranks are threads."""

    def __init__(self, classes: int = 10) -> None:
        difference = os.environ["TEST_DIFFERENCE"]
        on_rank_1 = threading.current_thread().name == "rank-1"
        self.difference = difference if on_rank_1 else ""
        super().__init__(classes + 1 if self.difference == "shape" else classes)
        if self.difference == "frozen":
            self.second.disable_update()
        if self.difference == "more":
            with self.init_scope():
                self.more = Linear(classes, classes)

    def forward(self, x: Any) -> Any:
        if self.difference == "order":
            x = x + 0 * F.sum(self.head(np.zeros((1, 28), np.float32)))
            h = self.activation(self.second(self.activation(self.first(x))))
            W, b = self.head.W.array, self.head.b.array
            return functions.linear(functions.global_average_pooling_2d(h), W, b)
        y = super().forward(x)
        if self.difference == "more":
            return self.more(y)
        return y[:, :-1] if self.difference == "shape" else y


def draw_seed() -> int:
    """Tests replace it by something that differs from rank to rank."""
    return 0


class RandomNet(TinyNet):
    """Draws its own seed."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__(classes, seed=draw_seed())
