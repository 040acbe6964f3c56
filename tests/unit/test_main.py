"""The command python -m edgeddl."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from edgeddl.__main__ import main
from tests.support import REPOSITORY


def test_info_as_table_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    table = capsys.readouterr().out
    assert "chainer" in table and "MiB" in table and "throttling" in table
    assert main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["chainer"] == "7.8.1"
    assert facts["cores"] >= 1
    assert facts["memory"]["total_bytes"] > facts["memory"]["available_bytes"] > 0
    assert "temperature_celsius" in facts["sensors"]


def test_absent_data_is_a_message_and_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "check", "cifar10", "--data-dir", str(tmp_path)]) == 2
    assert "data fetch cifar10" in capsys.readouterr().err


def test_a_mirror_that_cannot_be_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["data", "fetch", "cifar10", "--data-dir", str(tmp_path)]
    assert main([*arguments, "--url", "http://127.0.0.1:9/nothing"]) == 2
    assert "http://127.0.0.1:9/nothing" in capsys.readouterr().err


def test_the_environment_says_where_data_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEDDL_DATA", str(tmp_path / "from-environment"))
    assert main(["data", "check", "cifar10"]) == 2
    assert "from-environment" in capsys.readouterr().err


def test_an_unknown_model_is_reported_before_missing_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", "--model", "resnet81", "--data-dir", str(tmp_path / "absent")]
    assert main([*arguments, "--run-dir", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "did you mean resnet18?" in said and "absent" not in said


def test_no_command_is_an_error() -> None:
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["report", "runs/x", "--ouput", "y"], "did you mean --output?"),
        (["info", "--jsn"], "did you mean --json?"),
        (["bench", "allreduce", "--szies", "4K"], "did you mean --sizes?"),
    ],
)
def test_a_misspelt_option_of_a_command(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert hint in capsys.readouterr().err


COMMANDS = (
    [str(Path(sys.executable).parent / "edgeddl")],
    [sys.executable, "-m", "edgeddl"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=("edgeddl", "python -m edgeddl"))
def test_the_command_trains_and_reports(command: list[str], tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    train = "train --model resnet9 --dataset shapes --limit-train 8 --limit-test 4 --batch-size 4"
    words = [*train.split(), "--epochs", "1", "--max-steps", "1", "--threads", "1"]
    done = subprocess.run([*command, *words, "--run-dir", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1 thread" in done.stdout
    done = subprocess.run([*command, "report", folder, "--json"], capture_output=True, text=True)
    assert json.loads(done.stdout)["runs"][0]["status"] == "finished"


def test_the_command_train_limits_threads_before_numpy_is_imported() -> None:
    """BLAS reads the variable only once, when NumPy is imported."""
    code = (
        "import sys, os; from edgeddl import machine; from edgeddl.__main__ import main\n"
        "machine.limit_threads = lambda threads: print('numpy' in sys.modules, threads)\n"
        "main(['train', '--threads', '3', '--balance', '1,1'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("False 3"), done.stderr


@pytest.mark.parametrize("module", ["edgeddl", "edgeddl.train"])
def test_without_its_packages_a_command_names_the_environment(module: str) -> None:
    """As with the system's Python in a clone; -S hides installed packages."""
    command = [sys.executable, "-S", "-m", module, "info"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 1
    assert "tqdm" in done.stderr and ".venv/bin/activate" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("module", ["cluster.monitoring", "cluster.inventory_file"])
def test_without_its_packages_a_tool_of_clusters_names_the_environment(module: str) -> None:
    command = [sys.executable, "-S", "-m", module]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 1
    assert "PyYAML" in done.stderr and ".venv/bin/activate" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_service_does_not_import_modules_of_other_commands() -> None:
    code = (
        "import sys; from edgeddl.__main__ import build_parser\n"
        "build_parser(['exporter']).parse_args(['exporter'])\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    imported = done.stdout.split()
    assert "edgeddl.metrics.exporter" in imported
    assert not {"numpy", "chainer", "matplotlib"} & set(imported)
