"""Prepares a run, from options to the first step, the same on all ranks."""

from __future__ import annotations

import platform
from pathlib import Path

from edgeddl import kernels, machine
from edgeddl.atomic_file import check_output_path, write_json
from edgeddl.chainer_compat import chainer
from edgeddl.comm.agreement import check_agreement, together
from edgeddl.comm.arena import Arena
from edgeddl.comm.bucket import ParameterSpec, plan_buckets
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.make_exchange import bucket_bytes, check_exchange_options, make_exchange
from edgeddl.comm.parameter_agreement import check_parameters
from edgeddl.comm.policies import find_policy
from edgeddl.config import TrainConfig, data_folder, kernel_choice, parse_image_size
from edgeddl.data import Dataset, load_dataset
from edgeddl.errors import ConfigError
from edgeddl.log import logger
from edgeddl.models import build_model, find_model
from edgeddl.optimizers import MomentumSGD
from edgeddl.registry import MODELS
from edgeddl.training.balance import check_balance, starting_shares
from edgeddl.training.checkpoint import (
    Checkpoint,
    CheckpointStore,
    read_checkpoint,
)
from edgeddl.training.extensions.own import find_makers
from edgeddl.training.extensions.trackers import check_trackers
from edgeddl.training.memory import check_memory
from edgeddl.training.model_description import ModelDescription
from edgeddl.training.parameters import (
    move_parameters,
    named_parameters,
    observe_parameters,
    plan_segments,
)
from edgeddl.training.prepared_run import PreparedRun
from edgeddl.training.resume import check_unchanged
from edgeddl.training.run_folder import (
    RUNS_FOLDER,
    RunFolder,
    check_not_of_a_run,
    choose_run_folder,
    locate,
    read_best,
    run_name,
)
from edgeddl.training.run_lock import check_unused
from edgeddl.training.schedule import Schedule, plan_schedule, scaled_learning_rate
from edgeddl.training.snapshot import Snapshots
from edgeddl.training.stages import stage
from edgeddl.training.state import RunState
from edgeddl.training.statistics import RunningStatistics


def prepare_run(config: TrainConfig, communicator: Communicator) -> PreparedRun:
    """Collective: load data and model, compare them between ranks, restore the checkpoint.

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
    arena = Arena(plan_buckets(specs, bucket_bytes(config)))
    move_parameters(model, arena)
    _share_start(communicator, model, arena)
    exchange = make_exchange(
        config,
        communicator,
        arena,
        named_parameters(model),
        overlap_forward=_calls_read_barrier(config.model),
    )
    optimizer = MomentumSGD(
        arena.parameters,
        arena.gradients,
        plan_segments(arena, config.weight_decay),
        momentum=config.momentum,
        nesterov=config.nesterov,
        factored=exchange.factored_gradients(),
    )
    description = ModelDescription.of_run(config, dataset)
    snapshots = Snapshots(config, model, exchange, optimizer, dataset.fingerprint, description)
    # before a folder is created, so that a refused run leaves nothing behind
    with stage("predicting the memory of a step"):
        memory = check_memory(
            config,
            model,
            exchange,
            image_shape=dataset.image_shape,
            train_images=len(dataset.train),
        )
    with stage("opening the run folder"):
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
        exchange=exchange,
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
    """Steps that may fail on a single rank: a missing file, an unknown model."""
    # Cheap checks first: reading the data takes seconds, and it may be missing.
    check_exchange_options(config)
    check_balance(config.balance, ranks)
    find_model(config.model)
    find_makers(config.extension)
    schedule = _plan_schedule(config, peak)
    with stage(f"loading data set {config.dataset}"):
        dataset = load_dataset(
            config.dataset,
            data_dir=data_folder(config.data_dir),
            limit_train=config.limit_train,
            limit_test=config.limit_test,
            image_size=parse_image_size(config.image_size) if config.image_size else None,
            fit=config.fit,
            test_fraction=config.test_fraction,
        )
    if config.cutout > min(dataset.image_shape[1:]):
        _, height, width = dataset.image_shape
        raise ConfigError(
            f"--cutout {config.cutout} is larger than an image ({height} x {width} pixels)"
        )
    classes = len(dataset.classes)
    with stage(f"building model {config.model}"):
        model = build_model(
            config.model,
            stem=config.stem,
            classes=classes,
            seed=config.seed,
            in_channels=dataset.image_shape[0],
        )
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
    # Kernels of another build round differently. Each rank computes its update from the same
    # gradients, so parameters drift apart by rounding only.
    may_differ = () if find_policy(config.compression).needs_identical_kernels else ("kernels",)
    check_agreement(communicator, facts, may_differ)


def _share_start(communicator: Communicator, model: chainer.Chain, arena: Arena) -> None:
    """Broadcast rank 0's parameters and statistics."""
    communicator.broadcast(arena.parameters)
    statistics = RunningStatistics(model)
    values = statistics.flat()
    communicator.broadcast(values)
    statistics.set_flat(values)


def _calls_read_barrier(model: str) -> bool:
    """Whether every function of this model calls the read barrier.

    edgeddl's models use only edgeddl's functions, which do. Other models may read parameters
    directly, and so may Chainer's functions.
    """
    return model in MODELS and kernel_choice() != "chainer"


def _open_folder(
    config: TrainConfig, communicator: Communicator, snapshots: Snapshots
) -> tuple[RunFolder | None, Checkpoint | None, Checkpoint | None]:
    """On rank 0: the run folder, the checkpoint to continue from, and the one of --init-from.

    Checkpoints are checked before anything is written.
    """
    if communicator.rank != 0:
        return None, None, None
    check_trackers(config)
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
    """The checkpoint of --resume PATH; None if the run ended before its first checkpoint."""
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
    """The checkpoint of --init-from: the given one, or a run's best, or else its latest."""
    path, checkpoint = read_best(source, "--init-from")
    snapshots.check_model(checkpoint, f"--init-from {path}")
    logger.info("starting from the parameters of %s", path)
    return checkpoint


def _latest(folder: RunFolder | None) -> tuple[Path, Checkpoint] | None:
    return CheckpointStore(folder.checkpoints, keep=1).latest() if folder else None
