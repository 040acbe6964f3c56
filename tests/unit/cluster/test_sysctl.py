"""Kernel settings that clusters enable and restore."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.emulate.sysctl import Sysctl


@pytest.fixture
def sysctl(tmp_path: Path) -> Sysctl:
    return Sysctl(tmp_path / "setting", tmp_path / "marker")


def test_the_setting_is_restored(sysctl: Sysctl) -> None:
    sysctl.setting.write_text("0\n")
    sysctl.enable()
    sysctl.enable()  # for a second cluster
    assert sysctl.setting.read_text().strip() == "1"
    sysctl.restore()
    assert sysctl.setting.read_text().strip() == "0" and not sysctl.marker.exists()


def test_a_setting_that_was_already_enabled_stays(sysctl: Sysctl) -> None:
    sysctl.setting.write_text("1\n")
    sysctl.enable()
    sysctl.restore()
    assert sysctl.setting.read_text() == "1\n"


def test_a_missing_setting_is_ignored(sysctl: Sysctl) -> None:
    sysctl.enable()
    sysctl.restore()
    assert not sysctl.setting.exists() and not sysctl.marker.exists()


def test_restore_after_a_failed_write(sysctl: Sysctl) -> None:
    sysctl.setting.write_text("0\n")
    sysctl.marker.touch()  # as if writing had failed
    sysctl.restore()
    assert sysctl.setting.read_text() == "0\n" and not sysctl.marker.exists()
