"""Worker: PyTorch's DistributedDataParallel over gloo.

Runs in PyTorch's environment. mpirun only starts the ranks; they connect by MASTER_ADDR.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from baselines.torch_models import ResNet18
from baselines.workload import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY
from torch.nn.parallel import DistributedDataParallel

from bench_scaling.worker import measure, own_batch, parse_task, write_ranks

# PyTorch has two layouts. With 8 images NCHW was faster (133 ms instead of 169 with the ImageNet
# stem, 307 instead of 317 with CIFAR's). From 32 images on they were within 3 %, or channels last
# was faster. One thread, medians of 5 to 7 steps, on a shared x86-64 machine.
CHANNELS_LAST_FROM = 32


class TorchTrainer:
    """Trains with DistributedDataParallel.

    Uses the options that make it faster here, since edgeddl does the same: gradients are not copied
    into buckets, and running statistics are not sent at each step.
    """

    def __init__(self, stem: str, batch: int) -> None:
        large = batch >= CHANNELS_LAST_FROM
        layout = torch.channels_last if large else torch.contiguous_format
        images, labels = own_batch(batch)
        self._x = torch.from_numpy(images).to(memory_format=layout)
        self._t = torch.from_numpy(labels).long()
        self._model = DistributedDataParallel(
            ResNet18(stem=stem).to(memory_format=layout),
            gradient_as_bucket_view=True,
            broadcast_buffers=False,
        )
        self._model._set_ddp_runtime_logging_sample_rate(1)
        self._optimizer = torch.optim.SGD(
            self._model.parameters(), LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
        )

    def step(self) -> float:
        self._optimizer.zero_grad()
        loss = F.cross_entropy(self._model(self._x), self._t)
        loss.backward()
        self._optimizer.step()
        return loss.item()

    def waited(self) -> float:
        """Return the communication time that did not overlap with the backward pass."""
        self._model.logger.set_runtime_stats_and_log()
        log = self._model._get_ddp_logging_data()
        return (log["backward_comm_time"] - log["backward_compute_comm_overlap_time"]) / 1e9

    def parameters(self) -> Iterable[np.ndarray]:
        return (parameter.detach().numpy() for parameter in self._model.parameters())


def main() -> None:
    task = parse_task()
    rank, size = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    dist.init_process_group("gloo", rank=rank, world_size=size)  # by MASTER_ADDR and MASTER_PORT
    record = measure(TorchTrainer(task.stem, task.batch), task)
    ranks: list[Any] = [None] * size
    dist.all_gather_object(ranks, record)
    if rank == 0:
        write_ranks(task, ranks)
    dist.barrier()
    sys.stdout.flush()
    # Without PyTorch's shut-down: on throttled nodes it sometimes crashed after the work was done
    # ("terminate called without an active exception").
    os._exit(0)


if __name__ == "__main__":
    main()
