"""Worker: training steps of stock Chainer, with the same network built from Chainer's links."""

from __future__ import annotations

from collections.abc import Callable

from baselines.chainer_models import resnet18
from baselines.serve import serve_steps
from baselines.workload import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, make_batch

from edgeddl.chainer_compat import F, chainer


def prepare(batch: int, stem: str) -> Callable[[], None]:
    x, t = make_batch(batch)
    model = resnet18(stem)
    optimizer = chainer.optimizers.MomentumSGD(LEARNING_RATE, MOMENTUM).setup(model)
    optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(WEIGHT_DECAY))

    def step() -> None:
        optimizer.update(lambda: F.softmax_cross_entropy(model(x), t))

    return step


if __name__ == "__main__":
    chainer.global_config.train = True
    serve_steps(prepare)
