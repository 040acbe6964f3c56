"""From options to a run that is ready for its first step, the same on all ranks."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from edgeddl import kernels, machine
from edgeddl.atomic_file import check_output_path, write_json
from edgeddl.chainer_compat import chainer
from edgeddl.comm.agreement import check_agreement, together
from edgeddl.comm.arena import Arena
from edgeddl.comm.bucket import ParameterSpec, plan_buckets
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.compression import COMPRESSIONS, BucketSum, OwnGradients
from edgeddl.comm.parameter_agreement import check_parameters
from edgeddl.comm.powersgd import PowerSGD
from edgeddl.config import TrainConfig, data_folder
from edgeddl.data import Dataset, load_dataset
from edgeddl.errors import CheckpointError, ConfigError
from edgeddl.kernels.matrices import Products
from edgeddl.log import logger
from edgeddl.models import build_model, find_model
from edgeddl.optimizers import MomentumSGD
from edgeddl.training.balance import check_balance, starting_shares
from edgeddl.training.checkpoint import (
    BEST_NAME,
    Checkpoint,
    CheckpointStore,
    read_checkpoint,
)
from edgeddl.training.compression_state import CompressionState
from edgeddl.training.local_steps import steps_to_round_end
from edgeddl.training.memory import MemoryPrediction, check_memory
from edgeddl.training.parameters import move_parameters, observe_parameters, plan_segments
from edgeddl.training.resume import check_unchanged
from edgeddl.training.run_folder import (
    RUNS_FOLDER,
    RunFolder,
    check_not_of_a_run,
    choose_run_folder,
    locate,
    run_name,
)
from edgeddl.training.run_lock import check_unused
from edgeddl.training.schedule import Schedule, plan_schedule, scaled_learning_rate
from edgeddl.training.snapshot import Snapshots
from edgeddl.training.state import RunState
from edgeddl.training.statistics import RunningStatistics


@dataclass(frozen=True)
class PreparedRun:
    """Everything a run consists of before its first step. Only rank 0 has a folder."""

    config: TrainConfig
    communicator: Communicator
    dataset: Dataset
    model: chainer.Chain
    arena: Arena
    bucket_sum: BucketSum
    optimizer: MomentumSGD
    schedule: Schedule
    peak_learning_rate: float
    snapshots: Snapshots
    folder: RunFolder | None
    state: RunState
    memory: list[MemoryPrediction]  # by rank; empty if ranks are threads

    @property
    def epoch_images(self) -> int:
        return len(self.dataset.train)

    @property
    def global_batch(self) -> int:
        return sum(self.state.shares)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.epoch_images // self.global_batch)

    @property
    def total_steps(self) -> int:
        """Where the count of steps will stand at the end, from where it stands now."""
        this_epoch = -(-(self.epoch_images - self.state.first_image) // self.global_batch)
        later = max(self.config.epochs - self.state.epoch - 1, 0) * self.steps_per_epoch
        left = this_epoch + later if self.state.epoch < self.config.epochs else 0
        if self.config.max_steps is not None:
            wanted = steps_to_round_end(
                max(self.config.max_steps - self.state.step, 0),
                this_epoch=this_epoch,
                steps_per_epoch=self.steps_per_epoch,
                local_steps=self.config.local_steps,
            )
            left = min(left, wanted)
        return self.state.step + left


def prepare_run(config: TrainConfig, communicator: Communicator) -> PreparedRun:
    """Collective: load, build, agree, and continue the run where it was left.

    `config.resume` is "never" or a path: `resume.continue_run` has replaced "auto".
    """
    peak = scaled_learning_rate(
        config.lr, communicator.size, config.accumulation, config.lr_scaling
    )
    dataset, model, specs, schedule = together(
        communicator, lambda: _load(config, communicator.size, peak)
    )
    _check_agreement(config, communicator, dataset)
    check_parameters(communicator, specs)
    arena = Arena(plan_buckets(specs, config.bucket_bytes))
    move_parameters(model, arena)
    _share_start(communicator, model, arena)
    bucket_sum = _make_bucket_sum(config, arena)
    optimizer = MomentumSGD(
        arena.parameters,
        arena.gradients,
        plan_segments(arena, config.weight_decay),
        momentum=config.momentum,
        nesterov=config.nesterov,
        products=_products(config, communicator, bucket_sum),
    )
    compression = (
        CompressionState(communicator, bucket_sum) if isinstance(bucket_sum, PowerSGD) else None
    )
    snapshots = Snapshots(
        config, communicator, model, arena, optimizer, compression, dataset.fingerprint
    )
    # before a folder is made: a refused run leaves nothing behind
    memory = check_memory(
        config,
        communicator,
        model,
        arena,
        bucket_sum,
        image_shape=dataset.image_shape,
        train_images=len(dataset.train),
    )
    folder, checkpoint, initial = together(
        communicator, lambda: _open_folder(config, communicator, snapshots)
    )
    snapshots.initialise(initial)
    state = snapshots.restore(checkpoint) or RunState()
    state.shares = starting_shares(
        config.balance, config.batch_size * config.accumulation, communicator.size, state.shares
    )
    return PreparedRun(
        config=config,
        communicator=communicator,
        dataset=dataset,
        model=model,
        arena=arena,
        bucket_sum=bucket_sum,
        optimizer=optimizer,
        schedule=schedule,
        peak_learning_rate=peak,
        snapshots=snapshots,
        folder=folder,
        state=state,
        memory=memory,
    )


def _load(
    config: TrainConfig, ranks: int, peak: float
) -> tuple[Dataset, chainer.Chain, list[ParameterSpec], Schedule]:
    """What may fail on one rank alone: a missing file, an unknown model."""
    # The cheap checks first: reading the data takes seconds, and it may not be there yet.
    check_balance(config.balance, ranks)
    find_model(config.model)
    schedule = _plan_schedule(config, peak)
    dataset = load_dataset(
        config.dataset,
        data_dir=data_folder(config.data_dir),
        limit_train=config.limit_train,
        limit_test=config.limit_test,
    )
    if config.cutout > min(dataset.image_shape[1:]):
        _, height, width = dataset.image_shape
        raise ConfigError(
            f"--cutout {config.cutout} is larger than an image ({height} x {width} pixels)"
        )
    classes = len(dataset.classes)
    model = build_model(config.model, stem=config.stem, classes=classes, seed=config.seed)
    specs = observe_parameters(model, dataset.image_shape, classes)
    return dataset, model, specs, schedule


def _plan_schedule(config: TrainConfig, peak: float) -> Schedule:
    warmup = config.warmup_epochs
    return plan_schedule(
        config.schedule,
        start=config.lr,
        peak=peak,
        epochs=config.epochs,
        warmup_epochs=min(1.0, config.epochs / 10) if warmup is None else warmup,
        step_at=config.step_at,
        step_factor=config.step_factor,
    )


def _check_agreement(config: TrainConfig, communicator: Communicator, dataset: Dataset) -> None:
    versions = machine.versions()
    facts = {f"version of {name}": versions[name] for name in ("edgeddl", "chainer", "numpy")}
    facts |= {f"option {name}": str(value) for name, value in config.shared_options().items()}
    facts["data (fingerprint)"] = dataset.fingerprint
    facts["kernels"] = f"{kernels.chosen()} for {platform.machine()}"
    # Kernels of another build round otherwise. Each rank computes the update by itself, from the
    # same gradients: parameters come apart by rounding alone. By PowerSGD each computes gradients,
    # too, without columns below a limit: a last bit may decide over a whole column.
    may_differ = () if config.compression == "powersgd" else ("kernels",)
    check_agreement(communicator, facts, may_differ)


def _share_start(communicator: Communicator, model: chainer.Chain, arena: Arena) -> None:
    """Rank 0's parameters and statistics for everybody."""
    communicator.broadcast(arena.parameters)
    statistics = RunningStatistics(model)
    values = statistics.flat()
    communicator.broadcast(values)
    statistics.set_flat(values)


