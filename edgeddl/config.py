"""The options of a training run, each described once.

A field of TrainConfig is an option of the command line (`--batch-size`) and a key of a
configuration file (`batch-size = 32`) at the same time; `options` reads both. This is the only
module that reads EDGEDDL_* environment variables.
"""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from edgeddl.errors import ConfigError
from edgeddl.kernel_builds import BUILD_NAMES

MODEL_AND_DATA = "model and data"
OPTIMIZATION = "optimization"
COMMUNICATION = "communication"
RUN = "run and output"

ScheduleKind = Literal["constant", "cosine", "step", "one-cycle"]
ScalingRule = Literal["linear", "none"]

# Each rank's own business; everything else must be the same on all ranks.
LOCAL_OPTIONS = (
    "data_dir",
    "threads",
    "run_dir",
    "summary",
    "progress",
    "resume",
    "init_from",
    "metrics_address",
)

# What a run is: `--resume auto` continues only runs of these, as far as they are given.
MODEL_OPTIONS = ("model", "stem", "dataset")

# Options of one start: a resumed run does not take them from the run it continues.
START_OPTIONS = (
    "max_steps",
    "threads",
    "resume",
    "run_dir",
    "summary",
    "timeline",
    "timeline_steps",
    "progress",
    "metrics_port",
    "metrics_address",
    "stall_warning_seconds",
    "stall_timeout_seconds",
    "memory_check",
)

# A resumed run takes these from the run it continues, unless they are given. All others, but for
# START_OPTIONS, cannot change: they decide which model is trained, how, and on which images.
CHANGEABLE_OPTIONS = (
    "data_dir",
    "epochs",
    "balance",
    "communicator",
    "allreduce",
    "bucket_mib",
    "compression",
    "compression_rank",
    "require_linpack",
    "eval_every",
    "checkpoint_every",
    "keep_checkpoints",
)


def data_folder(data_dir: Path | None) -> Path | None:
    """Where data sets are: as --data-dir says, else $EDGEDDL_DATA; None leaves it to the data."""
    environment = os.environ.get("EDGEDDL_DATA")
    return data_dir or (Path(environment) if environment else None)


def state_folder() -> Path:
    """Where results that outlive a run are kept: $EDGEDDL_STATE, else the user's state folder."""
    if environment := os.environ.get("EDGEDDL_STATE"):
        return Path(environment)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local/state") / "edgeddl"


# Which kernels compute; auto: the native ones, or NumPy's if there is no native library.
KERNEL_CHOICES = ("auto", "native", "reference", "chainer")


def kernel_choice() -> str:
    """The kernels that $EDGEDDL_KERNELS asks for."""
    return _from_environment("EDGEDDL_KERNELS", KERNEL_CHOICES) or "auto"


def kernel_build() -> str | None:
    """The build of the native kernels that $EDGEDDL_CPU asks for; None: the processor decides."""
    return _from_environment("EDGEDDL_CPU", BUILD_NAMES)


def metrics_address(option: str | None) -> str:
    """Where exporters listen: as an option says, else $EDGEDDL_METRICS_ADDRESS, else loopback."""
    return option or os.environ.get("EDGEDDL_METRICS_ADDRESS") or "127.0.0.1"


def metrics_port(option: int | None) -> int | None:
    """First port of ranks' metrics: by the option, else $EDGEDDL_METRICS_PORT; None: no metrics."""
    text = os.environ.get("EDGEDDL_METRICS_PORT") or "0"
    if option is None and not text.isdecimal():
        raise ConfigError(f"EDGEDDL_METRICS_PORT must be a whole number, not {text!r}")
    return (int(text) if option is None else option) or None


def _from_environment(name: str, choices: tuple[str, ...]) -> str | None:
    value = os.environ.get(name) or None
    if value is not None and value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    return value


def _option(default: Any, group: str, text: str, **argument: Any) -> Any:
    return field(default=default, metadata={"group": group, "help": text, "argument": argument})


# Seconds above 9.2e9 do not fit into a timeout of the system; no option has a use for more.
LARGEST_NUMBER = 10**9
LARGEST_SEED = 2**63 - 1


