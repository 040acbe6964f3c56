"""What a run finds out about its links before the first step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import ThreadCommunicator, run_ranks
from edgeddl.comm.make_exchange import check_exchange_options
from edgeddl.comm.model import LinkModel
from edgeddl.comm.tuning import NEVER, RingFrom
from edgeddl.config import TrainConfig
from edgeddl.errors import ConfigError
from edgeddl.training import forecast
from edgeddl.training.banner import render_banner
from edgeddl.training.forecast import (
    choose_allreduce,
    make_forecast,
    measure_computing,
    share_by_speed,
)
from edgeddl.training.prepared_run import PreparedRun
from edgeddl.training.resume import continue_run
from edgeddl.training.startup import prepare_run
from edgeddl.training.statistics import RunningStatistics
from tests.unit.training.test_equivalence import NORMALISED
from tests.unit.training.training_runs import OPTIONS, train


def prepare(folder: Path, ranks: Communicator, **options: Any) -> PreparedRun:
    given = OPTIONS | {"run_dir": folder, "model": NORMALISED} | options
    return prepare_run(continue_run(TrainConfig(**given), None, ranks), ranks)


def look(run: PreparedRun) -> forecast.Forecast | None:
    """All that a run finds out, as its start does."""
    allreduce, image_seconds = choose_allreduce(run), measure_computing(run)
    share_by_speed(run, image_seconds)
    return make_forecast(run, allreduce, image_seconds)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that pass for hosts, whose links suit the ring from 4 KiB on."""
    monkeypatch.setattr(ThreadCommunicator, "medium", "network")
    monkeypatch.setattr(forecast, "choose_ring_from", lambda communicator: RingFrom(4096))


@pytest.mark.usefixtures("network")
def test_all_ranks_see_the_same_and_nothing_is_changed_by_it(tmp_path: Path) -> None:
    def work(communicator: Communicator) -> tuple[forecast.Forecast | None, bool]:
        run = prepare(tmp_path, communicator)
        statistics = RunningStatistics(run.model)
        before, parameters = statistics.flat(), run.arena.parameters.copy()
        found = look(run)
        same = np.array_equal(before, statistics.flat())
        return found, same and np.array_equal(parameters, run.arena.parameters)

    (first, untouched), *others = run_ranks(3, work)
    assert first is not None
    assert untouched
    assert all(other == (first, True) for other in others)
    assert first.compute_seconds > 0
    assert first.share == pytest.approx(first.allreduce_seconds / first.compute_seconds)


@pytest.mark.usefixtures("network")
def test_the_banner_says_it(tmp_path: Path) -> None:
    def work(communicator: Communicator) -> str:
        run = prepare(tmp_path, communicator)
        return render_banner(run, [("host", "cpu", 1)] * 2, look(run))

    line = next(line for line in run_ranks(2, work)[0].splitlines() if " link " in line)
    assert "ring from 4 KiB on" in line
    assert "% of the compute time of" in line


@pytest.mark.usefixtures("network")
def test_the_banner_has_an_eta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs of 4 steps of 16 images, each with an evaluation of 30 images."""
    monkeypatch.setattr(forecast, "_image_seconds", lambda run: 0.9)

    def work(communicator: Communicator) -> tuple[float | None, str]:
        run = prepare(tmp_path, communicator)
        image_seconds = measure_computing(run)
        eta = forecast.remaining_seconds(run, image_seconds, None)
        return eta, render_banner(run, [("host", "cpu", 1)] * 2, remaining_seconds=eta)

    seconds, banner = run_ranks(2, work)[0]
    assert seconds == pytest.approx(8 * 8 * 0.9 + 2 * 30 / 16 * 8 * 0.9 / 3)
    assert "ETA            about 67 seconds, until " in banner


def test_what_backward_does_not_hide_makes_a_step_longer() -> None:
    def step_seconds(allreduce: float, hidden_part: float) -> float:
        link = LinkModel(turn_seconds=1e-4, bytes_per_second=1e8)
        return forecast.Forecast(link, "mpi", allreduce, 3.0, hidden_part).step_seconds

    assert step_seconds(1.0, 2 / 3) == 3.0
    assert step_seconds(2.5, 2 / 3) == 3.5
    assert step_seconds(1.0, 0.0) == 4.0


@pytest.fixture
def slow_rank_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that takes three times as long for an image as the others."""
    monkeypatch.setattr(
        forecast, "_image_seconds", lambda run: 0.3 if run.communicator.rank == 1 else 0.1
    )


