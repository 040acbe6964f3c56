"""`mpirun -np N python -m edgeddl.train --metrics-port` as its user meets it."""

from __future__ import annotations

import os
import socket
import time
import urllib.request
from pathlib import Path

import pytest

from tests.support import REPOSITORY, check_with_promtool, free_ports, mpi_job, mpirun

pytestmark = pytest.mark.mpi

TRAIN = (
    "-m", "edgeddl.train", "--dataset", "shapes", "--limit-train", "60", "--limit-test", "30",
    "--batch-size", "8", "--model", "tests.models:TinyNet",
)  # fmt: skip
ENVIRONMENT = {"PYTHONPATH": str(REPOSITORY)}


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return answer.read().decode()


def scrape_when_it_steps(port: int) -> str:
    """The first scrape that tells of steps; a test that hangs is reported."""
    while True:
        try:
            if "edgeddl_cluster_images_per_second{" in (text := scrape(port)):
                return text
        except OSError:  # does not listen yet
            pass
        time.sleep(0.1)


def test_each_rank_listens_on_its_own_port(tmp_path: Path) -> None:
    port = free_ports(2)
    options = ("--epochs", "100000", "--metrics-port", str(port), "--progress", "none")
    with mpi_job(2, *TRAIN, *options, cwd=tmp_path, env=ENVIRONMENT):
        first = scrape_when_it_steps(port)
        second = scrape(port + 1)
    host, run = os.uname().nodename, "tests.models-TinyNet-shapes"
    for rank, text in enumerate((first, second)):
        assert f'edgeddl_steps_total{{host="{host}",rank="{rank}",run="{run}"}}' in text
    assert "edgeddl_world_size" in first and "edgeddl_world_size" not in second
    check_with_promtool(first.encode())


def test_a_port_in_use_is_one_message_and_an_orderly_end(tmp_path: Path) -> None:
    port = free_ports(2)
    with socket.create_server(("127.0.0.1", port + 1)):
        done = mpirun(2, *TRAIN, "--metrics-port", str(port), cwd=tmp_path, env=ENVIRONMENT)
    assert done.returncode == 2
    assert f"cannot listen on port {port + 1} of 127.0.0.1" in done.stderr
    assert "rank 1's metrics" in done.stderr and "hint: " in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("the port is in use") == 1


def test_a_network_none_of_whose_addresses_is_ours(tmp_path: Path) -> None:
    options = ("--metrics-port", str(free_ports(2)), "--metrics-address", "203.0.113.0/24")
    done = mpirun(2, *TRAIN, *options, cwd=tmp_path, env=ENVIRONMENT)
    assert done.returncode == 2
    assert "has no address in the network 203.0.113.0/24" in done.stderr
    assert done.stderr.count("has no address") == 1
