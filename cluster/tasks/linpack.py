"""fab linpack: measures each board and the whole cluster, and finds slow or faulty boards."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from invoke import Context, Exit, task

from cluster.errors import ClusterError
from cluster.inventory_file import Inventory
from cluster.tasks.board import Board, BoardError
from cluster.tasks.boards import HELP, find_inventory, finish, on_all, select
from cluster.tasks.fetch import results_folder
from edgeddl.table import render_table

ENGINES = ("auto", "numpy", "hpl")
SICK_CODE = 4  # as `python -m edgeddl linpack --help` says
Record = Mapping[str, Any]


@task(
    help={**HELP, "engine": "numpy, hpl or auto (hpl if all boards have hpcc installed)"},
    auto_shortflags=False,
)
def linpack(c: Context, inventory: str | None = None, engine: str = "auto") -> None:
    """Measure each board, and with HPL the whole cluster; list boards that are slow or faulty

    This takes minutes; run nothing else meanwhile. The result is saved on the boards, where
    `edgeddl.train --require-linpack` reads it, and here in runs/CLUSTER/linpack.json. The exit code
    is 4 if a board has the verdict "sick". Arguments after -- go to `python -m edgeddl linpack`.

      fab linpack
      fab linpack --engine numpy -- --memory-fraction 0.1
    """
    if engine not in ENGINES:
        raise ClusterError(f"--engine {engine}: expected {', '.join(ENGINES)}")
    cluster = find_inventory(inventory)
    boards = select(c, cluster)
    if engine == "auto":
        engine = choose_engine(boards)
    command = ["python", "-m", "edgeddl", "linpack", "--engine", engine, "--json", *c.words]
    if engine == "hpl" and len(boards) > 1:
        measure_together(cluster, boards, command)
    else:
        measure_alone(cluster, boards, command)


def choose_engine(boards: Sequence[Board]) -> str:
    found = on_all(boards, lambda board: board.run("command -v hpcc"))
    return "numpy" if any(outcome.error for outcome in found) else "hpl"


def measure_alone(cluster: Inventory, boards: Sequence[Board], command: Sequence[str]) -> None:
    """Measure all boards in parallel, each on its own problem."""
    line = shlex.join(command)
    print(f"all boards$ {line}", flush=True)
    outcomes = on_all(boards, lambda board: parse(board.run(line, codes=(0, SICK_CODE))))
    report(cluster, [outcome.value for outcome in outcomes if outcome.value], None)
    finish(outcomes)
    end([outcome.value for outcome in outcomes if outcome.value])


def measure_together(cluster: Inventory, boards: Sequence[Board], command: Sequence[str]) -> None:
    """Have the head measure each board alone, then all boards on one problem."""
    hosts = ",".join(board.name for board in boards)
    line = shlex.join([*command, "--hosts", hosts])
    head = Board(cluster.head)
    print(f"{head.name}$ {line}", flush=True)
    # stderr shows the progress
    joint = parse(head.run(line, codes=(0, SICK_CODE), hide="stdout"))["cluster"]
    report(cluster, joint["nodes"], joint)
    end([*joint["nodes"], joint])


def parse(text: str) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(text)
    except ValueError:
        raise BoardError("edgeddl linpack did not print JSON") from None
    return record


def report(cluster: Inventory, nodes: Sequence[Record], joint: Record | None) -> None:
    """Print the results as a table and save them as JSON."""
    rows = [_row(node["host"], node, "share_of_peak") for node in nodes]
    if joint:
        rows.append(_row("all together", joint, "efficiency"))
    headings = ("host", "GFLOPS", "share", "residual", "verdict")
    print("\n" + render_table(headings, rows))
    print("\nshare: of the processor's peak; for all together: of the sum of the single boards")
    print("\n".join(causes(nodes, joint)))
    path = results_folder(cluster) / "linpack.json"
    save(path, {"nodes": list(nodes), "cluster": joint})
    print(f"\nJSON: {os.path.relpath(path)}")


def _row(name: str, record: Record, share: str) -> tuple[str, ...]:
    """Render a row; boards without a result have only a verdict and a cause."""
    gflops, part, passed = (record.get(key) for key in ("gflops", share, "passed"))
    return (
        name,
        "-" if gflops is None else f"{gflops:.2f}",
        "-" if part is None else f"{part:.0%}",
        {True: "passed", False: "FAILED", None: "-"}[passed],
        record["verdict"],
    )


def causes(nodes: Sequence[Record], joint: Record | None) -> list[str]:
    """Return one line per cause with the board's name; a joint result already has the names."""
    if joint:
        return list(joint["causes"])
    return [f"{node['host']}: {cause}" for node in nodes for cause in node["causes"]]


def save(path: Path, value: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(json.dumps(value, indent=1) + "\n")
    new.replace(path)


def end(records: Sequence[Record]) -> None:
    if any(record["verdict"] == "sick" for record in records):
        raise Exit(code=SICK_CODE)
