"""Metrics of whole runs over threads, scraped while they run."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from edgeddl.comm.local import run_ranks
from edgeddl.config import TrainConfig
from edgeddl.errors import EdgeddlError
from edgeddl.metrics import names
from edgeddl.run_format import PHASES
from edgeddl.training.extensions import live_page
from edgeddl.training.extensions.live_page import LivePage, read_page
from edgeddl.training.runner import run_training
from edgeddl.training.step_window import WINDOW_STEPS, StepWindow
from edgeddl.training.stop import StopRequest
from edgeddl.training.telemetry import RankStep
from tests.support import check_with_promtool, free_ports
from tests.unit.training.test_equivalence import NORMALISED, latest_arrays
from tests.unit.training.training_runs import OPTIONS, train

Samples = dict[tuple[str, ...], float]


class Running:
    """A run that goes on until it is stopped."""

    def __init__(self, port: int) -> None:
        self.port = port

    def fetch(self, path: str, rank: int = 0) -> bytes:
        url = f"http://127.0.0.1:{self.port + rank}{path}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.read()

    def scrape(self, rank: int = 0) -> Samples:
        """Values by name and by labels other than the run and the scraped rank."""
        return parse(self.fetch("/metrics", rank).decode())

    def wait_for(self, ready: Callable[[], Any]) -> Any:
        """A true answer, as soon as there is one; a test that hangs is reported."""
        while not (answer := ready()):
            time.sleep(0.1)
        return answer


def parse(text: str) -> Samples:
    return {
        (sample.name, *(v for k, v in sorted(sample.labels.items()) if k not in names.RANK)): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@contextmanager
def running(folder: Path, ranks: int, **options: Any) -> Iterator[Running]:
    port, stop = free_ports(ranks), StopRequest()
    endless = {"epochs": 10_000, "limit_test": 8, "metrics_port": port, "run_dir": folder / "a-run"}
    config = TrainConfig(**OPTIONS | endless | options)

    def work() -> None:
        run_ranks(ranks, lambda communicator: run_training(config, communicator, stop=stop))

    with ThreadPoolExecutor(1) as pool:
        ended: Future[None] = pool.submit(work)
        try:
            run = Running(port)
            run.wait_for(lambda: listens(port) or ended.done())
            yield run
        finally:
            stop.received = True
            ended.result()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_what_each_rank_and_the_cluster_tell(tmp_path: Path) -> None:
    with running(tmp_path, 2, compression="fp16") as run:
        for rank in (0, 1):
            run.wait_for(lambda rank=rank: run.scrape(rank).get((names.EPOCH.name,), 0) > 1)
        first, second = run.scrape(0), run.scrape(1)
        texts = [run.fetch("/metrics", rank) for rank in (0, 1)]
    assert 'edgeddl_steps_total{host="thread-0",rank="0",run="a-run"}' in texts[0].decode()
    for values in (first, second):
        steps = values[names.STEPS.name,]
        # A scrape may fall between two values of one step.
        assert steps >= 4 and values[names.SAMPLES.name,] > 7 * (steps - 1)
        assert 0 <= values[names.ACCURACY.name,] <= 1
        assert abs(values[f"{names.STEP_SECONDS.name}_count",] - steps) <= 1
        for phase in PHASES:
            assert values[f"{names.PHASE_SECONDS.name}_count", phase] >= 1
        assert 1.8 < values[names.COMPRESSION_RATIO.name,] <= 2  # whole blocks
        assert values[names.SENT_BYTES.name,] > 0
        summed, timed = names.ALLREDUCES.name, f"{names.BUCKET_SECONDS.name}_count"
        assert abs(values[summed,] - values[timed,]) <= 1
        assert values[names.RESIDENT_BYTES.name,] > 1e7
        assert 0 < values[names.EPOCH.name,] < values[names.PLANNED_EPOCHS.name,] == 10_000
        assert values[names.STEP.name,] < values[names.PLANNED_STEPS.name,]
    assert first[names.WORLD_SIZE.name,] == 2
    assert 0 < first[names.CLUSTER_EFFICIENCY.name,] <= 1
    assert first[names.CHECKPOINT_AGE.name,] >= 0
    assert first[names.CHECKPOINT_TIME.name,] == pytest.approx(time.time(), abs=600)
    assert (names.WORLD_SIZE.name,) not in second and (names.CHECKPOINT_AGE.name,) not in second
    for text in texts:
        check_with_promtool(text)


def test_one_rank_has_nothing_to_tell_of_communication(tmp_path: Path) -> None:
    with running(tmp_path, 1) as run:
        values = run.wait_for(lambda: (v := run.scrape()).get((names.STEPS.name,), 0) > 3 and v)
    assert (names.SENT_BYTES.name,) not in values and (names.COMPRESSION_RATIO.name,) not in values
    assert values[names.STRAGGLER_SECONDS.name,] == 0


@pytest.mark.parametrize("options", [{"communicator": "naive"}, {"local_steps": 2}])
def test_bytes_of_other_ways_to_communicate(tmp_path: Path, options: dict[str, Any]) -> None:
    with running(tmp_path, 2, **options) as run:
        run.wait_for(lambda: run.scrape().get((names.SENT_BYTES.name,), 0) > 0)


def test_every_metric_of_a_rank_is_told(tmp_path: Path) -> None:
    """A name that nobody fills would be an empty panel."""
    with running(tmp_path, 2) as run:
        run.wait_for(lambda: (names.ACCURACY.name,) in run.scrape())
        run.wait_for(lambda: (names.CHECKPOINT_TIME.name,) in run.scrape())
        told = {name for name, *_ in run.scrape()}
    expected = {m.name for m in names.ALL if m.kind != "histogram" and "_node_" not in m.name}
    assert expected <= told


def test_a_run_takes_the_same_course_with_metrics_and_resumed(tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": NORMALISED, "epochs": 3}
    without = train(tmp_path / "without", 2, **options)
    metered = {**options, "metrics_port": free_ports(2)}
    train(tmp_path / "with", 2, **metered, max_steps=5)
    resumed = train(tmp_path / "with", 2, **metered, resume="auto")
    assert resumed["step_losses"] == without["step_losses"]
    one, other = latest_arrays(tmp_path / "without"), latest_arrays(tmp_path / "with")
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_the_environment_may_give_the_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_ports(2)
    monkeypatch.setenv("EDGEDDL_METRICS_PORT", str(port))
    with socket.create_server(("127.0.0.1", port + 1)), pytest.raises(EdgeddlError) as caught:
        train(tmp_path / "on", 2)
    assert "rank 1's metrics" in str(caught.value)
    with socket.create_server(("127.0.0.1", port + 1)):
        train(tmp_path / "off", 2, metrics_port=0)


def test_nothing_is_left_of_the_server_when_a_run_has_ended(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    port = free_ports(2)
    train(tmp_path, 2, metrics_port=port)
    assert not listens(port) and not listens(port + 1)
    left = set(threading.enumerate()) - before
    assert "edgeddl-metrics" not in [thread.name for thread in left]


def test_a_port_in_use_names_the_rank_and_ends_all_ranks(tmp_path: Path) -> None:
    port = free_ports(3)
    with socket.create_server(("127.0.0.1", port + 2)), pytest.raises(EdgeddlError) as caught:
        train(tmp_path, 3, metrics_port=port)
    assert f"cannot listen on port {port + 2} of 127.0.0.1" in str(caught.value)
    assert "rank 2's metrics" in str(caught.value) and "another --metrics-port" in str(caught.value)
    assert not listens(port)


def test_a_scrape_during_a_slow_step_is_answered_within_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step ends only when it was scraped."""
    entered, scraped = threading.Event(), threading.Event()

    def slow_forward(self: Any, x: Any) -> Any:
        entered.set()
        assert scraped.wait(timeout=250)
        return forward(self, x)

    from tests.models import TinyNet

    forward = TinyNet.forward
    with running(tmp_path, 1) as run:
        run.wait_for(lambda: run.scrape().get((names.STEPS.name,), 0) > 3)
        monkeypatch.setattr(TinyNet, "forward", slow_forward)
        assert entered.wait(timeout=250)
        before = run.scrape()[names.STEPS.name,]
        assert run.scrape()[names.STEPS.name,] == before
        scraped.set()


