"""Debian roots that machines share: made once by debootstrap, then kept.

A root is made under another name and gets its own when it is whole, so what was interrupted is
never taken for a root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from cluster.emulate import folder_lock, host_settings
from cluster.emulate.host_command import run, succeeds
from cluster.errors import ClusterError

FOLDER = Path("/var/cache/edgeddl/roots")
SCRIPT = Path(__file__).with_name("debian_root.sh")
BINFMT = SCRIPT.with_name("binfmt.sh")
EMULATOR = "qemu-aarch64-static"
UNFINISHED = ".new"
# So that a script ends with this process, whatever ends that: its processes by the death signal and
# their namespace, its mounts by theirs.
ISOLATED = (
    "setpriv", "--pdeathsig", "KILL",
    "unshare", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child",
)  # fmt: skip
# What debootstrap says at the beginning of its lines, and what we say once for each.
STAGES = {
    "I: Retrieving": "downloading packages",
    "I: Extracting": "extracting the base",
    "I: Unpacking": "unpacking packages",
    "I: Configuring": "configuring packages",
}


def root_path(suite: str, arch: str, folder: Path = FOLDER) -> Path:
    return folder / f"{suite}-{arch}"


def host_arch() -> str:
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    return names.get(os.uname().machine, os.uname().machine)


def emulator(arch: str) -> str:
    """The path of the emulator that runs programs of this architecture here, or nothing."""
    if arch == host_arch():
        return ""
    if arch != "arm64":
        raise ClusterError(f"machines of {arch} do not run on {host_arch()}")
    return shutil.which(EMULATOR) or f"/usr/bin/{EMULATOR}"


def check_arch(arch: str) -> None:
    """Raise if programs of this architecture cannot be run here."""
    if qemu := emulator(arch):
        try:
            run("unshare", "--mount", "sh", str(BINFMT), "add", "edgeddl-check", qemu)
            unregister_binfmt("edgeddl-check")
        except ClusterError as error:
            raise ClusterError(
                f"{arch} programs cannot be run here by qemu: {error}",
                hint="the kernel needs binfmt_misc: modprobe binfmt_misc",
            ) from None


def unregister_binfmt(name: str) -> None:
    """Take back what machines have registered with the kernel."""
    # where the kernel knows no such thing, nothing was registered
    succeeds("unshare", "--mount", "sh", str(BINFMT), "remove", name)


def make_root(suite: str, arch: str, folder: Path = FOLDER) -> None:
    """Make the root, unless it is there; says what it does, since it takes minutes."""
    with _locked(folder):
        root = root_path(suite, arch, folder)
        if root.exists():
            return
        check_arch(arch)
        _discard_unfinished(folder)
        print(f"making Debian {suite} for {arch}: once, takes some minutes", flush=True)
        unfinished = root.with_name(root.name + UNFINISHED)
        log = folder / f"{root.name}.log"
        _debootstrap(suite, arch, unfinished, log)
        unfinished.rename(root)
        log.unlink()


def clean(folder: Path = FOLDER) -> list[str]:
    """Remove all roots; returns their names."""
    if not folder.exists():
        return []
    with _locked(folder):
        _discard_unfinished(folder)
        names = sorted(path.name for path in folder.iterdir() if path.is_dir())
        shutil.rmtree(folder)
    with contextlib.suppress(OSError):  # something else is cached there
        folder.parent.rmdir()
    return names


def _debootstrap(suite: str, arch: str, target: Path, log: Path) -> None:
    mirror = host_settings.debian_mirrors()[0]
    script = ("sh", str(SCRIPT), suite, arch, str(target), mirror, emulator(arch))
    code = _run_and_tell((*ISOLATED, *script), log)
    if emulator(arch):
        unregister_binfmt("edgeddl-root")
    if code:
        words = "; ".join(log.read_text().splitlines()[-3:])
        raise ClusterError(
            f"no Debian {suite} for {arch}: {words}",
            hint=f"is {mirror} to be reached from here? All it said is in {log}",
        )


def _run_and_tell(command: Sequence[str], log: Path) -> int:
    """Run to the end, telling which stage it is at; the exit code."""
    unsaid = dict(STAGES)
    with (
        log.open("w") as output,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            output.write(line)
            if stage := unsaid.pop(" ".join(line.split()[:2]), None):
                print(f"  {stage}", flush=True)
    return process.returncode


def _discard_unfinished(folder: Path) -> None:
    for path in folder.glob(f"*{UNFINISHED}"):
        shutil.rmtree(path)


def _locked(folder: Path) -> AbstractContextManager[None]:
    """One root is made at a time; who comes second finds it made."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder_lock.locked(folder)
