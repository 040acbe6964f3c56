"""Policies: what all of them promise, and how --compression finds them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeddl.comm.arena import Arena
from edgeddl.comm.bucket import ParameterSpec, plan_buckets
from edgeddl.comm.communicator import Communicator, optimal_bytes
from edgeddl.comm.local import SingleCommunicator, run_ranks
from edgeddl.comm.make_exchange import bucket_bytes, make_exchange
from edgeddl.comm.policies import find_policy
from edgeddl.config import TrainConfig
from edgeddl.errors import ConfigError
from edgeddl.options import parse_train_options
from edgeddl.registry import EXCHANGES, POLICIES
from tests.support import REPOSITORY, FakeStep

OWN = "docs.examples.round_robin:RoundRobin"
SPECS = [ParameterSpec("W", (40, 30), (0, 1)), ParameterSpec("b", (31,), (0,))]


def take_step(ranks: Communicator, **options: str) -> tuple[np.ndarray, int]:
    """The gradients after a step, and the bytes that were sent."""
    arena = Arena(plan_buckets(SPECS, 1000))
    exchange = make_exchange(TrainConfig(**options), ranks, arena, {})
    exchange.open()
    exchange.begin_step(FakeStep())
    rng = np.random.default_rng(ranks.rank)
    exchange.sink.begin_backward()
    exchange.sink.end_backward(
        {spec.name: rng.normal(size=spec.shape).astype(np.float32) for spec in SPECS}
    )
    for _ in exchange.ready_ranges():
        pass
    exchange.close()
    return arena.gradients, exchange.bytes_sent


@pytest.mark.parametrize("communicator", EXCHANGES)
@pytest.mark.parametrize("compression", [*POLICIES, OWN])
def test_one_rank_sends_nothing_and_changes_nothing(compression: str, communicator: str) -> None:
    found, sent = take_step(
        SingleCommunicator(), compression=compression, communicator=communicator
    )
    expected, _ = take_step(SingleCommunicator(), communicator="naive")
    np.testing.assert_array_equal(found, expected)
    assert sent == 0


@pytest.mark.parametrize("communicator", EXCHANGES)
@pytest.mark.parametrize("compression", [*POLICIES, OWN])
def test_all_ranks_get_the_same_bits_and_send_the_declared_bytes(
    compression: str, communicator: str
) -> None:
    options = {"compression": compression, "communicator": communicator}
    results = run_ranks(3, lambda ranks: take_step(ranks, **options))
    assert len({gradients.tobytes() for gradients, _ in results}) == 1
    arena = Arena(plan_buckets(SPECS, 1000))
    exchange = make_exchange(TrainConfig(**options), SingleCommunicator(), arena, {})
    declared = sum(optimal_bytes(size, 3) for size in exchange.payloads())
    assert results[0][1] == pytest.approx(declared, abs=20)  # each message is rounded


def test_bucket_sizes_follow_the_policy() -> None:
    assert bucket_bytes(TrainConfig()) == 4 << 20
    assert bucket_bytes(TrainConfig(compression="powersgd")) == 32 << 20
    assert bucket_bytes(TrainConfig(compression="powersgd", bucket_mib=1)) == 1 << 20


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("docs.examples.absent:Policy", "there is no module 'docs.examples.absent'"),
        (
            "docs.examples.round_robin:Absent",
            "'Absent' in module docs.examples.round_robin does not",
        ),
        ("docs.examples.round_robin:optimal_bytes", "expected a subclass of"),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused(name: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        find_policy(name)


def test_options_accept_registered_policies_and_places() -> None:
    for name in (*POLICIES, OWN):
        assert parse_train_options(["--compression", name]).compression == name
    with pytest.raises(ConfigError, match="expected none, fp16, powersgd, or package"):
        parse_train_options(["--compression", "zip"])


def test_the_example_is_short() -> None:
    lines = Path(REPOSITORY, "docs/examples/round_robin.py").read_text().splitlines()
    assert len(lines) < 40