@pytest.mark.parametrize(
    ("balance", "shares"),
    [("auto", [11, 3, 10]), ("even", [8, 8, 8]), ((1.0, 1.0, 2.0), [6, 6, 12])],
)
@pytest.mark.usefixtures("network", "slow_rank_1")
def test_auto_starts_from_what_was_measured(
    tmp_path: Path, balance: Any, shares: list[int]
) -> None:
    """And computing takes as long as the rank that is busy longest."""

    def work(communicator: Communicator) -> tuple[list[int], float]:
        run = prepare(tmp_path, communicator, balance=balance)
        found = look(run)
        assert found is not None
        return run.state.shares, found.compute_seconds

    busy = max(shares[0] * 0.1, shares[1] * 0.3, shares[2] * 0.1)
    assert run_ranks(3, work) == [(shares, pytest.approx(busy))] * 3


@pytest.mark.usefixtures("network", "slow_rank_1")
def test_auto_goes_on_with_shares_found_in_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Better figures than those of a few blank images, be they even or not."""
    train(tmp_path, 3, model=NORMALISED, balance="auto", max_steps=2)
    train(tmp_path / "even", 3, model=NORMALISED, max_steps=2)

    def work(communicator: Communicator) -> list[int]:
        run = prepare(tmp_path / "even", communicator, balance="auto", resume="auto")
        look(run)
        return run.state.shares

    assert run_ranks(3, work) == [[8, 8, 8]] * 3
    monkeypatch.setattr(forecast, "_image_seconds", lambda run: 0.1)
    resumed = train(tmp_path, 3, model=NORMALISED, balance="auto", max_steps=4, resume="auto")
    assert [rank["batch_share"] for rank in resumed["ranks"]] == [11, 3, 10]


@pytest.mark.parametrize("communicator", ["bucketed", "naive"])
@pytest.mark.parametrize("compression", ["none", "fp16", "powersgd"])
@pytest.mark.usefixtures("network")
def test_what_is_foreseen_is_what_is_sent(
    tmp_path: Path, compression: str, communicator: str
) -> None:
    """A link without latency that carries a byte a second: seconds are bytes."""
    options = {"compression": compression, "communicator": communicator, "compression_rank": 1}

    def work(ranks: Communicator) -> float:
        run = prepare(tmp_path / "foreseen", ranks, **options)
        return forecast._allreduce_seconds(run, LinkModel(0.0, 1.0))

    foreseen = run_ranks(2, work)[0]
    trained = train(tmp_path / "sent", 2, model=NORMALISED, **options, epochs=1)
    sent = trained["ranks"][0]["bytes_sent"] / trained["steps"]
    assert sent == pytest.approx(foreseen, rel=0.05, abs=64)


@pytest.mark.usefixtures("network")
def test_local_steps_share_what_a_meeting_takes(tmp_path: Path) -> None:
    """Parameters and momentum, over links that carry a byte a second."""

    def work(ranks: Communicator) -> tuple[float, int]:
        run = prepare(tmp_path, ranks, local_steps=4)
        seconds = forecast._allreduce_seconds(run, LinkModel(0.0, 1.0))
        return seconds, run.arena.parameters.nbytes

    seconds, parameter_bytes = run_ranks(2, work)[0]
    assert seconds == pytest.approx(2 * parameter_bytes / 4)


def test_where_there_are_no_links_nothing_is_measured(tmp_path: Path) -> None:
    def work(communicator: Communicator) -> object:
        run = prepare(tmp_path, communicator)
        return look(run), run.state.ring_from_bytes

    assert run_ranks(2, work) == [(None, None)] * 2


@pytest.mark.parametrize("algorithm", ["ring", "mpi", "stock"])
def test_an_algorithm_can_be_forced(tmp_path: Path, algorithm: str) -> None:
    plain = train(tmp_path / "plain", 3)
    forced = train(tmp_path / "forced", 3, allreduce=algorithm)
    np.testing.assert_allclose(forced["step_losses"], plain["step_losses"], rtol=1e-5)


@pytest.mark.usefixtures("network")
def test_half_precision_goes_round_the_ring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from where MPI's own messages had been chosen, which stays for full precision."""
    monkeypatch.setattr(forecast, "choose_ring_from", lambda communicator: RingFrom(NEVER))
    train(tmp_path, 2, model=NORMALISED, max_steps=2)

    def work(communicator: Communicator) -> tuple[int, str, int | None]:
        run = prepare(tmp_path, communicator, compression="fp16", resume="auto")
        return run.state.step, str(choose_allreduce(run)), run.state.ring_from_bytes

    assert run_ranks(2, work) == [(2, "ring", NEVER)] * 2
    with pytest.raises(ConfigError, match="needs the ring all-reduce") as caught:
        check_exchange_options(TrainConfig(compression="fp16", allreduce="mpi"))
    assert "remove --allreduce" in str(caught.value)


