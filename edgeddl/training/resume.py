"""Which run `--resume` continues, and with which options.

A run continues with the options it was started with: from its options.json or, for a checkpoint
outside of a run folder, from the checkpoint. The command line may change the options in
config.CHANGEABLE_OPTIONS, and split the batch into smaller micro-batches. Any other change is
refused, because the run would no longer be the same.

Only rank 0 has the run on its disk, so it reads the options and sends them to the other ranks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from edgeddl.comm.agreement import together
from edgeddl.comm.communicator import Communicator
from edgeddl.config import CHANGEABLE_OPTIONS, MODEL_OPTIONS, START_OPTIONS, TrainConfig
from edgeddl.errors import CheckpointError, ConfigError
from edgeddl.log import logger
from edgeddl.options import options_from_json
from edgeddl.training.checkpoint import find_checkpoints, latest_description, read_description
from edgeddl.training.run_folder import RUNS_FOLDER, RunFolder, list_runs, locate
from edgeddl.training.run_lock import is_in_use
from edgeddl.training.state import RunState

# Together they may change if a step keeps its images and learning rate: a batch that does not fit
# into memory is split into smaller micro-batches.
MICRO_BATCH_OPTIONS = ("batch_size", "accumulation", "lr")
ALL_OPTIONS = frozenset(option.name for option in fields(TrainConfig))
DEFAULTS = TrainConfig().to_json()


@dataclass(frozen=True)
class Origin:
    """The run folder or checkpoint to continue from, and the options found in `source`."""

    path: str
    source: str
    options: dict[str, Any]


def continue_run(
    config: TrainConfig, given: Collection[str] | None, communicator: Communicator
) -> TrainConfig:
    """Collective: the options of the run that --resume names, with those given now.

    `given` names the options that the user has set; None stands for all of them. In the result,
    `resume` is "never" or a path.
    """
    names = ALL_OPTIONS if given is None else frozenset(given)
    found = together(
        communicator, lambda: _find_origin(config, names) if communicator.rank == 0 else None
    )
    origin = communicator.allgather(found)[0]
    if origin is None:
        return replace(config, resume="never")
    merged = together(communicator, lambda: _merge(config, names, origin))
    if communicator.rank == 0:
        _report(merged, names, origin)
    return merged


def check_unchanged(before: Mapping[str, Any], config: TrainConfig, origin: str) -> None:
    """Raise if `config` changes options of `before` (as JSON) that a resumed run must keep."""
    now = config.to_json()
    changeable: tuple[str, ...] = (*START_OPTIONS, *CHANGEABLE_OPTIONS)
    if _has_same_step({**DEFAULTS, **before}, now):
        changeable += MICRO_BATCH_OPTIONS
    differing = [
        f"--{name.replace('_', '-')}: {_text(before[name])} there, {_text(value)} now"
        for name, value in now.items()
        if name in before and before[name] != value and name not in changeable
    ]
    if differing:
        raise ConfigError(
            "\n  ".join([f"a resumed run cannot change these options of {origin}:", *differing]),
            hint="leave them out to continue the run; to start a new run from its parameters,"
            f" use --init-from {config.resume} instead of --resume",
        )


def _has_same_step(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a step has the same images and, up to rounding of the option, learning rate."""

    def step(options: Mapping[str, Any]) -> tuple[int, float]:
        scaled = options["accumulation"] if options["lr_scaling"] == "linear" else 1
        return options["batch_size"] * options["accumulation"], options["lr"] * scaled

    (images_before, rate_before), (images, rate) = step(before), step(now)
    return images_before == images and math.isclose(rate_before, rate, rel_tol=1e-5)


def _find_origin(config: TrainConfig, given: Collection[str]) -> Origin | None:
    """On rank 0: what --resume continues; None for a new run."""
    if config.resume == "never":
        return None
    if config.resume != "auto":
        if config.init_from is not None:
            raise ConfigError(
                f"--resume {config.resume} continues a run, --init-from starts a new one",
                hint="leave one of them out",
            )
        return _read_origin(Path(config.resume))
    run = _choose_run(config, given)
    return _read_origin(run.path) if run else None


def _read_origin(path: Path) -> Origin:
    folder, checkpoint = locate(path)
    if folder is not None and (options := _read_options(folder)) is not None:
        return Origin(str(path), str(folder.options), options)
    if checkpoint is not None:
        source, meta = checkpoint, read_description(checkpoint)
    elif folder is not None and (found := latest_description(folder.checkpoints)):
        source, meta = found
    else:
        raise CheckpointError(
            f"--resume {path}: neither options.json nor a checkpoint can be read there",
            hint="start a new run with --resume never",
        )
    options = meta.get("options")
    if not isinstance(options, dict):
        raise CheckpointError(f"{source} does not describe a training run")
    return Origin(str(path), str(source), options)


