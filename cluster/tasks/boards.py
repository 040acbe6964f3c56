"""Selects the boards of a task and runs an action on all of them in parallel."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import invoke

from cluster.errors import ClusterError
from cluster.inventory_file import FOLDER, Inventory, read_inventory
from cluster.tasks.board import Board, CommandFailed

VARIABLE = "EDGEDDL_INVENTORY"
HELP = {
    "inventory": f"inventory file (default: ${VARIABLE}, or the only one in inventory/)",
}
T = TypeVar("T")


def find_inventory(given: str | None, folder: Path = FOLDER) -> Inventory:
    """Read the given inventory, or the one in the environment variable, or the only one."""
    if named := given or os.environ.get(VARIABLE):
        return read_inventory(Path(named))
    found = sorted(path for path in folder.glob("*.yml") if ".example." not in path.name)
    if len(found) == 1:
        return read_inventory(found[0])
    if not found:
        raise ClusterError(
            f"no inventory in {folder}",
            hint="copy boards.example.yml to boards.yml in this folder and enter your boards",
        )
    raise ClusterError(
        f"several inventories in {folder}: {', '.join(path.name for path in found)}",
        hint=f"choose one with --inventory {os.path.relpath(found[0])}, or set {VARIABLE}",
    )


def select(c: invoke.Context, inventory: Inventory) -> list[Board]:
    """Return all boards, or those selected with -H."""
    names = [host.name for host in inventory.hosts]
    for name in c.only:
        if name not in names:
            raise ClusterError(
                f"no host {name!r} in {inventory.path}", hint=f"hosts: {', '.join(names)}"
            )
    return [Board(host) for host in inventory.hosts if not c.only or host.name in c.only]


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The result of an action on one board: a value or an error."""

    board: Board
    value: T | None = None
    error: ClusterError | None = None

    @property
    def text(self) -> str:
        """The first line of the error, or "ok"."""
        return str(self.error).splitlines()[0] if self.error else "ok"


def on_all(boards: Sequence[Board], action: Callable[[Board], T]) -> list[Outcome[T]]:
    """Run an action on all boards in parallel; a failure does not stop the others."""

    def attempt(board: Board) -> Outcome[T]:
        try:
            return Outcome(board, value=action(board))
        except ClusterError as error:
            return Outcome(board, error=error)

    with ThreadPoolExecutor(max_workers=len(boards)) as pool:
        try:
            return list(pool.map(attempt, boards))
        finally:  # also after Ctrl-C: a closed connection ends the wait of its thread
            for board in boards:
                board.close()


def finish(outcomes: Sequence[Outcome[T]]) -> None:
    """List failed boards with the end of their output; exit with code 1 if there are any."""
    failed = [outcome for outcome in outcomes if outcome.error]
    for outcome in failed:
        print(f"\n{outcome.board.name}: {outcome.error}", file=sys.stderr)
        if isinstance(outcome.error, CommandFailed):
            for line in outcome.error.last_lines:
                print(f"  {line}", file=sys.stderr)
    if failed:
        raise invoke.Exit(code=1)
