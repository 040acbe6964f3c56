"""What options choose by name.

Options are parsed before NumPy is imported, because BLAS reads its number of threads at its import.
So a registry maps a name to text, "module:attribute", and `load` imports it later.
"""

from __future__ import annotations

import importlib
from typing import Any

from edgeddl.errors import ConfigError

# --model: called with the number of classes, the name of the stem, a random generator and the
# channels of an image
MODELS = {
    "resnet18": "edgeddl.models.resnet18:ResNet18",
    "resnet9": "edgeddl.models.resnet9:ResNet9",
}
# --stem: of the models that have a choice
STEMS = ("cifar", "imagenet")
# --dataset: functions that turn a data.source.Request into a data.source.Source
DATASETS = {
    "cifar10": "edgeddl.data.cifar10:describe",
    "cifar100": "edgeddl.data.cifar100:describe",
    "mnist": "edgeddl.data.mnist:describe_mnist",
    "fashion-mnist": "edgeddl.data.mnist:describe_fashion_mnist",
    "shapes": "edgeddl.data.shapes:describe",
}
# --dataset PREFIX:PATH: likewise
DATASET_PREFIXES = {
    "folder": "edgeddl.data.own_pictures:describe_folder",
    "pack": "edgeddl.data.own_pictures:describe_pack",
}
# --compression: subclasses of comm.policies.Policy
POLICIES = {
    "none": "edgeddl.comm.policies.full:FullPrecision",
    "fp16": "edgeddl.comm.policies.half:HalfPrecision",
    "powersgd": "edgeddl.comm.policies.powersgd:PowerSGD",
}
# --communicator: subclasses of comm.exchange.GradientExchange
EXCHANGES = {
    "bucketed": "edgeddl.comm.bucketed:BucketedExchange",
    "naive": "edgeddl.comm.naive:NaiveExchange",
}
# --allreduce, besides auto: edgeddl's ring over sockets; Open MPI's algorithm, polled between
# sleeps; Open MPI's algorithm with its own busy waiting
ALGORITHMS = ("ring", "mpi", "stock")

# of an extension (training.loop.Extension)
EXTENSION_METHODS = ("on_step", "on_epoch", "on_pause")


def load(what: str, place: str) -> Any:
    """Import "package.module:attribute"; `what` names the option in errors."""
    module_name, _, attribute = place.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), attribute]):
        raise ConfigError(f'{what} must be "package.module:callable", not {place!r}')
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        own = module_name == error.name or module_name.startswith(f"{error.name}.")
        wanted = "" if own else f", which {module_name} imports"
        hint = "run from the folder that holds it, or set PYTHONPATH" if own else "install it"
        raise ConfigError(
            f"{what} {place}: there is no module {error.name!r}{wanted}", hint=hint
        ) from error
    found = getattr(module, attribute, None)
    if not callable(found):
        problem = "is not callable" if hasattr(module, attribute) else "does not exist"
        raise ConfigError(f"{what} {place}: {attribute!r} in module {module_name} {problem}")
    return found


def check_extension(name: str, extension: object) -> None:
    """Raise unless this is an Extension (training.loop)."""
    missing = [method for method in EXTENSION_METHODS if not hasattr(extension, method)]
    if missing:
        raise ConfigError(
            f"extension {name}: {type(extension).__name__} has no method {', '.join(missing)}",
            hint=f"an extension has the methods {', '.join(EXTENSION_METHODS)}",
        )
