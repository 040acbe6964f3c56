"""Chooses the folder of a run; `edgeddl.run_format` describes the files in it.

A new run never overwrites an earlier one. Only rank 0 reads the disk; the other ranks write logs.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from edgeddl import run_format
from edgeddl.errors import CheckpointError, ConfigError
from edgeddl.training.checkpoint import (
    BEST_NAME,
    Checkpoint,
    CheckpointStore,
    find_checkpoints,
    read_checkpoint,
)

RUNS_FOLDER = Path("runs")
# File systems limit names to 255 bytes; this leaves room for a number and is readable.
_LONGEST_NAME = 100


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run. Without `resume_from`, a run resumes from its latest checkpoint."""

    path: Path
    resume_from: Path | None = None

    @property
    def checkpoints(self) -> Path:
        return self.path / run_format.CHECKPOINTS_FOLDER

    @property
    def options(self) -> Path:
        return self.path / run_format.OPTIONS_FILE

    @property
    def summary(self) -> Path:
        return self.path / run_format.SUMMARY_FILE

    @property
    def events(self) -> Path:
        return self.path / run_format.EVENTS_FILE

    @property
    def records(self) -> tuple[Path, ...]:
        """The files that only this run may write."""
        return self.options, self.summary, self.events

    def log(self, rank: int) -> Path:
        return self.path / run_format.LOGS_FOLDER / run_format.log_name(rank)

    @property
    def has_checkpoints(self) -> bool:
        return bool(find_checkpoints(self.checkpoints))

    @property
    def holds_a_run(self) -> bool:
        """Whether a run has written here; it writes its options first."""
        return self.options.exists() or self.has_checkpoints


def run_name(model: str, dataset: str) -> str:
    """The name of a run's folder, also for a model given as "package.module:callable"."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{model}-{dataset}")
    return name.lstrip(".-")[:_LONGEST_NAME] or "run"


def choose_run_folder(base: Path, name: str, explicit: Path | None, resume: str) -> RunFolder:
    """Create the folder for a run named `name`, and check that it is writable.

    `explicit` is the user's --run-dir; without it, a new run gets a numbered folder in `base`.
    `resume` is "never" (a new run), or the path of a checkpoint or run folder to resume from. A
    resumed run uses its own folder, unless `explicit` names another one.
    """
    if resume == "never":
        folder = _unused(explicit) if explicit else _new_folder(base, name)
    else:
        folder = _folder_to_resume(base, name, explicit, Path(resume))
    _check_writable(folder)
    return folder


def locate(source: Path, option: str = "--resume") -> tuple[RunFolder | None, Path | None]:
    """The run folder and the checkpoint that a path names.

    For a run folder, the checkpoint is None; for a checkpoint outside of one, the folder is None.
    """
    path = Path(os.path.abspath(source))
    if os.path.isdir(path):
        is_inner = path.name == run_format.CHECKPOINTS_FOLDER and not RunFolder(path).holds_a_run
        folder = RunFolder(path.parent if is_inner else source)
        if folder.holds_a_run:
            return folder, None
        what = "there is no run in this folder"
    elif os.path.isfile(path):
        in_run = path.parent.name == run_format.CHECKPOINTS_FOLDER
        return RunFolder(path.parent.parent) if in_run else None, source
    else:
        what = "there is no such checkpoint or run folder"
    raise CheckpointError(
        f"{option} {source}: {what}",
        hint="give a checkpoint file or a run folder such as runs/resnet18-cifar10",
    )


def read_best(source: Path, option: str) -> tuple[Path, Checkpoint]:
    """The given checkpoint, or the best one of a run folder, or else its latest."""
    folder, path = locate(source, option)
    if folder is not None and path is None:
        best = folder.checkpoints / BEST_NAME
        path = best if best.is_file() else None
    if path is not None:
        return path, read_checkpoint(path)
    latest = CheckpointStore(folder.checkpoints, keep=1).latest() if folder else None
    if latest is None:
        raise CheckpointError(f"{option} {source}: there are no checkpoints in this run folder")
    return latest


def list_runs(base: Path) -> list[RunFolder]:
    """The runs in a folder that have checkpoints."""
    try:
        folders = [RunFolder(path) for path in base.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ConfigError(f"folder {base} cannot be listed: {error.strerror}") from error
    return [folder for folder in folders if folder.has_checkpoints]


def check_not_of_a_run(option: str, path: Path) -> None:
    """Raise if an output file would replace a file of a run: each run writes its own."""
    folder = RunFolder(path.parent)
    if path.exists() and path in folder.records and folder.holds_a_run:
        raise ConfigError(
            f"{option} {path} belongs to the run in {folder.path}",
            hint="give a file outside of run folders; every run writes its own summary.json",
        )


def _unused(path: Path) -> RunFolder:
    folder = RunFolder(path)
    if folder.holds_a_run or any(record.is_file() for record in folder.records):
        raise ConfigError(
            f"the run folder {path} already holds another run",
            hint=f"continue that run with --resume {path}, or give another --run-dir",
        )
    return folder


def _new_folder(base: Path, name: str) -> RunFolder:
    number = max(_numbered(base, name), default=0) + 1
    try:
        base.mkdir(parents=True, exist_ok=True)
        while True:
            path = base / (name if number == 1 else f"{name}-{number}")
            with contextlib.suppress(FileExistsError):  # another job has just created it
                path.mkdir()
                return RunFolder(path)
            number += 1
    except OSError as error:
        raise _unwritable(base, error) from error


def _numbered(base: Path, name: str) -> dict[int, Path]:
    """Folders of this name in `base` by number; the name without a number is 1."""
    pattern = re.compile(re.escape(name) + r"(?:-([2-9]|[1-9]\d+))?")
    try:
        found = [(pattern.fullmatch(path.name), path) for path in base.iterdir()]
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _unwritable(base, error) from error
    return {int(match[1] or 1): path for match, path in found if match}


def _folder_to_resume(base: Path, name: str, explicit: Path | None, source: Path) -> RunFolder:
    origin, checkpoint = locate(source)
    if explicit and not (origin and _same(explicit, origin.path)):
        return RunFolder(_unused(explicit).path, checkpoint or _latest_path(origin))
    return RunFolder((origin or _new_folder(base, name)).path, checkpoint)


def _latest_path(origin: RunFolder | None) -> Path | None:
    latest = CheckpointStore(origin.checkpoints, keep=1).latest() if origin else None
    return latest[0] if latest else None


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _check_writable(folder: RunFolder) -> None:
    """Fail now, not at the first checkpoint hours later."""
    try:
        folder.checkpoints.mkdir(parents=True, exist_ok=True)
        for path in (folder.path, folder.checkpoints):
            with tempfile.TemporaryFile(dir=path) as probe:
                probe.write(b"edgeddl")
                probe.flush()
                os.fsync(probe.fileno())
    except OSError as error:
        raise _unwritable(folder.path, error) from error


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"the run folder {path} cannot be written to: {error.strerror or error}",
        hint="use --run-dir with a folder that you can write to",
    )
