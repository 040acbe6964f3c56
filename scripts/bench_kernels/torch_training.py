"""Worker: training steps of PyTorch. Arguments: threads and memory format."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from baselines.serve import serve_steps
from baselines.torch_models import MEMORY_FORMATS, ResNet18
from baselines.workload import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, make_batch


def prepare(batch: int, stem: str) -> Callable[[], None]:
    images, labels = make_batch(batch)
    x = torch.from_numpy(images).to(memory_format=memory_format)
    t = torch.from_numpy(labels).long()
    model = ResNet18(stem=stem).to(memory_format=memory_format)
    optimizer = torch.optim.SGD(
        model.parameters(), LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), t).backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    memory_format = MEMORY_FORMATS[sys.argv[2]]
    serve_steps(prepare)