def _read_options(folder: RunFolder) -> dict[str, Any] | None:
    """The options.json of a run; None if it is missing or damaged."""
    try:
        options = json.loads(folder.options.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        options = None
    if isinstance(options, dict):
        return options
    logger.warning("%s cannot be read; using the options in the checkpoint", folder.options)
    return None


def _choose_run(config: TrainConfig, given: Collection[str]) -> RunFolder | None:
    """--resume auto: the run in --run-dir, or the newest unfinished one in runs/.

    If all are finished, the newest. Runs of another model or data set than those given are ignored.
    If there is no run, a new one starts, provided the user has given a model or data set.
    """
    if config.run_dir:
        explicit = RunFolder(config.run_dir)
        if explicit.holds_a_run:
            return explicit
    else:
        found = sorted(list_runs(RUNS_FOLDER), key=_last_written, reverse=True)
        runs = [_Candidate.read(run) for run in found if not _is_busy(run)]
        wanted = {name: getattr(config, name) for name in MODEL_OPTIONS if name in given}
        runs = [run for run in runs if wanted.items() <= run.model.items()]
        epochs = config.epochs if "epochs" in given else None
        unfinished = [run for run in runs if not run.has_reached(epochs)]
        if runs:
            kind = "newest unfinished run" if unfinished else "newest run (all are finished)"
            chosen = (unfinished or runs)[0].folder
            logger.info("--resume auto: the %s is %s", kind, chosen.path)
            return chosen
    place = config.run_dir or RUNS_FOLDER
    if set(MODEL_OPTIONS).isdisjoint(given):
        raise ConfigError(
            f"--resume auto: there is no run to continue in {place}",
            hint="to start a new run if there is none, name a model, such as --model resnet18",
        )
    logger.info("--resume auto: no run to continue in %s, starting a new one", place)
    return None


def _is_busy(run: RunFolder) -> bool:
    if busy := is_in_use(run.path):
        logger.info("--resume auto: ignoring %s, which another job is training", run.path)
    return busy


@dataclass(frozen=True)
class _Candidate:
    """A run that `auto` may choose; unreadable parts are an error only if it is chosen."""

    folder: RunFolder
    options: Mapping[str, Any]
    state: RunState | None

    @classmethod
    def read(cls, folder: RunFolder) -> _Candidate:
        found = latest_description(folder.checkpoints)
        meta = found[1] if found else {}
        try:
            state = RunState.from_json(meta.get("state"), str(folder.path))
        except CheckpointError:
            state = None
        options = _read_options(folder) or meta.get("options")
        return cls(folder, options if isinstance(options, dict) else {}, state)

    @property
    def model(self) -> dict[str, Any]:
        return {name: str(self.options.get(name)) for name in MODEL_OPTIONS}

    def has_reached(self, epochs: int | None) -> bool:
        """Whether the run has had this many epochs, by default its own --epochs."""
        own = self.options.get("epochs")
        wanted = epochs or (own if isinstance(own, int) else 0)
        done = self.state is not None and self.state.epoch >= wanted
        return done and not (self.state and self.state.epoch_to_record)


def _last_written(run: RunFolder) -> tuple[int, str]:
    written = [path.stat().st_mtime_ns for path in find_checkpoints(run.checkpoints)]
    return max(written, default=0), run.path.name


def _merge(config: TrainConfig, given: Collection[str], origin: Origin) -> TrainConfig:
    before = options_from_json(origin.source, origin.options)
    kept = {name: value for name, value in before.items() if name not in START_OPTIONS}
    own = {name: getattr(config, name) for name in {*given, *START_OPTIONS}}
    merged = TrainConfig(**{**kept, **own, "resume": origin.path})
    check_unchanged(TrainConfig(**kept).to_json(), merged, origin.source)
    return merged


def _report(merged: TrainConfig, given: Collection[str], origin: Origin) -> None:
    """Log which options were taken from where."""
    options, before = merged.to_json(), {**DEFAULTS, **origin.options}
    kept = [
        _written_out(name, value)
        for name, value in options.items()
        if name not in (*given, *START_OPTIONS)
        and (value != DEFAULTS[name] or name in MODEL_OPTIONS)
    ]
    if kept:
        logger.info("options from %s: %s", origin.source, " ".join(kept))
    for name in (*CHANGEABLE_OPTIONS, *MICRO_BATCH_OPTIONS):
        if options[name] != before[name]:
            now = _written_out(name, options[name])
            logger.info("option given now: %s instead of %s", now, _text(before[name]))


def _written_out(name: str, value: Any) -> str:
    """An option as on the command line."""
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{'' if value else 'no-'}{option}"
    return f"--{option} {_text(value)}"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not set" if value is None else str(value)
