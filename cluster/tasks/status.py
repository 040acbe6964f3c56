"""fab status: shows the state of each board."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from invoke import Context, task

from cluster.tasks.board import Board, BoardError, CommandFailed
from cluster.tasks.boards import HELP, Outcome, find_inventory, finish, on_all, select
from edgeddl.table import render_table

HEADINGS = (
    "host", "reachable", "temp", "clock", "throttled", "under-voltage", "memory free",
    "disk free", "edgeddl", "kernels",
)  # fmt: skip
# throttling reasons of the firmware, except under-voltage, which has its own column
SLOWED_BY = {
    "throttled": "hot",
    "frequency_capped": "capped",
    "soft_temperature_limit": "warm",
}


class NotProvisioned(BoardError):
    """The board answers, but edgeddl does not run on it."""


@task(help={**HELP, "json": "print JSON instead of a table"}, auto_shortflags=False)
def status(c: Context, inventory: str | None = None, json: bool = False) -> None:
    """Show each board's temperature, clock, throttling, memory, disk and version

    "throttled" and "under-voltage" show what the board's firmware reports, now and since boot: hot
    (80 degrees and above: throttled), warm (soft temperature limit), capped (clock limited).
    Under-voltage means a weak power supply or cable. "-" means that the board does not report it.
    """
    outcomes = on_all(select(c, find_inventory(inventory)), ask)
    if json:
        print(render_json(outcomes))
    else:
        print(render(outcomes))
    finish(outcomes)


def ask(board: Board) -> dict[str, Any]:
    """Query `edgeddl info` and the free space of the work folder."""
    total, _, free = board.run("df -kP . | tail -n 1").split()[1:4]
    try:
        info: dict[str, Any] = json.loads(board.run("python -m edgeddl info --json"))
    except CommandFailed as error:
        last_line = error.last_lines[-1] if error.last_lines else str(error)
        raise NotProvisioned(
            f"edgeddl does not run on this board: {last_line}",
            hint="install it with fab deploy or Ansible's site.yml",
        ) from None
    except ValueError:
        raise NotProvisioned("python -m edgeddl info --json did not print JSON") from None
    return {**info, "disk": {"total_bytes": int(total) * 1024, "free_bytes": int(free) * 1024}}


def render(outcomes: Sequence[Outcome[dict[str, Any]]]) -> str:
    return render_table(HEADINGS, [_row(outcome) for outcome in outcomes])


def _row(outcome: Outcome[dict[str, Any]]) -> tuple[str, ...]:
    if outcome.value is not None:
        return (outcome.board.name, "yes", *describe(outcome.value))
    reachable = "yes" if isinstance(outcome.error, NotProvisioned) else "no"
    return (outcome.board.name, reachable, *["-"] * (len(HEADINGS) - 2))


def describe(info: Mapping[str, Any]) -> tuple[str, ...]:
    """Render the cells of a board that answers; an older edgeddl reports fewer values."""
    sensors = info.get("sensors") or {}
    throttling = sensors.get("throttling")
    return (
        _number(sensors.get("temperature_celsius"), 1, "{:.0f} °C"),
        _number(sensors.get("clock_hertz"), 1e6, "{:.0f} MHz"),
        describe_throttling(throttling, SLOWED_BY),
        describe_throttling(throttling, {"under_voltage": "yes"}),
        _share(info.get("memory") or {}, "available_bytes"),
        _share(info["disk"], "free_bytes"),
        str(info.get("edgeddl", "-")),
        str(info.get("kernels", "-")),
    )


def describe_throttling(
    throttling: Mapping[str, Mapping[str, bool]] | None, reasons: Mapping[str, str]
) -> str:
    """Describe throttling, such as "hot now", "capped since boot" or "no"."""
    if throttling is None:
        return "-"
    said = []
    for reason, word in reasons.items():
        bits = throttling.get(reason, {})
        if bits.get("now"):
            said.append(f"{word} now")
        elif bits.get("since_boot"):
            said.append(f"{word} since boot")
    return ", ".join(said) or "no"


def _number(value: float | None, unit: float, form: str) -> str:
    return "-" if value is None else form.format(value / unit)


def _share(sizes: Mapping[str, int], part: str) -> str:
    if part not in sizes:
        return "-"
    return f"{sizes[part] / 2**30:.1f} of {sizes['total_bytes'] / 2**30:.1f} GiB"


def render_json(outcomes: Sequence[Outcome[dict[str, Any]]]) -> str:
    boards = [
        {"host": o.board.name, "error": str(o.error) if o.error else None, **(o.value or {})}
        for o in outcomes
    ]
    return json.dumps(boards, indent=1)
