"""The cached Debian roots: complete or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.emulate import rootfs
from cluster.errors import ClusterError

SUITE, ARCH = "bookworm", rootfs.host_arch()


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace debootstrap; it runs without namespaces, which need root."""
    path = tmp_path / "script"
    monkeypatch.setattr(rootfs, "SCRIPT", path)
    monkeypatch.setattr(rootfs, "ISOLATED", ())
    return path


def test_a_root_gets_its_name_when_it_is_complete(script: Path, tmp_path: Path) -> None:
    folder = tmp_path / "roots"
    script.write_text('echo "I: Retrieving x"; mkdir "$3"; ls "$(dirname "$3")" >"$3/seen"\n')
    rootfs.make_root(SUITE, ARCH, folder)
    root = rootfs.root_path(SUITE, ARCH, folder)
    assert f"{root.name}.new\n" in (root / "seen").read_text()
    assert [path.name for path in folder.iterdir()] == [root.name]
    script.write_text("exit 1\n")
    rootfs.make_root(SUITE, ARCH, folder)  # cached


def test_each_stage_is_printed_once(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ("I: Retrieving a", "I: Retrieving b", "I: Unpacking a", "I: Unpacking b")
    script.write_text('mkdir "$3"\n' + "".join(f"echo '{line}'\n" for line in lines))
    rootfs.make_root(SUITE, ARCH, tmp_path / "roots")
    said = capsys.readouterr().out.splitlines()[1:]
    assert said == ["  downloading packages", "  unpacking packages"]


def test_a_failure_shows_debootstraps_output(script: Path, tmp_path: Path) -> None:
    folder = tmp_path / "roots"
    script.write_text('mkdir "$3"; echo "E: no mirror" >&2; exit 1\n')
    with pytest.raises(ClusterError, match=r"E: no mirror(.|\n)*\.log"):
        rootfs.make_root(SUITE, ARCH, folder)
    assert not rootfs.root_path(SUITE, ARCH, folder).exists()


def test_an_interrupted_root_is_discarded(script: Path, tmp_path: Path) -> None:
    folder = tmp_path / "roots"
    unfinished = folder / f"{SUITE}-{ARCH}.new"
    (unfinished / "half").mkdir(parents=True)
    script.write_text('mkdir "$3"\n')
    rootfs.make_root(SUITE, ARCH, folder)
    assert list(rootfs.root_path(SUITE, ARCH, folder).iterdir()) == []


def test_clean_removes_all(tmp_path: Path) -> None:
    folder = tmp_path / "edgeddl" / "roots"
    for name in ("bookworm-amd64", "trixie-arm64", "trixie-amd64.new"):
        (folder / name).mkdir(parents=True)
    assert rootfs.clean(folder) == ["bookworm-amd64", "trixie-arm64"]
    assert list(tmp_path.iterdir()) == []
    assert rootfs.clean(folder) == []


def test_programs_of_this_host_need_no_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rootfs.emulator(ARCH) == ""
    monkeypatch.setattr(rootfs, "host_arch", lambda: "arm64")
    with pytest.raises(ClusterError, match="amd64 machines are not supported on an arm64 host"):
        rootfs.emulator("amd64")


def test_a_kernel_without_binfmt_misc_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rootfs, "emulator", lambda arch: "/usr/bin/qemu")

    def refuse(*command: str) -> str:
        raise ClusterError("mount: unknown filesystem type 'binfmt_misc'")

    monkeypatch.setattr(rootfs, "run", refuse)
    with pytest.raises(ClusterError, match=r"qemu cannot run arm64 programs(.|\n)*modprobe"):
        rootfs.check_arch("arm64")