def _number(
    kind: type, minimum: float, *, above: bool = False, maximum: int = LARGEST_NUMBER
) -> Any:
    """A parser of numbers within limits, for argparse and for configuration files."""

    def parse(text: Any) -> Any:
        noun = "whole number" if kind is int else "number"
        limit = f"{'above' if above else 'of at least'} {minimum}"
        try:
            value = kind(text)
            exact = not isinstance(text, float) or value == text
            fits = exact and value < math.inf and (value > minimum if above else value >= minimum)
        except (ValueError, OverflowError):
            fits = False
        if not fits:
            raise ValueError(f"expected a {noun} {limit}")
        if value > maximum:
            raise ValueError(f"expected a {noun} of at most {maximum:,}")
        return value

    return parse


_COUNT = {"type": _number(int, 1), "metavar": "N"}
_POSITIVE = {"type": _number(float, 0, above=True), "metavar": "X"}
_NOT_NEGATIVE = {"type": _number(float, 0), "metavar": "X"}


def _path(text: str) -> Path:
    if not text:  # an unset shell variable; Path would take it for the current folder
        raise ValueError("expected a path")
    return Path(text)


def _address(text: str) -> str:
    if not text:  # sockets would take it for all addresses
        raise ValueError("expected an address, or a network such as 10.42.0.0/24")
    return text


def _fractions(value: Any) -> tuple[float, ...]:
    """Fractions of the run: "0.5,0.75" on the command line, [0.5, 0.75] in a file."""
    parts = value.split(",") if isinstance(value, str) else value
    if any(isinstance(part, bool) for part in parts):
        raise ValueError("expected numbers")
    numbers = tuple(float(part) for part in parts)
    if not all(map(math.isfinite, numbers)):
        raise ValueError("expected finite numbers")
    return numbers


