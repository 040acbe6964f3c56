"""The state folder of an emulated cluster, and the lock that serialises changes."""

from __future__ import annotations

import contextlib
import json
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from cluster.emulate import folder_lock
from cluster.emulate.spec import ClusterSpec, check_name, command_line
from cluster.errors import ClusterError

# in /var/lib instead of /run: each node has its own /run
ROOT = Path("/var/lib/edgeddl/clusters")
# a folder that always exists, so that no lock file is left behind
LOCK = ROOT.parent.parent


class ClusterState:
    """The persistent state of a cluster."""

    def __init__(self, name: str, root: Path = ROOT) -> None:
        check_name(name)
        self.name = name
        self.folder = root / name
        self._file = self.folder / "cluster.json"

    def save(self, spec: ClusterSpec, **facts: Any) -> None:
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(json.dumps({"spec": spec.to_json(), **facts}, indent=1) + "\n")
        unfinished.rename(self._file)

    def load(self) -> tuple[ClusterSpec, dict[str, Any]]:
        """Return the spec and the facts saved with it."""
        try:
            content = json.loads(self._file.read_text())
            spec = ClusterSpec.from_json(content.pop("spec"))
        except FileNotFoundError:
            raise ClusterError(
                f"cluster {self.name!r} is not up", hint=command_line(self.name, "up --nodes 4")
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError, ClusterError) as error:
            raise ClusterError(
                f"{self._file} is damaged: {error}",
                hint=f"remove the cluster: {command_line(self.name, 'down')}",
            ) from None
        return spec, content

    def kind(self) -> str | None:
        """Return the kind of the nodes; None if the state is missing or damaged."""
        try:
            return self.load()[0].kind
        except ClusterError:
            return None

    def create(self) -> None:
        self.folder.mkdir(parents=True, mode=0o700)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        for parent in (self.folder.parent, self.folder.parent.parent):
            with contextlib.suppress(OSError):  # not empty: other clusters
                parent.rmdir()

    def is_last(self) -> bool:
        """Whether there is no other cluster."""
        return not any(path != self.folder for path in self.folder.parent.glob("*/"))

    def locked(self) -> AbstractContextManager[None]:
        """Hold the lock; wait for another command that changes a cluster."""
        return folder_lock.locked(LOCK)


def clusters_of_machines(root: Path = ROOT) -> list[str]:
    """Return the names of clusters of machines, including unfinished ones."""
    kinds = {path.name: ClusterState(path.name, root).kind() for path in root.glob("*/")}
    return sorted(name for name, kind in kinds.items() if kind == "machine")
