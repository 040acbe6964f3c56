"""fab run: runs a command on all boards."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence

from invoke import Context, task

from cluster.errors import ClusterError
from cluster.tasks.board import Board
from cluster.tasks.boards import HELP, Outcome, find_inventory, finish, on_all, select
from edgeddl.table import render_table


@task(help=HELP, auto_shortflags=False)
def run(c: Context, inventory: str | None = None) -> None:
    """Run a command on all boards: fab run -- COMMAND

    It runs in the work folder, with edgeddl's environment active. A single argument is a command
    line for the board's shell.

      fab run -- uptime
      fab run -- 'df -h / | tail -n 1'
      fab run -H pi-02,pi-03 -- sudo journalctl -n 20
    """
    line = shell_line(c.words)
    boards = select(c, find_inventory(inventory))
    outcomes = on_all(boards, lambda board: _timed(board, line))
    print(render(outcomes))
    finish(outcomes)


def shell_line(words: Sequence[str]) -> str:
    """Return the shell command line: a single word unchanged, several words quoted."""
    if not words:
        raise ClusterError("no command given", hint="fab run -- COMMAND")
    return words[0] if len(words) == 1 else shlex.join(words)


def _timed(board: Board, line: str) -> tuple[str, float]:
    start = time.monotonic()
    return board.run(line), time.monotonic() - start


def render(outcomes: Sequence[Outcome[tuple[str, float]]]) -> str:
    """Render the outputs: in the table if none has more than one line, otherwise above it."""
    output = {o.board.name: o.value[0].rstrip() if o.value else "" for o in outcomes}
    short = all("\n" not in text for text in output.values())
    blocks = [] if short else [f"{name}:\n{text}\n\n" for name, text in output.items() if text]
    rows = [
        (
            outcome.board.name,
            outcome.text,
            f"{outcome.value[1]:.1f} s" if outcome.value else "-",
            *([output[outcome.board.name]] if short else []),
        )
        for outcome in outcomes
    ]
    headings = ("host", "outcome", "time", *(["output"] if short else []))
    return "".join(blocks) + render_table(headings, rows)