def test_the_live_pages_data(tmp_path: Path) -> None:
    with running(tmp_path, 2) as run:
        live = run.wait_for(
            lambda: len((v := json.loads(run.fetch("/live.json")))["history"]["step"]) > 5 and v
        )
        page = run.fetch("/").decode()
    assert live["run"] == "a-run" and len(live["ranks"]) == 2
    assert live["ranks"][1]["host"] == "thread-1"
    assert set(live["ranks"][0]["phase_shares"]) == set(PHASES)
    assert all(len(series) == len(live["history"]["step"]) for series in live["history"].values())
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")  # nothing from elsewhere


def test_the_pages_policy_lets_only_the_page_itself_run() -> None:
    policy = read_page().headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


def steps_of(*busy: float, wait: float = 0.0, images: int = 8) -> tuple[RankStep, ...]:
    """A step whose ranks are busy for so long, and wait for the slowest and a bit more."""
    seconds = max(busy) + wait
    return tuple(
        RankStep(seconds=seconds, forward=one, allreduce_wait=seconds - one, images=images)
        for one in busy
    )


def test_figures_of_window_steps() -> None:
    window = StepWindow()
    window.add((RankStep(), RankStep()))  # before the first step
    assert len(window) == 0
    for _ in range(3):
        window.add(steps_of(1.0, 2.0, wait=2.0))
    assert window.images_per_second == 4
    assert window.images_per_second_by_rank == [2, 2]
    assert window.images_per_second_alone == [8, 4]
    assert window.efficiency == pytest.approx(4 / 12)
    assert window.busy_seconds == [1, 2]
    assert window.slowest_rank == 1
    assert window.phase_shares[0] == {
        "data": 0, "forward": 0.25, "backward": 0, "allreduce_wait": 0.75, "update": 0,
    }  # fmt: skip


