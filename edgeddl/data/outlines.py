"""The shapes of the generated data set as signed distance functions.

Each function takes the coordinates (u, v) of points and returns their distance from the outline:
negative inside, 0 on the outline, positive outside. Shapes roughly fill the unit circle.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgeddl.data.images import Float32s

Outline = Callable[[Float32s, Float32s], Float32s]


def _intersection(a: Float32s, b: Float32s) -> Float32s:
    """The distance from the intersection of two shapes."""
    result: Float32s = np.maximum(a, b)
    return result


def _union(a: Float32s, b: Float32s) -> Float32s:
    """The distance from the union of two shapes."""
    result: Float32s = np.minimum(a, b)
    return result


def _radius(u: Float32s, v: Float32s) -> Float32s:
    result: Float32s = np.sqrt(u * u + v * v)
    return result


def _box(u: Float32s, v: Float32s, width: float, height: float) -> Float32s:
    return _intersection(abs(u) - width, abs(v) - height)


def disc(u: Float32s, v: Float32s) -> Float32s:
    return _radius(u, v) - 0.85


def ring(u: Float32s, v: Float32s) -> Float32s:
    return abs(_radius(u, v) - 0.72) - 0.2


def square(u: Float32s, v: Float32s) -> Float32s:
    return _box(u, v, 0.75, 0.75)


def frame(u: Float32s, v: Float32s) -> Float32s:
    return abs(_box(u, v, 0.64, 0.64)) - 0.17


def triangle(u: Float32s, v: Float32s) -> Float32s:
    """Inside three lines at 120 degrees to each other."""
    return _intersection(abs(u) * 0.8660254 + v * 0.5, -v) - 0.5


def cross(u: Float32s, v: Float32s) -> Float32s:
    """A vertical and a horizontal bar."""
    return _union(_box(u, v, 0.92, 0.27), _box(u, v, 0.27, 0.92))


def star(u: Float32s, v: Float32s) -> Float32s:
    """A pentagram: inside at least four of the five lines at 72 degrees to each other."""
    across, along = abs(u), v
    lines = np.stack(
        [
            -along,
            across * 0.9510565 - along * 0.3090170,
            across * -0.9510565 - along * 0.3090170,
            across * 0.5877853 + along * 0.8090170,
            across * -0.5877853 + along * 0.8090170,
        ]
    )
    lines.sort(axis=0)
    second: Float32s = lines[-2]
    return second - 0.33


def crescent(u: Float32s, v: Float32s) -> Float32s:
    """A disc minus another disc that covers most of it."""
    return _intersection(_radius(u, v) - 0.92, 0.75 - _radius(u - 0.45, v))


def bars(u: Float32s, v: Float32s) -> Float32s:
    """Three bars side by side."""
    across = abs(u)
    return _intersection(_union(across, abs(across - 0.64)) - 0.17, abs(v) - 0.82)


def hourglass(u: Float32s, v: Float32s) -> Float32s:
    """Two triangles, tip to tip."""
    return _intersection((abs(u) - abs(v)) * 0.7071068 - 0.05, abs(v) - 0.82)


OUTLINES: dict[str, Outline] = {
    outline.__name__: outline
    for outline in (
        disc,
        ring,
        square,
        frame,
        triangle,
        cross,
        star,
        crescent,
        bars,
        hourglass,
    )
}