@pytest.mark.usefixtures("network")
def test_a_resumed_run_keeps_the_choice_of_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another choice would sum in another order, and make other bits."""
    options: dict[str, Any] = {"epochs": 2, "model": NORMALISED}
    straight = train(tmp_path / "straight", 3, **options)
    train(tmp_path / "resumed", 3, **options, max_steps=2)
    monkeypatch.setattr(forecast, "choose_ring_from", lambda communicator: RingFrom(NEVER))
    resumed = train(tmp_path / "resumed", 3, **options, resume="auto")
    assert resumed["step_losses"] == straight["step_losses"]


@pytest.mark.usefixtures("network")
def test_a_resumed_run_tries_again_to_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What kept neighbours apart may be gone; as long as it is not, the bits are the same."""
    options: dict[str, Any] = {"epochs": 2, "model": NORMALISED}
    with monkeypatch.context() as apart:
        apart.setattr(forecast, "choose_ring_from", lambda communicator: RingFrom(None))
        straight = train(tmp_path / "straight", 3, **options)
        train(tmp_path / "resumed", 3, **options, max_steps=2)
        resumed = train(tmp_path / "resumed", 3, **options, max_steps=4, resume="auto")
    assert resumed["step_losses"] == straight["step_losses"][:4]

    def work(communicator: Communicator) -> int | None:
        run = prepare(tmp_path / "resumed", communicator, resume="auto")
        choose_allreduce(run)
        return run.state.ring_from_bytes

    assert run_ranks(3, work) == [4096] * 3


def test_a_run_of_one_host_may_go_on_between_several(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    train(tmp_path, 2, model=NORMALISED, max_steps=2)
    request.getfixturevalue("network")

    def work(communicator: Communicator) -> int | None:
        run = prepare(tmp_path, communicator, resume="auto")
        choose_allreduce(run)
        return run.state.ring_from_bytes

    assert run_ranks(2, work) == [4096] * 2


@pytest.mark.usefixtures("network")
def test_other_ranks_choose_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What suits one host, or one rank, does not suit four boards."""
    monkeypatch.setattr(forecast, "choose_ring_from", lambda communicator: RingFrom(NEVER))
    train(tmp_path / "run", 2, model=NORMALISED, max_steps=2)
    monkeypatch.setattr(forecast, "choose_ring_from", lambda communicator: RingFrom(4096))

    def work(communicator: Communicator) -> int | None:
        run = prepare(tmp_path / "run", communicator, resume="auto")
        choose_allreduce(run)
        return run.state.ring_from_bytes

    assert run_ranks(3, work) == [4096] * 3
