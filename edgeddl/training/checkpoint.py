"""The checkpoints of a run: which are written, kept, and read when it goes on.

The format of one checkpoint is in `checkpoint_file`; its names are exported here too.
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
# The best after an epoch, while best.npz is a better model from where --max-steps ended the run.
BEST_EPOCH_NAME = "best-epoch.npz"

_STEP_NAME = re.compile(r"checkpoint-(\d{8}|[1-9]\d{8,})\.npz")
_TEMPORARY_NAME = re.compile(r"\.(checkpoint-\d+|best|best-epoch)\.npz\.[0-9a-f]{8}\.tmp")


def find_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder by name, readable or not: `best.npz`, then by rising step."""
    by_step = _paths_by_step(folder)
    best = folder / BEST_NAME
    return ([best] if os.path.isfile(best) else []) + [by_step[step] for step in sorted(by_step)]


def latest_description(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint whose description can be read, and that; None where there is none."""
    for path in reversed(find_checkpoints(folder)):
        try:
            return path, read_description(path)
        except CheckpointError:
            continue  # whoever goes on from this folder is told
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

        These are all but the last `keep`, and those of later steps: the run has been taken back
        before them, and a crash now must not bring them back as the latest. A CheckpointError
        means that this one is not (or not as best) on the disk; earlier ones are as they were.

        A best one `at_end`, where --max-steps ended the run, is best until the run continues: then
        `best.npz` is again what it was before.
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
        """The newest checkpoint that can be read; None where there is none at all.

        Damaged ones are passed over with a warning; `best.npz` is the last resort.
        """
        damaged: list[str] = []
        tried: set[Path] = set()
        # Listed anew each time: a run that is still writing may have removed what was listed first.
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
                logger.warning("%s; passing it over", error.message)
        if damaged:
            raise _none_readable(self.folder, damaged)
        return None

    def _remove_temporaries(self) -> None:
        """What a killed writer left."""
        for path in self.folder.iterdir():
            if _TEMPORARY_NAME.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def _remove_superseded(self, step: int) -> None:
        by_step = _paths_by_step(self.folder)
        later = [by_step[other] for other in by_step if other > step]
        if later:
            names = ", ".join(sorted(path.name for path in later))
            logger.warning("the run was taken back to step %d: removing the later %s", step, names)
        earlier = [by_step[other] for other in sorted(by_step) if other <= step]
        for path in later + earlier[: -self.keep]:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("could not remove the old checkpoint %s: %s", path, error.strerror)

    def _update_best(self, path: Path, is_best: bool, at_end: bool) -> None:
        best, best_epoch = self.folder / BEST_NAME, self.folder / BEST_EPOCH_NAME
        try:
            if best_epoch.is_file():  # the end of an earlier start does not count any more
                os.replace(best_epoch, best)
            if is_best and at_end and best.is_file():
                _link_or_copy(best, best_epoch)
            if is_best:
                _link_or_copy(path, best)
        except OSError as error:
            raise CheckpointError(
                f"{path} is written, but {BEST_NAME} could not be updated: {error.strerror}",
                hint=f"an earlier {BEST_NAME} is kept; see to the space in {self.folder}",
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
    """Atomically make target the same as source: a hard link, or a copy where there are none."""
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
