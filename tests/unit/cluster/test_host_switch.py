"""Settings of the host that clusters switch on, and put back."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.emulate.host_switch import HostSwitch


@pytest.fixture
def switch(tmp_path: Path) -> HostSwitch:
    return HostSwitch(tmp_path / "setting", tmp_path / "switched_on")


def test_it_is_put_back(switch: HostSwitch) -> None:
    switch.setting.write_text("0\n")
    switch.on()
    switch.on()  # for a second cluster
    assert switch.setting.read_text().strip() == "1"
    switch.off()
    assert switch.setting.read_text().strip() == "0" and not switch.switched_on.exists()


def test_what_others_have_switched_on_stays(switch: HostSwitch) -> None:
    switch.setting.write_text("1\n")
    switch.on()
    switch.off()
    assert switch.setting.read_text() == "1\n"


def test_a_kernel_without_it_is_left_alone(switch: HostSwitch) -> None:
    switch.on()
    switch.off()
    assert not switch.setting.exists() and not switch.switched_on.exists()


def test_a_host_that_refused_is_no_hindrance_later(switch: HostSwitch) -> None:
    switch.setting.write_text("0\n")
    switch.switched_on.touch()  # and then writing failed
    switch.off()
    assert switch.setting.read_text() == "0\n" and not switch.switched_on.exists()
