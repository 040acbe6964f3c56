"""python -m edgeddl linpack, with small real runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from edgeddl.__main__ import main
from edgeddl.errors import ConfigError, LinpackError
from edgeddl.linpack import cli
from edgeddl.linpack.blas import find_blas
from edgeddl.linpack.cluster import node_command, read_hosts
from edgeddl.linpack.hpcc import PROGRAMS, SYSTEM_PATH, cluster_network
from edgeddl.linpack.record import check_passed, parse_record

needs_hpcc = pytest.mark.skipif(
    not all(shutil.which(name, path=SYSTEM_PATH) for name in PROGRAMS) or not find_blas(),
    reason="Debian's hpcc is not installed: apt install hpcc libopenblas0-pthread",
)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEDDL_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def test_numpys_engine(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "figures.json"
    arguments = ["linpack", "--size", "500", "--repeats", "2", "--threads", "1"]
    assert main([*arguments, "--output", str(output)]) == 0
    assert "500 equations" in capsys.readouterr().out
    value = json.loads(output.read_text())
    assert json.loads((state / "linpack.json").read_text()) == value
    assert (value["engine"], value["n"], value["threads"]) == ("numpy", 500, 1)
    assert value["passed"] and 0 < value["residual"] < 16
    assert value["gflops"] >= value["median_gflops"] > 0
    assert value["verdict"] == "unknown"  # such a short run says nothing
    assert parse_record(value).to_json() == value


def test_the_size_follows_from_memory(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--memory-mib", "64", "--memory-fraction", "0.5", "--repeats", "1", "--json"]
    assert main(["linpack", *arguments]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["n"] == 1408  # two matrices of 15.1 MiB
    assert value["memory_bytes"] == 64 * 2**20


@needs_hpcc
def test_hpls_engine(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = min(find_blas(), key=lambda blas: blas.name != "openblas")
    arguments = ["--engine", "hpl", "--size", "600", "--threads", "1", "--blas", best.name]
    assert main(["linpack", *arguments]) == 0
    assert "STREAM" in capsys.readouterr().out
    value = json.loads((state / "linpack.json").read_text())
    assert (value["engine"], value["n"], value["blas"]) == ("hpl", 600, best.name)
    assert value["passed"] and value["gflops"] > 0 and value["stream"]["copy"] > 0


def test_without_hpcc_the_error_lists_the_packages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("edgeddl.linpack.hpcc.SYSTEM_PATH", "/nowhere")
    assert main(["linpack", "--engine", "hpl", "--size", "100"]) == 2
    assert "apt install hpcc" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--size", "0"], "--size must be above 0"),
        (["--memory-fraction", "1.5"], "--memory-fraction must be"),
        (["--threads", "-1"], "--threads must be above 0"),
        (["--hosts", "pi-01,pi-01"], "distinct host names"),
        (["--hosts", "-oProxyCommand=x"], "distinct host names"),
        (["--hostfile", "/nowhere"], "No such file"),
        (["--size", "1000000000"], "not enough memory"),
    ],
)
def test_wrong_options(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if arguments[0] == "--hosts" and arguments[1].startswith("-"):
        arguments = [f"--hosts={arguments[1]}"]
    assert main(["linpack", *arguments]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert "Traceback" not in error


def test_an_output_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["linpack", "--size", "50", "--repeats", "1", "--output", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "cannot be written" in said and "solving" not in said  # before minutes of work


def test_a_state_folder_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDGEDDL_STATE", "/proc/nowhere")
    assert main(["linpack", "--size", "50", "--repeats", "1"]) == 2
    said = capsys.readouterr().err
    assert "set EDGEDDL_STATE" in said and "solving" not in said


def test_a_sick_machine_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a machine whose peak is far above the measured speed."""
    monkeypatch.setattr("edgeddl.linpack.verdict.SHORTEST_SECONDS", 0.0)
    monkeypatch.setattr("edgeddl.linpack.verdict.ALONE_SHARE", 0.0)  # others may use this one
    monkeypatch.setattr("edgeddl.linpack.processor.Processor.peak_gflops", lambda *_: 1e6)
    assert main(["linpack", "--size", "200", "--repeats", "1"]) == 4
    assert "sick" in capsys.readouterr().out
    with pytest.raises(LinpackError, match="sick on"):
        check_passed(json.loads((state / "linpack.json").read_text())["host"])


def test_a_node_that_cannot_be_reached_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    if not shutil.which("ssh"):
        pytest.skip("ssh is not installed")
    hosts = "localhost,nowhere.invalid"
    assert main(["linpack", "--hosts", hosts, "--size", "100", "--repeats", "1"]) == 4
    output = capsys.readouterr().out
    assert "nowhere.invalid: no result" in output
    assert "not measured" in output


def keep(state: Path, **changes: Any) -> str:
    """Write a changed record of this machine; returns its host."""
    main(["linpack", "--size", "50", "--repeats", "1", "--json"])
    value = json.loads((state / "linpack.json").read_text())
    (state / "linpack.json").write_text(json.dumps(value | changes))
    return value["host"]


def test_a_passed_stage(state: Path) -> None:
    host = keep(state)
    assert check_passed(host).host == host


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"verdict": "sick", "causes": ["wrong BLAS"]}, "sick on .*wrong BLAS"),
        ({"passed": False}, "sick"),
        ({"host": "pi-99"}, "another machine: pi-99"),
        ({"cores": 1000}, "another machine"),
        ({"format": 2}, "format 2, not 1"),
        ({"stream": 1}, "not a record of a LINPACK run"),
    ],
)
def test_a_record_that_does_not_pass(state: Path, changes: dict[str, Any], complaint: str) -> None:
    host = keep(state, **changes)
    with pytest.raises(LinpackError, match=complaint):
        check_passed(host)


def test_hosts_of_a_hostfile(tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text("# boards\npi-01 slots=1\n\npi-02 slots=1 # new\n")
    assert read_hosts(None, hostfile) == ["pi-01", "pi-02"]
    assert read_hosts("pi-01, pi-02", None) == ["pi-01", "pi-02"]
    hostfile.write_text("# nobody\n")
    with pytest.raises(ConfigError):
        read_hosts(None, hostfile)


def test_ssh_is_used_only_for_other_nodes() -> None:
    assert node_command("localhost", ["--size", "9"])[0] == "env"
    far = node_command("pi-02", ["--size", "9"])
    assert far[0] == "ssh" and far[-2] == "pi-02"
    assert far[-1].endswith("-m edgeddl linpack --size 9 --json")
    assert not any("StrictHostKeyChecking" in word for word in far)


def test_the_clusters_network_by_the_environments_settings(tmp_path: Path) -> None:
    assert cluster_network(tmp_path) is None
    (tmp_path / "etc").mkdir()
    settings = "btl = self,sm,tcp\nbtl_tcp_if_include = 10.0.0.0/24\n"
    (tmp_path / "etc/openmpi-mca-params.conf").write_text(settings)
    assert cluster_network(tmp_path) == "10.0.0.0/24"


def test_all_of_a_nodes_options_are_passed_on() -> None:
    parser = cli.argparse.ArgumentParser()
    cli.add_arguments(parser)
    given = ["--engine", "hpl", "--size", "9", "--memory-mib", "5", "--blas", "blis"]
    passed = cli._node_arguments(parser.parse_args(given))
    assert parser.parse_args(passed) == parser.parse_args(given)
