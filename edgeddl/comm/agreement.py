"""Checks before the first step that all ranks run the same thing, and fails on all together.

Ranks with different models, data or options would hang or, worse, train nonsense.
"""

from __future__ import annotations

import hashlib
import json
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from edgeddl.comm.communicator import Communicator
from edgeddl.errors import INTERRUPTED, EdgeddlError, RankDisagreement
from edgeddl.log import logger

Result = TypeVar("Result")


def check_agreement(
    communicator: Communicator, facts: Mapping[str, str], may_differ: Collection[str] = ()
) -> None:
    """Raise RankDisagreement on every rank unless these facts are the same on all of them.

    Facts that only change how results are rounded may differ; that is a warning.
    """
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    if len(set(communicator.allgather(digest))) == 1:
        return
    everybody = communicator.allgather(dict(facts))
    names = sorted({name for one in everybody for name in one})
    differing = [n for n in names if len({one.get(n) for one in everybody}) > 1]
    lines = [describe_values(name, [one.get(name) for one in everybody]) for name in differing]
    differences = "\n  ".join([*lines, describe_hosts(communicator)])
    if set(differing) <= set(may_differ):
        if communicator.rank == 0:
            logger.warning("ranks may differ in the last bits of results:\n  %s", differences)
        return
    error = RankDisagreement(
        f"ranks do not run the same thing:\n  {differences}",
        hint="start all ranks with the same options, versions, kernels and data",
    )
    error.on_all_ranks = True
    raise error


def describe_hosts(communicator: Communicator) -> str:
    """The host of each rank."""
    where = ", ".join(f"{rank}: {host}" for rank, host in enumerate(communicator.hosts))
    return f"hosts by rank: {where}"


def describe_values(name: str, values: Sequence[str | None]) -> str:
    """One line for one fact, e.g. "option lr: 0.1 on ranks 0-2, 0.2 on rank 3"."""
    distinct = dict.fromkeys(values)
    parts = (
        f"{'absent' if value is None else value} on"
        f" {describe_ranks([rank for rank, other in enumerate(values) if other == value])}"
        for value in distinct
    )
    return f"{name}: " + ", ".join(parts)


def describe_ranks(ranks: Sequence[int]) -> str:
    """Ascending rank numbers as text, e.g. "ranks 0-2, 5"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    text = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"rank{'s' if len(ranks) > 1 else ''} {text}"


def together(communicator: Communicator, work: Callable[[], Result]) -> Result:
    """Run `work` on every rank; if it fails on some ranks, every rank raises.

    A missing file on one board then causes one message and an orderly end, not a hanging job.
    """
    failure: EdgeddlError | None = None
    try:
        result = work()
    except EdgeddlError as error:
        failure = error
    failures = communicator.allgather(failure and (failure.exit_code, str(failure)))
    if not any(failures):
        return result
    messages = [one and one[1] for one in failures]
    if failure is None or len(set(messages)) > 1:
        failure = _joint_error(communicator, messages)
        failure.exit_code = next(one[0] for one in failures if one)
    failure.on_all_ranks = True
    raise failure


def run_as_rank(communicator: Communicator, work: Callable[[], int]) -> int:
    """Run all the work of a rank; returns its exit code.

    Rank 0 reports an error of all ranks once. An unexpected error of one rank is reported with its
    traceback and ends the others.
    """
    try:
        return work()
    except EdgeddlError as error:
        if not error.on_all_ranks:
            logger.error("%s", error)
            communicator.abort(error.exit_code)
        if communicator.rank == 0:
            logger.error("%s", error)
        return error.exit_code
    except KeyboardInterrupt:  # the second request to stop, which is immediate
        communicator.abort(INTERRUPTED)
    except BaseException:
        logger.error("ended by an exception\n%s", traceback.format_exc())
        communicator.abort(1)


def _joint_error(communicator: Communicator, messages: Sequence[str | None]) -> EdgeddlError:
    """All messages with their ranks, if they differ."""
    distinct = [message for message in dict.fromkeys(messages) if message]
    ranks_of = {m: [rank for rank, one in enumerate(messages) if one == m] for m in distinct}
    return EdgeddlError(
        "\n".join(
            f"{describe_ranks(ranks)} ({', '.join(communicator.hosts[r] for r in ranks)}): {text}"
            for text, ranks in ranks_of.items()
        )
    )
