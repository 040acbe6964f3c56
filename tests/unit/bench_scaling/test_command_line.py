"""Invalid options are reported in one line, before any measurement."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_scaling.__main__ import check_options, make_parser, measure
from bench_scaling.launcher import LocalLauncher


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the last line of the error message for these options."""
    parser = make_parser()
    options = parser.parse_args(arguments)

    def start() -> None:
        check_options(parser, options)
        measure(parser, options, LocalLauncher())

    with pytest.raises(SystemExit) as ended:
        start()
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_a_folder_that_cannot_be_created(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert "file/x: Not a directory" in refused(capsys, "--output", f"{tmp_path}/file/x")


def test_results_that_are_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results.json").write_text("{")
    said = refused(capsys, "--output", str(tmp_path), "--resume", "--systems", "edgeddl")
    assert "results.json was not written by this benchmark, or is damaged" in said


def test_only_systems_that_are_not_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--output", str(tmp_path), "--systems", "torch")
    said = refused(capsys, *options, "--torch-python", str(tmp_path / "none"))
    assert said.endswith("PyTorch is not installed; --with-torch installs it")
