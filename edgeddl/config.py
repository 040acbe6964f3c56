"""All options of a training run, each defined once.

Each field of TrainConfig is a command-line option (`--batch-size`) and a key of the configuration
file (`batch-size = 32`); `options` reads both. Only this module reads EDGEDDL_* environment
variables.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from edgeddl.errors import ConfigError
from edgeddl.kernel_builds import BUILD_NAMES
from edgeddl.registry import ALGORITHMS, DATASETS, EXCHANGES, MODELS, POLICIES, STEMS

MODEL_AND_DATA = "model and data"
OPTIMIZATION = "optimisation"
COMMUNICATION = "communication"
RUN = "run and output"

Fit = Literal["crop", "pad"]
FITS: tuple[Fit, ...] = get_args(Fit)
ScheduleKind = Literal["constant", "cosine", "step", "one-cycle"]
ScalingRule = Literal["linear", "none"]

# These may differ between ranks; all other options must be the same on all ranks.
LOCAL_OPTIONS = (
    "data_dir",
    "threads",
    "run_dir",
    "summary",
    "progress",
    "resume",
    "init_from",
    "tensorboard",
    "mlflow",
    "metrics_address",
)

# `--resume auto` continues only runs whose values match those given on the command line.
MODEL_OPTIONS = ("model", "stem", "dataset")

# A resumed run does not inherit these from the run it continues.
START_OPTIONS = (
    "max_steps",
    "threads",
    "resume",
    "run_dir",
    "summary",
    "timeline",
    "timeline_steps",
    "progress",
    "extension",
    "tensorboard",
    "mlflow",
    "metrics_port",
    "metrics_address",
    "stall_warning_seconds",
    "stall_timeout_seconds",
    "memory_check",
)

# A resumed run inherits these unless they are given. All remaining options cannot change, because
# they define the model, the training recipe and the images.
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
    """Folder of the data sets: --data-dir, else $EDGEDDL_DATA, else None (the default folder)."""
    environment = os.environ.get("EDGEDDL_DATA")
    return data_dir or (Path(environment) if environment else None)


def state_folder() -> Path:
    """Folder of results that are kept between runs: $EDGEDDL_STATE, or the user's state folder."""
    if environment := os.environ.get("EDGEDDL_STATE"):
        return Path(environment)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local/state") / "edgeddl"


# auto: the native kernels, or the NumPy reference if there are none for this machine.
KERNEL_CHOICES = ("auto", "native", "reference", "chainer")


def kernel_choice() -> str:
    """The kernels selected by $EDGEDDL_KERNELS."""
    return _from_environment("EDGEDDL_KERNELS", KERNEL_CHOICES) or "auto"


def kernel_build() -> str | None:
    """The build of the native kernels selected by $EDGEDDL_CPU; None selects by processor."""
    return _from_environment("EDGEDDL_CPU", BUILD_NAMES)


def metrics_address(option: str | None) -> str:
    """Address of the exporters: the option, else $EDGEDDL_METRICS_ADDRESS, else loopback."""
    return option or os.environ.get("EDGEDDL_METRICS_ADDRESS") or "127.0.0.1"


def metrics_port(option: int | None) -> int | None:
    """First port of the ranks' metrics: the option, else $EDGEDDL_METRICS_PORT; None: off."""
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


# System timeouts overflow above 9.2e9 seconds, and no option needs larger numbers.
LARGEST_NUMBER = 10**9
LARGEST_SEED = 2**63 - 1


def _number(
    kind: type, minimum: float, *, above: bool = False, maximum: int = LARGEST_NUMBER
) -> Any:
    """A parser for numbers within limits, for argparse and for configuration files."""

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
    if not text:  # an unset shell variable; Path("") would be the current folder
        raise ValueError("expected a path")
    return Path(text)


def _address(text: str) -> str:
    if not text:  # a socket would bind to all addresses
        raise ValueError("expected an address, or a network such as 10.42.0.0/24")
    return text


def parse_image_size(value: str | int) -> tuple[int, int]:
    """Height and width from "64" (both) or "64x48" (width x height, as sizes are written)."""
    try:
        sides = [_number(int, 1, maximum=10_000)(side) for side in str(value).split("x")]
    except ValueError:
        sides = []
    if len(sides) not in (1, 2):
        raise ValueError("expected a size such as 64, or 64x48 (width x height)")
    return sides[-1], sides[0]


def _image_size(value: str | int) -> str:
    parse_image_size(value)
    return str(value)


