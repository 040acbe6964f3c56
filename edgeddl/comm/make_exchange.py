"""Builds the gradient exchange that the options of a run describe.

No other module distinguishes kinds of exchanges or policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgeddl.comm.arena import Arena
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.exchange import GradientExchange
from edgeddl.comm.local_steps import LocalSteps, OwnGradients
from edgeddl.comm.policies import find_policy
from edgeddl.config import TrainConfig
from edgeddl.errors import ConfigError
from edgeddl.registry import EXCHANGES, load


def check_exchange_options(config: TrainConfig) -> None:
    """Raise a ConfigError for options that exclude each other."""
    policy = find_policy(config.compression)
    if config.local_steps > 1 and config.compression != "none":
        raise ConfigError(
            f"--local-steps {config.local_steps} sends parameters, but"
            f" --compression {config.compression} can compress only gradients",
            hint="use only one of the two options",
        )
    if policy.needs_ring and config.allreduce not in ("auto", "ring"):
        raise ConfigError(
            f"--compression {config.compression} needs the ring all-reduce: Open MPI (--allreduce"
            f" {config.allreduce}) cannot add what it sends",
            hint="remove --allreduce, or use --allreduce ring",
        )


def bucket_bytes(config: TrainConfig) -> int:
    """The size of a bucket: --bucket-mib, or what suits the policy."""
    return int((config.bucket_mib or find_policy(config.compression).bucket_mib) * 2**20)


def make_exchange(
    config: TrainConfig,
    communicator: Communicator,
    arena: Arena,
    parameters: Mapping[str, Any],
    *,
    overlap_forward: bool = False,
) -> GradientExchange:
    """`overlap_forward`: every function of the model calls the read barrier."""
    make = load("communicator", EXCHANGES[config.communicator])
    if config.local_steps > 1:
        own = OwnGradients(arena.plan, config.compression_rank)
        return LocalSteps(make(communicator, arena, parameters, own), config.local_steps)
    policy = find_policy(config.compression)(arena.plan, config.compression_rank)
    return make(communicator, arena, parameters, policy, overlap_forward=overlap_forward)
