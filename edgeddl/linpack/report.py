"""Renders results as tables."""

from __future__ import annotations

from edgeddl.linpack.cluster import ClusterOutcome, NodeOutcome
from edgeddl.linpack.figures import Link
from edgeddl.linpack.problem import LARGEST_RESIDUAL
from edgeddl.linpack.record import NodeRecord
from edgeddl.linpack.verdict import BOARD, PUBLISHED_EFFICIENCY, Verdict
from edgeddl.table import render_facts, render_table

PUBLISHED = "14 to 16.5 GFLOPS with a tuned BLAS at 1.5 GHz"
HEADINGS = (
    "node", "GFLOPS", "of peak", "N", "time", "residual", "BLAS", "copy GB/s", "throttled",
    "verdict",
)  # fmt: skip


def render_node(record: NodeRecord) -> str:
    """One machine in detail."""
    figures = record.figures
    facts = [
        ("host", f"{record.host}, {record.cpu}"),
        ("engine", f"{figures.engine}, {figures.blas} BLAS, threads: {figures.threads}"),
        ("problem", f"{figures.n:,} equations, {figures.seconds:.2f} s"),
        ("speed", f"{figures.gflops:.1f} GFLOPS best, {figures.median_gflops:.1f} median"),
        ("peak", _peak(record)),
        *([("published", PUBLISHED)] if BOARD in record.cpu else []),
        ("residual", _residual(figures.residual, figures.passed)),
        *_stream(record),
        ("processor", _processor(figures.processor_share)),
        ("throttled", _throttled(figures.throttled, figures.hottest_celsius)),
        *_verdict(record.verdict),
    ]
    return "LINPACK\n" + render_facts(facts)


def _peak(record: NodeRecord) -> str:
    if record.peak_gflops is None:
        return "unknown (this processor or its clock is not in the table)"
    return f"{record.peak_gflops:.1f} GFLOPS; {record.share_of_peak:.0%} reached"


def _residual(residual: float, passed: bool) -> str:
    return f"{residual:.4f}, {'passed' if passed else 'FAILED'} (limit {LARGEST_RESIDUAL:g})"


def _stream(record: NodeRecord) -> list[tuple[str, str]]:
    stream = record.figures.stream
    if stream is None:
        return []
    copy, triad = stream.copy / 1e9, stream.triad / 1e9
    return [("memory", f"STREAM with one thread: copy {copy:.1f}, triad {triad:.1f} GB/s")]


def _processor(share: float | None) -> str:
    return "unknown" if share is None else f"LINPACK got {share:.0%} of its threads' time"


def _throttled(throttled: bool | None, hottest: float | None) -> str:
    word = {None: "unknown (no sensor)", True: "YES", False: "no"}[throttled]
    return word if hottest is None else f"{word}, at most {hottest:.0f} C"


def _verdict(verdict: Verdict) -> list[tuple[str, str]]:
    return [("verdict", verdict.rating), *[("", cause) for cause in verdict.causes]]


def render_cluster(outcome: ClusterOutcome) -> str:
    """A table of the nodes alone, then the joint run."""
    table = render_table(HEADINGS, [_cells(node) for node in outcome.nodes])
    return f"Each node alone\n\n{table}\n\nAll together\n{render_facts(_together(outcome))}"


def _cells(node: NodeOutcome) -> list[str]:
    if node.record is None:
        return [node.host, *["-"] * (len(HEADINGS) - 2), node.verdict.rating]
    record, figures = node.record, node.record.figures
    share, stream = record.share_of_peak, figures.stream
    return [
        node.host,
        f"{figures.gflops:.1f}",
        "-" if share is None else f"{share:.0%}",
        f"{figures.n}",
        f"{figures.seconds:.1f} s",
        f"{figures.residual:.4f}",
        figures.blas,
        "-" if stream is None else f"{stream.copy / 1e9:.1f}",
        {None: "?", True: "yes", False: "no"}[figures.throttled],
        node.verdict.rating,
    ]


def _together(outcome: ClusterOutcome) -> list[tuple[str, str]]:
    joint, facts = outcome.joint, []
    if joint is None:
        facts.append(("speed", "not measured"))
    else:
        grid = f"{joint.plan.rows} x {joint.plan.columns}"
        facts += [
            ("problem", f"{joint.plan.n:,} equations on {grid} nodes, {joint.seconds:.1f} s"),
            ("speed", f"{joint.gflops:.1f} GFLOPS"),
            ("efficiency", _efficiency(outcome.efficiency)),
            ("residual", _residual(joint.residual, joint.passed)),
            *([("link", _link(joint.link))] if joint.link else []),
        ]
    return [*facts, *_verdict(outcome.verdict)]


def _efficiency(efficiency: float | None) -> str:
    of_sum = "of the sum of the single nodes"
    return f"{efficiency or 0:.0%} {of_sum}; published for four boards: {PUBLISHED_EFFICIENCY:.0%}"


def _link(link: Link) -> str:
    return (
        f"ping-pong {link.bytes_per_second / 1e6:.1f} MB/s and"
        f" {link.latency_seconds * 1e6:.0f} us between the worst pair,"
        f" {link.mean_bytes_per_second / 1e6:.1f} MB/s and"
        f" {link.mean_latency_seconds * 1e6:.0f} us on average"
    )
