"""The HTML page: one self-contained file, for light and dark screens and for printing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import edgeddl
from edgeddl.report.figures import Plot
from edgeddl.report.results import (
    describe_ranks,
    describe_status,
    differing_options,
    rank_results,
    result_rows,
)
from edgeddl.report.run import Json, Run
from edgeddl.table import counted

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1d2430; --muted: #667; --line: #8884;
  --card: #f5f6f8; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14181f; --ink: #dfe4ec; --muted: #99a3b3; --card: #1d232d; }
}
@media print { :root { color-scheme: light; --paper: #fff; --ink: #000; --muted: #555;
  --card: #fff; } section { break-inside: avoid; } }
body { margin: 0 auto; max-width: 66rem; padding: 1.5rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 0.3rem; }
p { margin: 0.3rem 0; }
.muted { color: var(--muted); }
.error { border-left: 4px solid #ee6677; padding-left: 0.7rem; white-space: pre-wrap; }
.cards { display: flex; flex-wrap: wrap; gap: 0.7rem; margin: 1rem 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: 0.5rem 0.9rem; min-width: 6.5rem; }
.card b { display: block; font-size: 1.2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 0.5rem 0; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 0.2rem 0.9rem 0.2rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
svg { display: block; width: 100%; height: auto; color: var(--ink); }
details { margin: 0.6rem 0; } summary { cursor: pointer; }
footer { margin-top: 2.5rem; font-size: 0.85rem; color: var(--muted); }
"""


def render_page(runs: Sequence[Run], plots: Sequence[Plot]) -> str:
    title = " and ".join(run.name for run in runs)
    body = [
        f"<header><h1>{escape(title)}</h1>{_headline(runs)}</header>",
        *(_problems(run) for run in runs),
        _cards(runs[0]) if len(runs) == 1 else _comparison(runs),
        *(_section(plot) for plot in plots),
        _rank_table(runs),
        *(_options(run) for run in runs),
        f"<footer>edgeddl {escape(edgeddl.__version__)}. This file is self-contained.</footer>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} - edgeddl</title><style>{STYLE}</style></head>\n"
        f"<body>\n{chr(10).join(part for part in body if part)}\n</body></html>\n"
    )


def _headline(runs: Sequence[Run]) -> str:
    if len(runs) > 1:
        return f'<p class="muted">Comparison of {len(runs)} runs</p>'
    (run,) = runs
    hosts = ", ".join(dict.fromkeys(str(rank["host"]) for rank in run.ranks))
    what = f"{run.options.get('model')} on {run.options.get('dataset')}"
    ranks = counted(len(run.ranks), "rank")
    if len(run.rank_counts) > 1:  # resumed with a different number
        ranks = f"ranks: {describe_ranks(run)},"
    text = f"{what}, {ranks} on {hosts}"
    return f'<p class="muted">{escape(text)}</p>'


def _problems(run: Run) -> str:
    """Errors and damaged lines of a run."""
    lines = []
    if run.status == "failed" and run.end is not None:
        lines.append(f"{run.name} failed: {run.end['error']}")
    if run.damaged_lines:
        lines.append(f"{run.name}: skipped {counted(run.damaged_lines, 'damaged line')}")
    return "".join(f'<p class="error">{escape(line)}</p>' for line in lines)


def _cards(run: Run) -> str:
    cards = [
        f'<div class="card">{escape(name)}<b>{escape(value)}</b></div>'
        for name, value in result_rows([run])
    ]
    return f'<div class="cards">{"".join(cards)}</div>'


def _comparison(runs: Sequence[Run]) -> str:
    headings = ["", *(run.name for run in runs)]
    parts = [f"<h2>Results</h2>{_table(headings, result_rows(runs))}"]
    options = differing_options(runs)
    parts.append("<h2>Options that differ</h2>")
    parts.append(_table(headings, options) if options else "<p>All options are the same.</p>")
    return f"<section>{''.join(parts)}</section>"


def _section(plot: Plot) -> str:
    label = escape(plot.title)
    figure = f'<div role="img" aria-label="{label}">{plot.svg}</div>' if plot.svg else ""
    text = f'<p class="muted">{escape(plot.text)}</p>'
    return f'<section id="{plot.name}"><h2>{escape(plot.title)}</h2>{text}{figure}</section>'


def _rank_table(runs: Sequence[Run]) -> str:
    headings = ["run", "rank", "host", "processor", "threads", "images/s", "waiting"]
    rows = [
        [run.name, str(number), *_rank_cells(rank, own)]
        for run in runs
        for number, (rank, own) in enumerate(zip(run.ranks, rank_results(run), strict=True))
    ]
    return f"<section><h2>Ranks</h2>{_table(headings, rows)}</section>"


def _rank_cells(facts: Json, results: Json) -> list[str]:
    return [
        *(str(facts.get(key, "-")) for key in ("host", "cpu", "threads")),
        _number(results["images_per_second"], ".1f"),
        _number(results["phase_shares"]["allreduce_wait"], ".1%"),
    ]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _options(run: Run) -> str:
    rows = [[name, "-" if value is None else str(value)] for name, value in run.options.items()]
    starts = f"{len(run.starts)} starts" if len(run.starts) > 1 else "one start"
    heading = f"Options of {run.name} ({describe_status(run)}; {starts})"
    table = _table(["option", "value"], rows)
    return f"<details><summary>{escape(heading)}</summary>{table}</details>"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in headings)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'
