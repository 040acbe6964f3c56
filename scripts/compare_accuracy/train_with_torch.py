"""Trains with edgeddl's loop and PyTorch's kernels.

    python -m compare_accuracy.train_with_torch TORCH_PYTHON [options of edgeddl.train]

Data, their order and augmentation, initial parameters, schedule and loop are edgeddl's. A process
in PyTorch's environment computes the steps and evaluations.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from baselines.process import Worker

from edgeddl import log, machine
from edgeddl.atomic_file import write_json
from edgeddl.comm.local import SingleCommunicator
from edgeddl.config import TrainConfig
from edgeddl.data import Dataset, StepBatch, normalise
from edgeddl.errors import ConfigError, EdgeddlError
from edgeddl.options import parse_train_options
from edgeddl.training.clock import StepClock
from edgeddl.training.evaluator import BATCH_SIZE, Evaluation
from edgeddl.training.extensions.progress import make_progress
from edgeddl.training.loop import TrainingLoop
from edgeddl.training.parameters import named_parameters
from edgeddl.training.startup import prepare_run
from edgeddl.training.stop import StopRequest
from edgeddl.training.updater import StepResult


class TorchUpdater:
    """Runs steps in PyTorch; replaces edgeddl's Updater."""

    def __init__(self, torch: Worker) -> None:
        self._torch = torch

    def step(
        self, batch: StepBatch, learning_rate: float, stop_requested: bool, clock: StepClock
    ) -> StepResult:
        loss = self._torch.request(
            "train",
            micro_batches=batch.micro_batches,
            images=batch.images,
            learning_rate=learning_rate,
        )
        return StepResult(loss, stop_requested)


def evaluate(torch: Worker, dataset: Dataset) -> Evaluation:
    """Return loss and accuracy over the whole test set, like edgeddl's evaluate."""
    totals = np.zeros(2)
    for first in range(0, len(dataset.test), BATCH_SIZE):
        part = slice(first, first + BATCH_SIZE)
        x = normalise(dataset.test.images[part], dataset.mean, dataset.std)
        totals += torch.request("evaluate", x=x, t=dataset.test.labels[part])
    loss, right = totals / len(dataset.test)
    return Evaluation(loss=float(loss), accuracy=float(right))


def train(config: TrainConfig, torch: Worker, threads: int) -> TrainingLoop:
    """Run the training loop to its end."""
    run = prepare_run(config, SingleCommunicator())
    torch.request(
        "prepare",
        model=config.model,
        parameters={name: p.array for name, p in named_parameters(run.model).items()},
        threads=threads,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
        label_smoothing=config.label_smoothing,
    )
    with run.make_loader() as loader:
        loop = TrainingLoop(
            config,
            run.state,
            loader=loader,
            epoch_images=run.epoch_images,
            classes=len(run.dataset.classes),
            updater=TorchUpdater(torch),  # type: ignore[arg-type]
            schedule=run.schedule,
            evaluate=lambda: evaluate(torch, run.dataset),
            extensions=make_progress(run),
            stop=StopRequest(),
        )
        loop.run()
    return loop


def main() -> None:
    log.configure()
    config = parse_train_options(sys.argv[2:])
    if config.stem != "cifar" or config.summary is None:
        raise ConfigError("PyTorch's networks support only --stem cifar, and --summary is required")
    threads = config.threads or machine.default_threads()
    module = "compare_accuracy.torch_worker"
    with Worker("PyTorch", Path(sys.argv[1]), module, threads=threads) as torch:
        loop = train(config, torch, threads)
        final = loop.final_accuracy()
    state = loop.state
    summary = {"final_accuracy": final, "step_losses": state.step_losses, "history": state.history}
    write_json(config.summary, summary)


if __name__ == "__main__":
    try:
        main()
    except EdgeddlError as error:
        log.logger.error("%s", error)
        sys.exit(error.exit_code)
