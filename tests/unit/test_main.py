"""python -m edgeddl, as its user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from edgeddl.__main__ import main


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


def test_no_command_is_an_error() -> None:
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2


def test_a_service_does_not_carry_what_other_commands_need() -> None:
    code = (
        "import sys; from edgeddl.__main__ import build_parser\n"
        "build_parser(['exporter']).parse_args(['exporter'])\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    imported = done.stdout.split()
    assert "edgeddl.metrics.exporter" in imported
    assert not {"numpy", "chainer", "matplotlib"} & set(imported)
