"""Checks that all ranks have the same parameters and use them in the same order.

Ranks add gradients by their position in a bucket. A model whose layers depend on the rank would add
gradients of different parameters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from edgeddl.comm.agreement import describe_hosts, describe_values
from edgeddl.comm.bucket import ParameterSpec
from edgeddl.comm.communicator import Communicator
from edgeddl.errors import RankDisagreement

MOST_LINES = 8


def check_parameters(communicator: Communicator, specs: Sequence[ParameterSpec]) -> None:
    """Raise RankDisagreement on every rank unless parameters and their order are the same."""
    digest = hashlib.sha256(repr(specs).encode()).hexdigest()
    if len(set(communicator.allgather(digest))) == 1:
        return
    lines = differences(communicator.allgather(list(specs)))
    error = RankDisagreement(
        "the model is not the same on all ranks:\n  "
        + "\n  ".join([*lines, describe_hosts(communicator)]),
        hint="build the same layers on every rank, freeze the same ones, and call them in the same"
        " order: none of this may depend on rank, host, time or random numbers",
    )
    error.on_all_ranks = True
    raise error


def differences(by_rank: Sequence[Sequence[ParameterSpec]]) -> list[str]:
    """The parameters that differ, with their ranks; if none differs, the first of another order."""
    found = [{spec.name: _describe(spec) for spec in specs} for specs in by_rank]
    names = dict.fromkeys(name for specs in found for name in specs)
    differing = [name for name in names if len({specs.get(name) for specs in found}) > 1]
    if not differing:
        return [_describe_order([[spec.name for spec in specs] for specs in by_rank])]
    lines = [
        describe_values(f"parameter {name}", [specs.get(name) for specs in found])
        for name in differing[:MOST_LINES]
    ]
    left = len(differing) - len(lines)
    return [*lines, f"and {left} more parameters"] if left else lines


def _describe(spec: ParameterSpec) -> str:
    return f"{spec.shape} {spec.use}"


def _describe_order(by_rank: Sequence[Sequence[str]]) -> str:
    places = enumerate(zip(*by_rank, strict=True))
    place = next(place for place, names in places if len(set(names)) > 1)
    name = f"gradient {place + 1} of {len(by_rank[0])} in the order of the backward pass"
    return describe_values(name, [names[place] for names in by_rank])
