"""python -m edgeddl report RUN [RUN ...]: an HTML page, the plots as PNG files, or JSON."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgeddl import log
from edgeddl.atomic_file import replacing
from edgeddl.errors import ConfigError
from edgeddl.report.results import describe_run, differing_options, result_rows
from edgeddl.report.run import Run, read_runs
from edgeddl.table import render_facts, render_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help=(
        "run folder, such as runs/resnet18-cifar10; give several to compare them"
    ))  # fmt: skip
    parser.add_argument("--output", type=Path, metavar="DIR", help=(
        "folder for report.html and the PNG files (default: report/ in the run folder, or in the"
        " current folder if there are several runs)"
    ))  # fmt: skip
    parser.add_argument(
        "--json", action="store_true", help="print the figures as JSON; does not need Matplotlib"
    )


def run(options: argparse.Namespace) -> None:
    runs = read_runs(options.runs)
    if options.json:
        log.print_text(json.dumps(finite(describe_runs(runs)), indent=1, allow_nan=False))
        return
    folder = options.output or (runs[0].path if len(runs) == 1 else Path()) / "report"
    page = _write(runs, folder)
    log.print_text(render_results(runs))
    log.print_text(render_facts([("page", str(page)), ("plots", str(folder / "*.png"))]))


def describe_runs(runs: Sequence[Run]) -> dict[str, Any]:
    names = [run.name for run in runs]
    return {
        "runs": [describe_run(run) for run in runs],
        "differing_options": {
            row[0]: dict(zip(names, row[1:], strict=True)) for row in differing_options(runs)
        },
    }


def render_results(runs: Sequence[Run]) -> str:
    headings = ["", *(run.name for run in runs)]
    options = differing_options(runs) if len(runs) > 1 else []
    return render_table(headings, [*options, *result_rows(runs)]) + "\n"


def _write(runs: Sequence[Run], folder: Path) -> Path:
    from edgeddl.report.figures import draw_plots  # needs Matplotlib
    from edgeddl.report.page import render_page

    plots = draw_plots(runs)
    page = folder / "report.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for plot in plots:
            if plot.png is not None:
                _replace(folder / f"{plot.name}.png", plot.png)
        _replace(page, render_page(runs, plots).encode())
    except OSError as error:
        raise ConfigError(
            f"cannot write the report to {folder}: {error.strerror or error}",
            hint="choose another folder with --output",
        ) from None
    return page


def _replace(path: Path, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)


def finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON lacks and damaged files may contain, by None."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
