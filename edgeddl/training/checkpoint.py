"""The checkpoints of a run: which ones are written, kept, and read on resume.

The file format is in `checkpoint_file`, whose public names are exported here too.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from edgeddl.atomic_file import replacing, sync_folder, temporary_beside
from edgeddl.errors import CheckpointError, ConfigError
from edgeddl.log import logger
from edgeddl.training.checkpoint_file import (
    Checkpoint,
    MissingCheckpointError,
    NewerFormatError,
    read_checkpoint,
    read_description,
    write_checkpoint,
    write_error,
)

__all__ = [
    "BEST_NAME",
    "Checkpoint",
    "CheckpointStore",
    "find_checkpoints",
    "latest_description",
    "read_checkpoint",
    "read_description",
    "write_checkpoint",
]

BEST_NAME = "best.npz"
# The best checkpoint after an epoch, while best.npz is a better one from the end by --max-steps.
BEST_EPOCH_NAME = "best-epoch.npz"

_STEP_NAME = re.compile(r"checkpoint-(\d{8}|[1-9]\d{8,})\.npz")
_TEMPORARY_NAME = re.compile(r"\.(checkpoint-\d+|best|best-epoch)\.npz\.[0-9a-f]{8}\.tmp")


def find_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder by name, readable or not: `best.npz`, then by rising step."""
    by_step = _paths_by_step(folder)
    best = folder / BEST_NAME
    return ([best] if os.path.isfile(best) else []) + [by_step[step] for step in sorted(by_step)]


def latest_description(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint with a readable description, and that; None if there is none."""
    for path in reversed(find_checkpoints(folder)):
        try:
            return path, read_description(path)
        except CheckpointError:
            continue  # a run that resumes from this folder warns about it
    return None


class CheckpointStore:
    """The checkpoints of one run: the last `keep`, and the best one as `best.npz`."""

    def __init__(self, folder: Path, keep: int) -> None:
        if keep < 1:
            raise ConfigError(f"at least 1 checkpoint must be kept, not {keep}")
        self.folder = folder
        self.keep = keep

    def save(
        self, step: int, checkpoint: Checkpoint, best: bool = False, at_end: bool = False
    ) -> Path:
        """Write the checkpoint of a step, then remove those it supersedes.

        These are all but the last `keep`, and those of later steps: the run was resumed before
        them, and after a crash they must not count as the latest. A CheckpointError means that this
        checkpoint was not written (or not as best); earlier ones are unchanged.

        `at_end`: --max-steps ended the run here. If this checkpoint is the best, `best.npz` is
        restored when the run continues.
        """
        path = self.folder / f"checkpoint-{step:08d}.npz"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._remove_temporaries()
        except OSError as error:
            raise write_error(path, error) from error
        write_checkpoint(path, checkpoint)
        self._remove_superseded(step)
        self._update_best(path, best, at_end)
        return path

    def latest(self) -> tuple[Path, Checkpoint] | None:
        """The newest readable checkpoint; None if there is no checkpoint.

        Damaged checkpoints are skipped with a warning; `best.npz` is tried last.
        """
        damaged: list[str] = []
        tried: set[Path] = set()
        # Listed again each time, because a run that is still writing may have removed checkpoints.
        while untried := [path for path in find_checkpoints(self.folder) if path not in tried]:
            path = untried[-1]
            tried.add(path)
            try:
                return path, read_checkpoint(path)
            except NewerFormatError:
                raise
            except MissingCheckpointError:
                continue
            except CheckpointError as error:
                damaged.append(path.name)
                logger.warning("%s; skipping it", error.message)
        if damaged:
            raise _none_readable(self.folder, damaged)
        return None

    def _remove_temporaries(self) -> None:
        """Remove the files of a killed writer."""
        for path in self.folder.iterdir():
            if _TEMPORARY_NAME.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def _remove_superseded(self, step: int) -> None:
        by_step = _paths_by_step(self.folder)
        later = [by_step[other] for other in by_step if other > step]
        if later:
            names = ", ".join(sorted(path.name for path in later))
            logger.warning("the run is back at step %d: removing the later %s", step, names)
        earlier = [by_step[other] for other in sorted(by_step) if other <= step]
        for path in later + earlier[: -self.keep]:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("could not remove the old checkpoint %s: %s", path, error.strerror)

    def _update_best(self, path: Path, is_best: bool, at_end: bool) -> None:
        best, best_epoch = self.folder / BEST_NAME, self.folder / BEST_EPOCH_NAME
        try:
            if best_epoch.is_file():  # the run has continued after --max-steps
                os.replace(best_epoch, best)
            if is_best and at_end and best.is_file():
                _link_or_copy(best, best_epoch)
            if is_best:
                _link_or_copy(path, best)
        except OSError as error:
            raise CheckpointError(
                f"{path} is written, but {BEST_NAME} could not be updated: {error.strerror}",
                hint=f"an earlier {BEST_NAME} is kept; check the free space in {self.folder}",
            ) from error


def _paths_by_step(folder: Path) -> dict[int, Path]:
    try:
        found = [(_STEP_NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise CheckpointError(f"folder {folder} cannot be listed: {error.strerror}") from error
    return {int(match[1]): path for match, path in found if match}


def _link_or_copy(source: Path, target: Path) -> None:
    """Atomically make target a hard link to source, or a copy if links are not supported."""
    temporary = temporary_beside(target)
    try:
        os.link(source, temporary)
    except OSError:
        with open(source, "rb") as reader, replacing(target) as writer:
            shutil.copyfileobj(reader, writer)
        return
    try:
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(target.parent)


def _none_readable(folder: Path, damaged: list[str]) -> CheckpointError:
    return CheckpointError(
        f"no checkpoint in {folder} can be read: {', '.join(damaged)} damaged",
        hint="start a new run with --resume never, or give another one as --resume PATH",
    )