def test_the_slowest_rank_is_the_one_that_waits_least() -> None:
    """Rank 0 writes files between steps: in no step's time, but the others wait for it."""
    window = StepWindow()
    window.add(
        (
            RankStep(seconds=1.0, forward=0.9, allreduce_wait=0.1, images=8),
            RankStep(seconds=1.5, forward=1.0, allreduce_wait=0.5, images=8),
        )
    )
    assert window.slowest_rank == 0


def test_old_steps_are_forgotten() -> None:
    window = StepWindow()
    window.add(steps_of(100.0))
    for _ in range(WINDOW_STEPS):
        window.add(steps_of(1.0))
    assert window.images_per_second == 8


def test_the_history_stays_short_and_covers_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_page, "HISTORY_POINTS", 10)
    page, window = LivePage("run", ["host"]), StepWindow()
    window.add(steps_of(1.0))
    for step in range(1, 1001):
        page.add({"step": step, "accuracy": step / 1000}, float(step), window)
    history = json.loads(page.pages()["/live.json"]().body)["history"]
    assert 5 <= len(history["step"]) <= 10
    gaps = np.diff(history["step"])
    assert len(set(gaps)) == 1 and 1000 - history["step"][-1] < gaps[0]
    assert history["accuracy"] == [step / 1000 for step in history["step"]]
    assert history["temperature_celsius"] == [[None]] * len(history["step"])


def test_before_the_first_step_the_page_has_its_run() -> None:
    answer = LivePage("run", ["host"]).pages()["/live.json"]()
    assert json.loads(answer.body)["run"] == "run"
