"""fab data: copies a pack of pictures to all boards."""

from __future__ import annotations

import contextlib
import hashlib
import json
import posixpath
import secrets
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko
from invoke import Context, task

from cluster.errors import ClusterError
from cluster.tasks.board import Board, BoardError
from cluster.tasks.boards import HELP, Outcome, find_inventory, finish, on_all, select
from edgeddl.table import render_table

INDEX_NAME = "index.json"  # as in edgeddl/data/pack.py
AGAIN = "create the pack again with: edgeddl data pack SOURCE DEST"


@dataclass(frozen=True)
class LocalPack:
    """A pack on this machine; `checksums` has every file to copy, index.json last."""

    path: Path
    checksums: Mapping[str, str]


@dataclass(frozen=True)
class Copied:
    folder: str
    files: int
    bytes: int
    seconds: float


@task(
    help={**HELP, "pack": "folder that `edgeddl data pack` created", "to": "folder on the boards"},
    auto_shortflags=False,
)
def data(c: Context, pack: str, to: str | None = None, inventory: str | None = None) -> None:
    """Copy a pack of pictures to all boards: fab data --pack PATH

    Compares the checksums of the pack with those on each board and copies only files that differ.
    The pack is then at FOLDER/NAME on every board, and FOLDER is --to, or $EDGEDDL_DATA on the
    board (/opt/edgeddl/data), or data in the work folder.

      fab data --pack ../pictures.pack
      fab train -- --dataset pack:/opt/edgeddl/data/pictures.pack
    """
    boards = select(c, find_inventory(inventory))
    local = read_pack(Path(pack))
    outcomes = on_all(boards, lambda board: copy_pack(board, local, to))
    print(render(outcomes))
    finish(outcomes)


def read_pack(path: Path) -> LocalPack:
    """Check a pack against its index."""
    path = path.expanduser().absolute()
    index = path / INDEX_NAME
    try:
        files = json.loads(index.read_bytes())["files"]
        expected = {str(name): str(entry["sha256"]) for name, entry in files.items()}
        if wrong := [name for name in expected if Path(name).name != name]:
            raise ValueError(f"{wrong[0]!r} is not a file name")
    except FileNotFoundError:
        raise ClusterError(f"{path} is not a pack: it has no {INDEX_NAME}", hint=AGAIN) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ClusterError(f"{index} is not an index of a pack: {error}", hint=AGAIN) from None
    for name, checksum in expected.items():
        if _hash(path / name) != checksum:
            raise ClusterError(f"{path / name} does not match its checksum", hint=AGAIN)
    # last: a board whose copy was interrupted then has no index, or one that does not match
    return LocalPack(path, {**expected, INDEX_NAME: _hash(index)})


def _hash(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ClusterError(f"{path} cannot be read: {error.strerror}", hint=AGAIN) from None


def copy_pack(board: Board, pack: LocalPack, to: str | None) -> Copied:
    """Copy the files that are missing or different on a board."""
    start = time.monotonic()
    folder = _make_folder(board, pack.path.name, to)
    there = checksums(board, folder, pack.checksums)
    names = [name for name, checksum in pack.checksums.items() if there.get(name) != checksum]
    size = sum((pack.path / name).stat().st_size for name in names)
    _check_space(board, folder, size)
    for name in names:
        _copy(board, pack, name, folder)
    return Copied(folder, len(names), size, time.monotonic() - start)


def _make_folder(board: Board, name: str, to: str | None) -> str:
    """Create the pack's folder on a board; return its absolute path."""
    parent = shlex.quote(to) if to else '"${EDGEDDL_DATA:-data}"'
    line = f"mkdir -p {parent}/{shlex.quote(name)} && cd {parent}/{shlex.quote(name)} && pwd"
    return board.run(line).removesuffix("\n")


def checksums(board: Board, folder: str, names: Iterable[str]) -> dict[str, str]:
    """Compute the checksums of files on a board; missing files are left out."""
    # read from stdin: sha256sum escapes unusual names
    each = 'for file; do [ ! -f "$file" ] || echo "$(sha256sum <"$file") $file"; done'
    words = ["sh", "-c", each, "checksums", *names]
    lines = board.run(f"cd {shlex.quote(folder)} && {shlex.join(words)}").splitlines()
    return {name: checksum for checksum, _, name in (line.split(maxsplit=2) for line in lines)}


def _check_space(board: Board, folder: str, size: int) -> None:
    """sftp would report a full disk only as "Failure"."""
    free = int(board.run(f"df -kP {shlex.quote(folder)} | tail -n 1").split()[3]) * 1024
    if size > free:
        raise BoardError(
            f"not enough space in {folder}: {size / 1e6:.1f} MB needed, {free / 1e6:.1f} MB free",
            hint="remove files on the board, or choose another folder with --to",
        )


def _copy(board: Board, pack: LocalPack, name: str, folder: str) -> None:
    """Copy a file atomically; the name of the partial file is unique, as boards may share it."""
    partial = f".{name}.{secrets.token_hex(4)}.partial"
    source, target = posixpath.join(folder, partial), posixpath.join(folder, name)
    sftp = board.connect().sftp()
    try:
        sftp.put(str(pack.path / name), source)
        if checksums(board, folder, [partial]).get(partial) != pack.checksums[name]:
            raise BoardError(f"{name} was damaged while it was copied", hint="try again")
        sftp.posix_rename(source, target)
    except (OSError, EOFError, paramiko.SSHException) as error:
        raise BoardError(f"copying {name} to {folder} failed: {error}") from None
    finally:
        # fails if the file was renamed or the connection is lost
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            sftp.remove(source)


def render(outcomes: Sequence[Outcome[Copied]]) -> str:
    rows = [(o.board.name, o.text, *_cells(o.value)) for o in outcomes]
    return render_table(("host", "outcome", "files copied", "size", "time", "pack"), rows)


def _cells(copied: Copied | None) -> tuple[str, ...]:
    if copied is None:
        return ("-", "-", "-", "-")
    size, seconds = f"{copied.bytes / 1e6:.1f} MB", f"{copied.seconds:.1f} s"
    return (str(copied.files), size, seconds, copied.folder)
