"""Worker: ChainerMN with its `naive` communicator, the only one that runs on CPUs."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from baselines.chainer_models import resnet18
from baselines.workload import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY

from bench_scaling.worker import measure, own_batch, parse_task, write_ranks

from edgeddl.chainer_compat import F, chainer  # isort: skip

# imports Chainer, which needs chainer_compat first
import chainermn  # isort: skip


class ChainerTrainer:
    """Stock Chainer's network and optimizer with ChainerMN's multi-node optimizer."""

    def __init__(self, communicator: Any, stem: str, batch: int) -> None:
        self._x, self._t = own_batch(batch)
        self._model = resnet18(stem)
        self._waited = 0.0
        self._time_summing(communicator)
        optimizer = chainer.optimizers.MomentumSGD(LEARNING_RATE, MOMENTUM)
        self._optimizer = chainermn.create_multi_node_optimizer(optimizer, communicator)
        self._optimizer.setup(self._model)
        self._optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(WEIGHT_DECAY))
        self._optimizer.update()  # the first call only broadcasts the parameters

    def step(self) -> float:
        losses = []

        def loss() -> Any:
            losses.append(F.softmax_cross_entropy(self._model(self._x), self._t))
            return losses[0]

        self._waited = 0.0
        self._optimizer.update(loss)
        return float(losses[0].array)

    def waited(self) -> float:
        return self._waited

    def parameters(self) -> Iterable[np.ndarray]:
        return (parameter.array for _, parameter in sorted(self._model.namedparams()))

    def _time_summing(self, communicator: Any) -> None:
        """Count the all-reduce as waiting: it does not overlap with computation."""
        sum_gradients = communicator.multi_node_mean_grad

        def timed(*arguments: Any) -> None:
            started = time.perf_counter()
            sum_gradients(*arguments)
            self._waited += time.perf_counter() - started

        communicator.multi_node_mean_grad = timed


def main() -> None:
    task = parse_task()
    chainer.global_config.train = True
    communicator = chainermn.create_communicator("naive")
    record = measure(ChainerTrainer(communicator, task.stem, task.batch), task)
    ranks = communicator.gather_obj(record)
    if communicator.rank == 0:
        write_ranks(task, ranks)


if __name__ == "__main__":
    main()