def _balance(text: str) -> str | tuple[float, ...]:
    """ "even", "auto", or relative speeds such as "1,1,0.5"."""
    if text in ("even", "auto"):
        return text
    try:
        return tuple(_POSITIVE["type"](part) for part in text.split(","))
    except ValueError:
        raise ValueError("expected even, auto, or a number above 0 for each rank") from None


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides what a training run does."""

    model: str = _option(
        "resnet18", MODEL_AND_DATA, "resnet18, resnet9, or package.module:callable of your own"
    )
    stem: str = _option(
        "cifar",
        MODEL_AND_DATA,
        "first layers: 3x3 (cifar) or 7x7 stride 2 and max-pooling (imagenet)",
        choices=("cifar", "imagenet"),
    )
    dataset: str = _option(
        "cifar10",
        MODEL_AND_DATA,
        "cifar10, or shapes: generated, needs no download",
        choices=("cifar10", "shapes"),
    )
    data_dir: Path | None = _option(
        None,
        MODEL_AND_DATA,
        "folder or archive with the data set (default: $EDGEDDL_DATA, then the cache folder)",
        type=_path,
        metavar="DIR",
    )
    limit_train: int | None = _option(
        None, MODEL_AND_DATA, "use only the first N training images", **_COUNT
    )
    limit_test: int | None = _option(
        None, MODEL_AND_DATA, "use only the first N test images", **_COUNT
    )
    augment: bool = _option(True, MODEL_AND_DATA, "random crops and horizontal flips")
    cutout: int = _option(
        0,
        MODEL_AND_DATA,
        "side of a random square set to the mean; 0: none",
        type=_number(int, 0),
        metavar="N",
    )

    epochs: int = _option(30, OPTIMIZATION, "passes over the training images", **_COUNT)
    max_steps: int | None = _option(
        None,
        OPTIMIZATION,
        "stop after this many steps; the schedule stays that of --epochs",
        **_COUNT,
    )
    batch_size: int = _option(32, OPTIMIZATION, "images per rank and micro-batch", **_COUNT)
    accumulation: int = _option(
        1,
        OPTIMIZATION,
        "micro-batches per step; global batch = batch size x accumulation x ranks",
        **_COUNT,
    )
    balance: str | tuple[float, ...] = _option(
        "even",
        OPTIMIZATION,
        "how ranks share the global batch: even; auto: by measured speed;"
        " or one relative speed for each rank, such as 1,1,0.5",
        type=_balance,
        metavar="even|auto|W,W",
    )
    lr: float = _option(
        0.025, OPTIMIZATION, "learning rate for one rank's batch, before scaling", **_POSITIVE
    )
    lr_scaling: ScalingRule = _option(
        "linear",
        OPTIMIZATION,
        "linear: multiply by ranks x accumulation; none: take --lr as it is",
        choices=get_args(ScalingRule),
    )
    schedule: ScheduleKind = _option(
        "cosine",
        OPTIMIZATION,
        "course of the learning rate over the run",
        choices=get_args(ScheduleKind),
    )
    warmup_epochs: float | None = _option(
        None,
        OPTIMIZATION,
        "epochs from the unscaled to the full rate (default: 1, or a tenth of a short run)",
        **_NOT_NEGATIVE,
    )
    step_at: tuple[float, ...] = _option(
        (0.5, 0.75),
        OPTIMIZATION,
        "schedule step: fractions of the run where the rate drops",
        type=_fractions,
        metavar="F,F",
    )
    step_factor: float = _option(
        0.1, OPTIMIZATION, "schedule step: what the rate is multiplied by there", **_POSITIVE
    )
    momentum: float = _option(0.9, OPTIMIZATION, "momentum", **_NOT_NEGATIVE)
    nesterov: bool = _option(False, OPTIMIZATION, "Nesterov momentum")
    weight_decay: float = _option(
        5e-4, OPTIMIZATION, "weight decay; never on batch normalisation and biases", **_NOT_NEGATIVE
    )
    label_smoothing: float = _option(
        0.0, OPTIMIZATION, "probability spread over all classes", **_NOT_NEGATIVE
    )
    seed: int = _option(
        0,
        OPTIMIZATION,
        "decides initial parameters, order and augmentation",
        type=_number(int, 0, maximum=LARGEST_SEED),
        metavar="N",
    )

    communicator: str = _option(
        "bucketed",
        COMMUNICATION,
        "bucketed: flat buckets, summed during backward; naive: one all-reduce per parameter",
        choices=("bucketed", "naive"),
    )
    allreduce: str = _option(
        "auto",
        COMMUNICATION,
        "ring: pipelined, over sockets; mpi: Open MPI's own, waited for asleep; stock: Open MPI's"
        " own, which spins; auto: by size of bucket and measured links",
        choices=("auto", "ring", "mpi", "stock"),
    )
    bucket_mib: float | None = _option(
        None,
        COMMUNICATION,
        "size of a gradient bucket in MiB (default: 4, and 32 with powersgd, which sends little)",
        **_POSITIVE,
    )
    compression: str = _option(
        "none",
        COMMUNICATION,
        "what travels: float32 (none), half precision (fp16) or low-rank factors (powersgd)",
        choices=("none", "fp16", "powersgd"),
    )
    compression_rank: int = _option(
        4, COMMUNICATION, "powersgd: columns of the factors; more is closer and larger", **_COUNT
    )
    local_steps: int = _option(
        1,
        COMMUNICATION,
        "steps each rank takes alone before all take the mean of parameters and momentum",
        **_COUNT,
    )
    stall_warning_seconds: float = _option(
        60.0, COMMUNICATION, "name the ranks waited for after this time", **_POSITIVE
    )
    stall_timeout_seconds: float = _option(
        600.0, COMMUNICATION, "end the job after waiting this long", **_POSITIVE
    )

    threads: int | None = _option(
        None, RUN, "compute threads per rank (default: cores / ranks on the host)", **_COUNT
    )
    require_linpack: bool = _option(
        False, RUN, "start only where each host has passed `python -m edgeddl linpack`"
    )
    memory_check: str = _option(
        "refuse",
        RUN,
        "if the predicted memory of a rank exceeds what its host has: end the run (refuse) or warn",
        choices=("refuse", "warn"),
    )
    eval_every: int = _option(1, RUN, "epochs between evaluations", **_COUNT)
    checkpoint_every: int | None = _option(
        None, RUN, "steps between checkpoints (default: one at the end of each epoch)", **_COUNT
    )
    keep_checkpoints: int = _option(
        3, RUN, "how many of the latest checkpoints stay, besides the best", **_COUNT
    )
    resume: str = _option(
        "never",
        RUN,
        "continue a run, with its options: auto (the newest unfinished run in runs/), the PATH of a"
        " run folder or a checkpoint, or never",
    )
    init_from: Path | None = _option(
        None,
        RUN,
        "start a new run from the parameters of this run folder (its best.npz) or checkpoint",
        type=_path,
        metavar="PATH",
    )
    run_dir: Path | None = _option(
        None,
        RUN,
        "folder of the run's files (default: runs/MODEL-DATASET)",
        type=_path,
        metavar="DIR",
    )
    summary: Path | None = _option(
        None, RUN, "also write the summary to this file", type=_path, metavar="FILE.json"
    )
    timeline: Path | None = _option(
        None,
        RUN,
        "write a trace of a few steps, for ui.perfetto.dev: layers, all-reduces and waits of each"
        " rank",
        type=_path,
        metavar="FILE.json",
    )
    timeline_steps: int = _option(3, RUN, "steps in it, after two to warm up", **_COUNT)
    progress: str = _option(
        "auto",
        RUN,
        "progress on rank 0: bar on a terminal, lines elsewhere (auto)",
        choices=("auto", "bar", "lines", "none"),
    )
    metrics_port: int | None = _option(
        None,
        RUN,
        "serve metrics, and on rank 0 a live page; a rank's port is N + its number on its host;"
        " 0: off (default: $EDGEDDL_METRICS_PORT, then off)",
        type=_number(int, 0),
        metavar="N",
    )
    metrics_address: str | None = _option(
        None,
        RUN,
        "address to serve them on, or a network such as 10.42.0.0/24: each host's address in it"
        " (default: $EDGEDDL_METRICS_ADDRESS, then 127.0.0.1)",
        type=_address,
        metavar="ADDRESS",
    )

    def __post_init__(self) -> None:
        if not self.resume:
            raise ConfigError("--resume must be auto, never or a path, not empty")
        if self.cutout > 32:
            raise ConfigError(f"--cutout {self.cutout} is larger than an image, 32 pixels")
        for option in fields(self):
            choices = option.metadata["argument"].get("choices")
            if choices and getattr(self, option.name) not in choices:
                value = getattr(self, option.name)
                raise ConfigError(
                    f"{option.name} must be one of {', '.join(choices)}, not {value!r}"
                )
        if self.label_smoothing >= 1:
            raise ConfigError(f"--label-smoothing: expected below 1, got {self.label_smoothing}")
        if self.momentum >= 1:
            raise ConfigError(f"--momentum: expected below 1, got {self.momentum}")
        if self.nesterov and self.momentum == 0:
            raise ConfigError("--nesterov needs a --momentum above 0")
        if self.local_steps > 1 and self.compression != "none":
            raise ConfigError(
                f"--local-steps {self.local_steps} sends parameters, which"
                f" --compression {self.compression} would spoil: it compresses gradients",
                hint="leave one of them out",
            )
        if self.compression == "fp16" and self.allreduce not in ("auto", "ring"):
            raise ConfigError(
                f"--compression fp16 goes round the ring: Open MPI (--allreduce {self.allreduce})"
                " cannot add it",
                hint="leave --allreduce out",
            )
        if self.stall_timeout_seconds < self.stall_warning_seconds:
            raise ConfigError(
                f"--stall-timeout-seconds ({self.stall_timeout_seconds:g}) is below"
                f" --stall-warning-seconds ({self.stall_warning_seconds:g})"
            )

    @property
    def bucket_bytes(self) -> int:
        # PowerSGD with 32 instead of 4: 0.24 s a step instead of 0.27, as a bucket takes two
        # all-reduces however small they are (ResNet-18, ImageNet stem, four emulated boards).
        default = 32 if self.compression == "powersgd" else 4
        return int((self.bucket_mib or default) * 2**20)

    def to_json(self) -> dict[str, Any]:
        """All options as JSON values."""
        return {name: _json_value(value) for name, value in asdict(self).items()}

    def shared_options(self) -> dict[str, Any]:
        """The options that must be the same on all ranks."""
        return {name: v for name, v in self.to_json().items() if name not in LOCAL_OPTIONS}


def _json_value(value: Any) -> Any:
    """As it comes back from a JSON file."""
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
