"""fab reboot, shutdown: reboots or shuts down all boards, after confirmation."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from invoke import Context, task

from cluster.errors import ClusterError
from cluster.tasks.board import Board, BoardError, CommandFailed, ConnectionLost
from cluster.tasks.boards import HELP, find_inventory, finish, on_all, select
from edgeddl.table import render_table

BOOT_SECONDS = 180
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
YES = {**HELP, "yes": "do not ask for confirmation"}


@task(help=YES, auto_shortflags=False)
def reboot(c: Context, inventory: str | None = None, yes: bool = False) -> None:
    """Reboot the boards and wait until they answer; asks for confirmation

    fab reboot -H pi-03 --yes
    """
    boards = select(c, find_inventory(inventory))
    confirm("reboot", boards, yes)
    outcomes = on_all(boards, reboot_board)
    rows = [(o.board.name, f"back after {o.value:.0f} s" if o.value else o.text) for o in outcomes]
    print(render_table(("host", "outcome"), rows))
    finish(outcomes)


@task(help=YES, auto_shortflags=False)
def shutdown(c: Context, inventory: str | None = None, yes: bool = False) -> None:
    """Shut the boards down before you cut their power; asks for confirmation"""
    boards = select(c, find_inventory(inventory))
    confirm("shut down", boards, yes)
    outcomes = on_all(boards, lambda board: order(board, "poweroff"))
    rows = [(o.board.name, o.text if o.error else "shutting down") for o in outcomes]
    print(render_table(("host", "outcome"), rows))
    finish(outcomes)


def confirm(verb: str, boards: Sequence[Board], yes: bool) -> None:
    names = ", ".join(board.name for board in boards)
    if yes:
        return
    if not sys.stdin.isatty():
        raise ClusterError(
            f"cannot ask for confirmation to {verb} {names}: stdin is not a terminal",
            hint="confirm with --yes",
        )
    answer = input(f"{verb} {names} and end everything that runs there? [y/N] ")
    if answer.strip().lower() not in ("y", "yes"):
        raise ClusterError("cancelled")


def order(board: Board, verb: str) -> None:
    """Run systemctl as root; the connection may end before the command returns."""
    sudo = "" if board.run("id -u").strip() == "0" else "sudo -n "
    try:
        board.run(f"{sudo}systemctl {verb}")
    except ConnectionLost:
        pass
    except CommandFailed as error:
        raise BoardError(f"refused: {'; '.join(error.last_lines[-1:])}") from None


def reboot_board(board: Board) -> float:
    """Reboot a board and return the seconds until it answers again."""
    before = board.run(BOOT_ID)
    order(board, "reboot")
    start = time.monotonic()
    while time.monotonic() - start < BOOT_SECONDS:
        board.close()
        time.sleep(2)
        try:
            if board.run(BOOT_ID) != before:
                return time.monotonic() - start
        except BoardError:  # not yet
            continue
    raise BoardError(f"not back after {BOOT_SECONDS} s")
