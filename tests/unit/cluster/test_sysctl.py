"""Settings of the host that clusters sysctl on, and put back."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.emulate.sysctl import Sysctl


@pytest.fixture
def sysctl(tmp_path: Path) -> Sysctl:
    return Sysctl(tmp_path / "setting", tmp_path / "marker")


def test_it_is_put_back(sysctl: Sysctl) -> None:
    sysctl.setting.write_text("0\n")
    sysctl.enable()
    sysctl.enable()  # for a second cluster
    assert sysctl.setting.read_text().strip() == "1"
    sysctl.restore()
    assert sysctl.setting.read_text().strip() == "0" and not sysctl.marker.exists()


def test_what_others_have_switched_on_stays(sysctl: Sysctl) -> None:
    sysctl.setting.write_text("1\n")
    sysctl.enable()
    sysctl.restore()
    assert sysctl.setting.read_text() == "1\n"


def test_a_kernel_without_it_is_left_alone(sysctl: Sysctl) -> None:
    sysctl.enable()
    sysctl.restore()
    assert not sysctl.setting.exists() and not sysctl.marker.exists()


def test_a_host_that_refused_is_no_hindrance_later(sysctl: Sysctl) -> None:
    sysctl.setting.write_text("0\n")
    sysctl.marker.touch()  # and then writing failed
    sysctl.restore()
    assert sysctl.setting.read_text() == "0\n" and not sysctl.marker.exists()