def parse_test_fraction(value: str | float) -> float:
    """A number between 0 and 1."""
    fraction = float(value)
    if not 0 < fraction < 1:
        raise ValueError("expected a number above 0 and below 1")
    return fraction


def _dataset(name: str) -> str:
    """A known data set, a prefix with a path, the path of a pack, or the place of a callable."""
    _prefix, colon, rest = name.partition(":")
    if not (name in DATASETS or (colon and rest) or "/" in name):
        raise ValueError(
            f"expected {', '.join(DATASETS)}, folder:PATH, pack:PATH or package.module:callable"
        )
    return name


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


def _policy(name: str) -> str:
    """A registered policy, or the place of the user's own, which is imported later."""
    if name not in POLICIES and ":" not in name:
        raise ValueError(f"expected {', '.join(POLICIES)}, or package.module:Policy")
    return name


def _extension(value: str | Sequence[str]) -> tuple[str, ...]:
    """One place on the command line, a list of them in a file."""
    places = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(place, str) and ":" in place for place in places):
        raise ValueError("expected package.module:callable")
    return places


def _uri(text: str) -> str:
    if not text:  # MLflow would use its default, a file in the current folder
        raise ValueError("expected the address of a server, or sqlite:///FILE.db")
    return text


@dataclass(frozen=True)
class TrainConfig:
    """The options of a training run."""

    model: str = _option(
        "resnet18",
        MODEL_AND_DATA,
        f"network: {', '.join(MODELS)}, or package.module:callable for your own model",
    )
    stem: str = _option(
        "cifar",
        MODEL_AND_DATA,
        "first layers of the network: cifar (3x3 convolution, for small images) or imagenet (7x7"
        " convolution with stride 2, then max pooling)",
        choices=STEMS,
    )
    dataset: str = _option(
        "cifar10",
        MODEL_AND_DATA,
        f"data set to train on: {', '.join(DATASETS)} (generated images, no download needed),"
        " folder:PATH (your own pictures, one folder per class), pack:PATH (made by `edgeddl data"
        " pack`) or package.module:callable",
        type=_dataset,
        metavar="NAME",
    )
    image_size: str | None = _option(
        None,
        MODEL_AND_DATA,
        "size of the images of folder:PATH and shapes: N pixels, or width x height (default: 32"
        " for shapes and for pictures up to 64 pixels, else 224)",
        type=_image_size,
        metavar="N|WxH",
    )
    fit: Fit = _option(
        "crop",
        MODEL_AND_DATA,
        "how pictures of folder:PATH become --image-size: crop (remove edges) or pad (add black"
        " borders)",
        choices=FITS,
    )
    test_fraction: float = _option(
        0.1,
        MODEL_AND_DATA,
        "part of the pictures of folder:PATH that is used for tests, if it has no folder test or"
        " val",
        type=parse_test_fraction,
        metavar="X",
    )
    data_dir: Path | None = _option(
        None,
        MODEL_AND_DATA,
        "folder or archive that contains the data set (default: $EDGEDDL_DATA, or else the cache"
        " folder)",
        type=_path,
        metavar="DIR",
    )
    limit_train: int | None = _option(
        None, MODEL_AND_DATA, "train on only the first N images, e.g. for a quick test", **_COUNT
    )
    limit_test: int | None = _option(
        None, MODEL_AND_DATA, "evaluate on only the first N test images", **_COUNT
    )
    augment: bool = _option(
        True,
        MODEL_AND_DATA,
        "augment training images: random crops and flips; for large ones also colour jitter",
    )
    cutout: int = _option(
        0,
        MODEL_AND_DATA,
        "augment training images with a random square of N x N pixels set to the mean colour; 0"
        " disables it",
        type=_number(int, 0),
        metavar="N",
    )

    epochs: int = _option(30, OPTIMIZATION, "number of passes over the training images", **_COUNT)
    max_steps: int | None = _option(
        None,
        OPTIMIZATION,
        "stop after N steps; the learning-rate schedule still covers all --epochs",
        **_COUNT,
    )
    batch_size: int = _option(
        32,
        OPTIMIZATION,
        "images per micro-batch on each rank; reduce it if a rank runs out of memory",
        **_COUNT,
    )
    accumulation: int = _option(
        1,
        OPTIMIZATION,
        "micro-batches per step, whose gradients are added up; the global batch is batch size x"
        " accumulation x ranks",
        **_COUNT,
    )
    balance: str | tuple[float, ...] = _option(
        "even",
        OPTIMIZATION,
        "how the global batch is split: even (equal shares), auto (by measured speed, for boards of"
        " different speed), or a list with the relative speed of each rank, such as 1,1,0.5",
        type=_balance,
        metavar="even|auto|W,W",
    )
    lr: float = _option(
        0.025, OPTIMIZATION, "learning rate for the batch of one rank, before scaling", **_POSITIVE
    )
    lr_scaling: ScalingRule = _option(
        "linear",
        OPTIMIZATION,
        "how --lr is scaled to the global batch: linear (times ranks x accumulation) or none",
        choices=get_args(ScalingRule),
    )
    schedule: ScheduleKind = _option(
        "cosine",
        OPTIMIZATION,
        "how the learning rate changes over the run: constant, cosine (falls to 0), step (drops at"
        " --step-at) or one-cycle (rises until 30 % of the run, then falls to 0)",
        choices=get_args(ScheduleKind),
    )
    warmup_epochs: float | None = _option(
        None,
        OPTIMIZATION,
        "epochs over which the learning rate rises from --lr to the scaled rate (default: 1, or a"
        " tenth of --epochs if that is less)",
        **_NOT_NEGATIVE,
    )
    step_at: tuple[float, ...] = _option(
        (0.5, 0.75),
        OPTIMIZATION,
        "for --schedule step: fractions of the run at which the learning rate drops",
        type=_fractions,
        metavar="F,F",
    )
    step_factor: float = _option(
        0.1,
        OPTIMIZATION,
        "for --schedule step: factor by which the learning rate drops",
        **_POSITIVE,
    )
    momentum: float = _option(0.9, OPTIMIZATION, "momentum of SGD", **_NOT_NEGATIVE)
    nesterov: bool = _option(False, OPTIMIZATION, "use Nesterov momentum")
    weight_decay: float = _option(
        5e-4,
        OPTIMIZATION,
        "weight decay; not applied to biases and batch normalisation",
        **_NOT_NEGATIVE,
    )
    label_smoothing: float = _option(
        0.0, OPTIMIZATION, "probability that is spread evenly over all classes", **_NOT_NEGATIVE
    )
    seed: int = _option(
        0,
        OPTIMIZATION,
        "seed for the initial parameters, the order of the images and the augmentation",
        type=_number(int, 0, maximum=LARGEST_SEED),
        metavar="N",
    )

    communicator: str = _option(
        "bucketed",
        COMMUNICATION,
        "how gradients are summed: bucketed (in buckets, while backward still runs) or naive (one"
        " blocking all-reduce per parameter, for comparison)",
        choices=tuple(EXCHANGES),
    )
    allreduce: str = _option(
        "auto",
        COMMUNICATION,
        "all-reduce algorithm: ring (pipelined, over TCP sockets), mpi (Open MPI, polled between"
        " sleeps), stock (Open MPI, which keeps a core busy) or auto (chosen by bucket size and"
        " measured links)",
        choices=("auto", *ALGORITHMS),
    )
    bucket_mib: float | None = _option(
        None,
        COMMUNICATION,
        "size of a gradient bucket in MiB (default: 4, or 32 with --compression powersgd)",
        **_POSITIVE,
    )
    compression: str = _option(
        "none",
        COMMUNICATION,
        "how gradients are sent: none (float32), fp16 (half precision, half the bytes), powersgd"
        " (low-rank factors, far fewer bytes) or package.module:Policy of your own; use it if the"
        " network limits the speed",
        type=_policy,
        metavar="|".join([*POLICIES, "package.module:Policy"]),
    )
    compression_rank: int = _option(
        4,
        COMMUNICATION,
        "for --compression powersgd: rank of the factors; a higher rank is more accurate and sends"
        " more",
        **_COUNT,
    )
    local_steps: int = _option(
        1,
        COMMUNICATION,
        "steps that each rank takes on its own before parameters and momentum are averaged; use"
        " more than 1 if the network is slow",
        **_COUNT,
    )
    stall_warning_seconds: float = _option(
        60.0, COMMUNICATION, "warn about ranks that do not respond for X seconds", **_POSITIVE
    )
    stall_timeout_seconds: float = _option(
        600.0, COMMUNICATION, "end the job if a rank does not respond for X seconds", **_POSITIVE
    )

    threads: int | None = _option(
        None, RUN, "compute threads per rank (default: cores of the host / its ranks)", **_COUNT
    )
    require_linpack: bool = _option(
        False, RUN, "refuse to start unless every host has passed `edgeddl linpack`"
    )
    memory_check: str = _option(
        "refuse",
        RUN,
        "what to do if the predicted memory of a rank exceeds the memory of its host: refuse to"
        " start, or warn",
        choices=("refuse", "warn"),
    )
    eval_every: int = _option(1, RUN, "evaluate after every N epochs", **_COUNT)
    checkpoint_every: int | None = _option(
        None, RUN, "write a checkpoint every N steps (default: after each epoch)", **_COUNT
    )
    keep_checkpoints: int = _option(
        3, RUN, "keep the latest N checkpoints and the best one", **_COUNT
    )
    resume: str = _option(
        "never",
        RUN,
        "continue a run with its options: auto (the newest unfinished run in runs/) or the path of"
        " a run folder or checkpoint; never starts a new run",
        metavar="auto|never|PATH",
    )
    init_from: Path | None = _option(
        None,
        RUN,
        "start a new run with the parameters of a checkpoint, or of a run folder (its best.npz)",
        type=_path,
        metavar="PATH",
    )
    run_dir: Path | None = _option(
        None,
        RUN,
        "run folder, for checkpoints, logs and results (default: runs/MODEL-DATASET)",
        type=_path,
        metavar="DIR",
    )
    summary: Path | None = _option(
        None, RUN, "write the summary to this file as well", type=_path, metavar="FILE.json"
    )
    timeline: Path | None = _option(
        None,
        RUN,
        "write a trace of a few steps with the layers, all-reduces and waits of each rank; open it"
        " at ui.perfetto.dev",
        type=_path,
        metavar="FILE.json",
    )
    timeline_steps: int = _option(
        3, RUN, "steps to trace with --timeline, after two warm-up steps", **_COUNT
    )
    progress: str = _option(
        "auto",
        RUN,
        "how rank 0 shows progress: bar, lines, none, or auto (bar on a terminal, lines in a log)",
        choices=("auto", "bar", "lines", "none"),
    )
    extension: Sequence[str] = _option(
        (),
        RUN,
        "call your own code after every step and epoch; the callable returns an Extension; may be"
        " given several times",
        type=_extension,
        action="extend",
        metavar="package.module:callable",
    )
    tensorboard: Path | None = _option(
        None,
        RUN,
        "write losses, accuracy and speed to this folder for TensorBoard",
        type=_path,
        metavar="DIR",
    )
    mlflow: str | None = _option(
        None,
        RUN,
        "record options, losses, accuracy and speed in MLflow: address of a tracking server, or"
        " sqlite:///FILE.db",
        type=_uri,
        metavar="URI",
    )
    metrics_port: int | None = _option(
        None,
        RUN,
        "serve Prometheus metrics, and a live page on rank 0; the ranks of a host use the ports N,"
        " N+1, ...; 0 turns metrics off (default: $EDGEDDL_METRICS_PORT, or else off)",
        type=_number(int, 0),
        metavar="N",
    )
    metrics_address: str | None = _option(
        None,
        RUN,
        "address for metrics, or a network such as 10.42.0.0/24 to use each host's address in it"
        " (default: $EDGEDDL_METRICS_ADDRESS, or else 127.0.0.1)",
        type=_address,
        metavar="ADDRESS",
    )

    def __post_init__(self) -> None:
        if not self.resume:
            raise ConfigError("--resume must be auto, never or a path, but is empty")
        try:
            _dataset(self.dataset)
        except ValueError as error:
            raise ConfigError(f"--dataset {self.dataset!r}: {error}") from None
        for option in fields(self):
            choices = option.metadata["argument"].get("choices")
            if choices and getattr(self, option.name) not in choices:
                value = getattr(self, option.name)
                raise ConfigError(
                    f"{option.name} must be one of {', '.join(choices)}, not {value!r}"
                )
        if self.label_smoothing >= 1:
            raise ConfigError(f"--label-smoothing must be below 1, not {self.label_smoothing}")
        if self.momentum >= 1:
            raise ConfigError(f"--momentum must be below 1, not {self.momentum}")
        if self.nesterov and self.momentum == 0:
            raise ConfigError("--nesterov needs a --momentum above 0")
        if self.stall_timeout_seconds < self.stall_warning_seconds:
            raise ConfigError(
                f"--stall-timeout-seconds ({self.stall_timeout_seconds:g}) is below"
                f" --stall-warning-seconds ({self.stall_warning_seconds:g})"
            )

    def to_json(self) -> dict[str, Any]:
        """All options as JSON values."""
        return {name: _json_value(value) for name, value in asdict(self).items()}

    def shared_options(self) -> dict[str, Any]:
        """The options that must be the same on all ranks."""
        return {name: v for name, v in self.to_json().items() if name not in LOCAL_OPTIONS}


def _json_value(value: Any) -> Any:
    """The value that reading it back from JSON would give."""
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
