"""The folder of an emulated cluster on the host, and the lock that makes changes one at a time."""

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

# Under /var/lib, not /run: nodes have a /run of their own.
ROOT = Path("/var/lib/edgeddl/clusters")
# A folder that is always there: a lock file of our own would be left behind.
LOCK = ROOT.parent.parent


class ClusterState:
    """What is known of a cluster between two commands."""

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
        """The spec and the facts saved with it."""
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
                hint=f"{command_line(self.name, 'down')} takes away all that is there",
            ) from None
        return spec, content

    def kind(self) -> str | None:
        """Of the nodes, where that can still be known."""
        try:
            return self.load()[0].kind
        except ClusterError:
            return None

    def create(self) -> None:
        self.folder.mkdir(parents=True, mode=0o700)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        for parent in (self.folder.parent, self.folder.parent.parent):
            with contextlib.suppress(OSError):  # other clusters, or roots of machines
                parent.rmdir()

    def is_last(self) -> bool:
        """Whether there is no cluster but this."""
        return not any(path != self.folder for path in self.folder.parent.glob("*/"))

    def locked(self) -> AbstractContextManager[None]:
        """Waits for another command that changes a cluster."""
        return folder_lock.locked(LOCK)


def clusters_of_machines(root: Path = ROOT) -> list[str]:
    """Names of clusters, whole or half-made, whose nodes are machines."""
    kinds = {path.name: ClusterState(path.name, root).kind() for path in root.glob("*/")}
    return sorted(name for name, kind in kinds.items() if kind == "machine")