def _make_bucket_sum(config: TrainConfig, arena: Arena) -> BucketSum:
    if config.local_steps > 1:
        return OwnGradients()
    return COMPRESSIONS[config.compression](arena.plan, config.compression_rank)


def _products(
    config: TrainConfig, communicator: Communicator, bucket_sum: BucketSum
) -> list[Products]:
    """Those that the optimizer computes for itself: of buckets, which a naive reducer has not."""
    sums_buckets = communicator.size > 1 and config.communicator == "bucketed"
    return bucket_sum.leave_products() if isinstance(bucket_sum, PowerSGD) and sums_buckets else []


def _open_folder(
    config: TrainConfig, communicator: Communicator, snapshots: Snapshots
) -> tuple[RunFolder | None, Checkpoint | None, Checkpoint | None]:
    """On rank 0: where the run lives, the checkpoint it continues from, and the one it starts from.

    Whatever is wrong with either is found before anything is written.
    """
    if communicator.rank != 0:
        return None, None, None
    for option, path in (("--summary", config.summary), ("--timeline", config.timeline)):
        if path is not None:
            check_not_of_a_run(option, path)
            check_output_path(option, path)
    checkpoint = None if config.resume == "never" else _find_checkpoint(config, snapshots)
    starts_from = config.init_from if checkpoint is None else None
    initial = _find_initial(starts_from, snapshots) if starts_from else None
    name = run_name(config.model, config.dataset)
    folder = choose_run_folder(RUNS_FOLDER, name, config.run_dir, config.resume)
    check_unused(folder.path)
    try:
        write_json(folder.options, config.to_json())
    except OSError as error:
        raise ConfigError(f"{folder.options} cannot be written: {error.strerror}") from error
    return folder, checkpoint, initial


def _find_checkpoint(config: TrainConfig, snapshots: Snapshots) -> Checkpoint | None:
    """What --resume PATH continues from; None for a run that was ended before its first one."""
    folder, path = locate(Path(config.resume))
    if path is not None:
        checkpoint = read_checkpoint(path)
    elif latest := _latest(folder):
        path, checkpoint = latest
    else:
        logger.info("no checkpoint in %s: starting from scratch", config.resume)
        return None
    snapshots.check(checkpoint, str(path))
    check_unchanged(checkpoint.meta["options"], config, str(path))
    logger.info("resuming from %s", path)
    return checkpoint


def _find_initial(source: Path, snapshots: Snapshots) -> Checkpoint:
    """What --init-from names: a checkpoint, or the best, else the latest, of a run."""
    folder, path = locate(source, "--init-from")
    if folder is not None and path is None:
        best = folder.checkpoints / BEST_NAME
        path = best if best.is_file() else None
    if path is not None:
        checkpoint = read_checkpoint(path)
    elif latest := _latest(folder):
        path, checkpoint = latest
    else:
        raise CheckpointError(f"--init-from {source}: there are no checkpoints in this run folder")
    snapshots.check_model(checkpoint, f"--init-from {path}")
    logger.info("starting from the parameters of %s", path)
    return checkpoint


def _latest(folder: RunFolder | None) -> tuple[Path, Checkpoint] | None:
    return CheckpointStore(folder.checkpoints, keep=1).latest() if folder else None
