"""Plots: all lines are distinguishable and labelled."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from bench_scaling.plan import Case
from bench_scaling.plot import _style, plot_stem, spread
from bench_scaling.rows import Row

pytest.importorskip("matplotlib", reason="plots need Matplotlib")

KINDS = [
    ("edgeddl", "none", False), ("edgeddl", "none", True), ("edgeddl", "fp16", False),
    ("edgeddl", "powersgd", False), ("torch", "none", False), ("torch", "none", True),
    ("chainermn", "none", False), ("chainermn", "none", True),
]  # fmt: skip


def rows() -> list[Row]:
    cases = [
        Case(system, compression, "cifar", 8, nodes, apart=apart)
        for nodes in (1, 2)
        for system, compression, apart in KINDS
        if nodes > 1 or (compression == "none" and not apart)
    ]
    return [Row(case, 1, 1.0 + index, 0.1, 0.5, None, 0.1, 1.0) for index, case in enumerate(cases)]


def test_all_series_look_different() -> None:
    labels = sorted({row.case.label for row in rows()})
    looks = [
        tuple(_style(label, rows())[key] for key in ("color", "linestyle")) for label in labels
    ]
    assert len(labels) == len(set(looks)) == 8
    assert len({colour for colour, _ in looks}) == 8


def test_every_line_is_named_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    plot_stem(rows(), tmp_path / "plot.png")
    for panel in figures[0].axes[:2]:
        named = {text.get_text() for text in panel.texts}
        assert named == {row.case.label for row in rows()}
        heights = sorted(text.xyann[1] for text in panel.texts)
        assert all(later - before > 0.06 for before, later in pairwise(heights))


def test_spreading_moves_only_close_labels() -> None:
    assert spread([0.1, 0.5, 0.9], 0.1) == [0.1, 0.5, 0.9]
    assert spread([0.5, 0.5, 0.52], 0.1) == pytest.approx([0.5, 0.6, 0.7])
    assert spread([0.98, 0.99, 1.0], 0.1) == pytest.approx([0.8, 0.9, 1.0])
    assert spread([], 0.1) == []
