"""Installation of Debian packages, with fakes of apt-get and systemctl that log their arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.emulate import debian_packages
from cluster.emulate.debian_packages import install, missing_packages
from cluster.errors import ClusterError


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    policy = tmp_path / "policy-rc.d"
    note = f'if [ -x {policy} ]; then off=off; fi; echo "${{0##*/}} $* $off" >>{tmp_path}/calls'
    for name, code in (("apt-get", 0), ("systemctl", 1)):
        (folder / name).write_text(f"#!/bin/sh\n{note}\nexit {code}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(debian_packages, "POLICY", policy)
    return folder


def test_services_are_neither_started_nor_enabled(tools: Path) -> None:
    install(["openssh-server", "shellcheck"])
    calls = (tools.parent / "calls").read_text()
    update, apt, *others = (line.split() for line in calls.splitlines())
    assert update[-2:] == ["update", "off"]
    assert apt[-3:] == ["openssh-server", "shellcheck", "off"]
    assert "--no-install-recommends" in apt
    assert [words[:3] for words in others] == [
        ["systemctl", "disable", "ssh.service"],
        ["systemctl", "disable", "ssh.socket"],
    ]
    assert not debian_packages.POLICY.exists()


def test_an_existing_policy_is_kept(tools: Path) -> None:
    debian_packages.POLICY.write_text("its own")
    install(["shellcheck"])
    assert debian_packages.POLICY.read_text() == "its own"


def test_only_missing_packages_are_installed(tools: Path) -> None:
    needed = {"apt-get": "apt", "hpcc": "hpcc libopenblas0-pthread", "gcc": "gcc"}
    assert missing_packages(needed) == ["gcc", "hpcc", "libopenblas0-pthread"]


def test_a_failure_shows_apts_output_and_removes_the_policy(tools: Path) -> None:
    (tools / "apt-get").write_text("#!/bin/sh\necho 'E: no network' >&2\nexit 100\n")
    with pytest.raises(ClusterError, match="apt-get update: E: no network"):
        install(["shellcheck"])
    assert not debian_packages.POLICY.exists()
