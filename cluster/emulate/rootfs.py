"""The Debian root file systems that machines share, created once by debootstrap and cached.

A root has a temporary name until it is complete, so an interrupted one is never used.
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
# A script ends with this process, even if that is killed: the death signal and the PID namespace
# end its processes, the mount namespace removes its mounts.
ISOLATED = (
    "setpriv", "--pdeathsig", "KILL",
    "unshare", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child",
)  # fmt: skip
# prefixes of debootstrap's output, and the progress message printed once for each
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
    """Return the path of the emulator for programs of this architecture; "" if none is needed."""
    if arch == host_arch():
        return ""
    if arch != "arm64":
        raise ClusterError(f"{arch} machines are not supported on an {host_arch()} host")
    return shutil.which(EMULATOR) or f"/usr/bin/{EMULATOR}"


def check_arch(arch: str) -> None:
    """Raise if programs of this architecture do not run here."""
    if qemu := emulator(arch):
        try:
            run("unshare", "--mount", "sh", str(BINFMT), "add", "edgeddl-check", qemu)
            unregister_binfmt("edgeddl-check")
        except ClusterError as error:
            raise ClusterError(
                f"qemu cannot run {arch} programs here: {error}",
                hint="load the kernel module: modprobe binfmt_misc",
            ) from None


def unregister_binfmt(name: str) -> None:
    """Remove the registration of an emulator from the kernel."""
    # a kernel without binfmt_misc has no registrations
    succeeds("unshare", "--mount", "sh", str(BINFMT), "remove", name)


def make_root(suite: str, arch: str, folder: Path = FOLDER) -> None:
    """Create the root unless it is cached. Prints its progress: this takes minutes."""
    with _locked(folder):
        root = root_path(suite, arch, folder)
        if root.exists():
            return
        check_arch(arch)
        _discard_unfinished(folder)
        print(f"creating Debian {suite} for {arch} (once, takes some minutes)", flush=True)
        unfinished = root.with_name(root.name + UNFINISHED)
        log = folder / f"{root.name}.log"
        _debootstrap(suite, arch, unfinished, log)
        unfinished.rename(root)
        log.unlink()


def clean(folder: Path = FOLDER) -> list[str]:
    """Remove all roots and return their names."""
    if not folder.exists():
        return []
    with _locked(folder):
        _discard_unfinished(folder)
        names = sorted(path.name for path in folder.iterdir() if path.is_dir())
        shutil.rmtree(folder)
    with contextlib.suppress(OSError):  # not empty
        folder.parent.rmdir()
    return names


def _debootstrap(suite: str, arch: str, target: Path, log: Path) -> None:
    mirror = host_settings.debian_mirrors()[0]
    script = ("sh", str(SCRIPT), suite, arch, str(target), mirror, emulator(arch))
    code = _run_with_progress((*ISOLATED, *script), log)
    if emulator(arch):
        unregister_binfmt("edgeddl-root")
    if code:
        output = "; ".join(log.read_text().splitlines()[-3:])
        raise ClusterError(
            f"debootstrap of {suite} for {arch} failed: {output}",
            hint=f"check that {mirror} is reachable from here; the full output is in {log}",
        )


def _run_with_progress(command: Sequence[str], log: Path) -> int:
    """Run a command, print each stage once, and return the exit code."""
    pending = dict(STAGES)
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
            if stage := pending.pop(" ".join(line.split()[:2]), None):
                print(f"  {stage}", flush=True)
    return process.returncode


def _discard_unfinished(folder: Path) -> None:
    for path in folder.glob(f"*{UNFINISHED}"):
        shutil.rmtree(path)


def _locked(folder: Path) -> AbstractContextManager[None]:
    """Create one root at a time; a second process waits and finds it cached."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder_lock.locked(folder)
