"""fab fetch: copies run folders from the head to this machine."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko
from invoke import Context, task

from cluster.errors import ClusterError
from cluster.inventory_file import Inventory
from cluster.tasks.board import Board, BoardError
from cluster.tasks.boards import HELP, find_inventory
from edgeddl.table import render_table

# in the checkout, independent of the current directory
HERE = Path(__file__).parents[2] / "runs"


@task(help={**HELP, "run": "name of a run (default: all)"}, auto_shortflags=False)
def fetch(c: Context, inventory: str | None = None, run: str | None = None) -> None:
    """Copy runs from the head to runs/CLUSTER/: summary, events, logs, checkpoints

    Files that have not changed are not copied again.

      fab fetch
      fab fetch --run resnet9-shapes
    """
    cluster = find_inventory(inventory)
    head = Board(cluster.head)
    names = [run] if run else head.run("ls runs 2>/dev/null || :").splitlines()
    if not names:
        raise ClusterError(f"no runs in {head.work}/runs on {head.name}")
    fetch_runs(cluster, head, [f"runs/{name}" for name in names])


def results_folder(cluster: Inventory) -> Path:
    """Return the folder of a cluster's results: two clusters may have runs of the same name."""
    return HERE / cluster.path.stem


@dataclass
class Copied:
    files: int = 0
    bytes: int = 0


def fetch_runs(cluster: Inventory, head: Board, folders: Sequence[str]) -> None:
    """Copy run folders, whose paths are relative to the work folder, and print where they are."""
    rows = []
    for folder in folders:
        source = posixpath.normpath(posixpath.join(head.work, folder))
        name = posixpath.basename(source)
        target = results_folder(cluster) / name
        copied = copy_folder(head, source, target)
        size = f"{copied.bytes / 1e6:.1f} MB"
        rows.append((name, str(copied.files), size, os.path.relpath(target)))
    if rows:
        print("\n" + render_table(("run", "files copied", "size", "here"), rows))


def copy_folder(head: Board, source: str, target: Path) -> Copied:
    """Copy new and changed files."""
    copied = Copied()
    sftp = head.connect().sftp()
    try:
        for relative, attributes in _files(sftp, source):
            path = target / relative
            if not _is_there(path, attributes):
                _copy(sftp, posixpath.join(source, relative), path, attributes)
                copied.files += 1
                copied.bytes += attributes.st_size or 0
    except FileNotFoundError:
        raise BoardError(f"no run {source} on {head.name}") from None
    except (OSError, paramiko.SSHException) as error:
        raise BoardError(f"copying {source} from {head.name} failed: {error}") from None
    return copied


def _files(
    sftp: paramiko.SFTPClient, folder: str, relative: str = ""
) -> Iterator[tuple[str, paramiko.SFTPAttributes]]:
    """Yield all regular files below a folder, with their relative paths."""
    for entry in sftp.listdir_attr(posixpath.join(folder, relative)):
        if "/" in entry.filename or entry.filename in (".", ".."):
            raise OSError(f"{entry.filename!r} is not a file name")  # would escape from runs/
        name = posixpath.join(relative, entry.filename)
        if stat.S_ISDIR(entry.st_mode or 0):
            yield from _files(sftp, folder, name)
        elif stat.S_ISREG(entry.st_mode or 0):
            yield name, entry


def _is_there(path: Path, attributes: paramiko.SFTPAttributes) -> bool:
    if not path.is_file():
        return False
    here = path.stat()
    return (here.st_size, int(here.st_mtime)) == (attributes.st_size, attributes.st_mtime)


def _copy(
    sftp: paramiko.SFTPClient, source: str, path: Path, attributes: paramiko.SFTPAttributes
) -> None:
    """Copy a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        sftp.get(source, str(partial))
        time = attributes.st_mtime or 0
        os.utime(partial, (time, time))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
