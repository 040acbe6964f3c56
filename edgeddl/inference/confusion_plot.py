"""The confusion matrix as a PNG file."""

from __future__ import annotations

import numpy as np

from edgeddl.inference.evaluation import Result
from edgeddl.report.drawing import drawn_in_style, new_figure, render_png

# Numbers in the cells of a larger matrix would not be readable.
MAX_CLASSES_WITH_NUMBERS = 20
INCHES_PER_CLASS = 0.42


def draw_confusion(result: Result) -> bytes:
    """Rows are true classes, columns predicted ones; colours show the share of a row."""
    count = len(result.classes)
    shares = result.confusion / np.maximum(result.confusion.sum(axis=1, keepdims=True), 1)
    side = min(3 + INCHES_PER_CLASS * count, 16)
    with drawn_in_style():
        figure = new_figure(side)
        figure.set_size_inches(side, side)
        ax = figure.subplots()
        ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        ax.grid(False)
        ax.set_xticks(range(count), result.classes, rotation=90)
        ax.set_yticks(range(count), result.classes)
        ax.set_xlabel("predicted class")
        ax.set_ylabel("true class")
        ax.set_title(f"{result.accuracy:.2%} of {result.images:,} images are correct")
        if count <= MAX_CLASSES_WITH_NUMBERS:
            for row, column in zip(*np.nonzero(result.confusion), strict=True):
                colour = "white" if shares[row, column] > 0.5 else "black"
                number = str(result.confusion[row, column])
                ax.text(column, row, number, ha="center", va="center", color=colour, fontsize=7)
        return render_png(figure)
