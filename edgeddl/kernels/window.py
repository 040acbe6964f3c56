"""The geometry of a convolution or a pooling: window size, stride, padding and dilation."""

from __future__ import annotations

from typing import NamedTuple

from edgeddl.errors import KernelError
from edgeddl.kernels.checks import is_whole

# Larger than any image; the product of two fits into 64 bits with room to spare.
LARGEST = 2**20


class _Geometry(NamedTuple):
    kh: int
    kw: int
    sy: int = 1
    sx: int = 1
    ph: int = 0
    pw: int = 0
    cover_all: bool = False
    dy: int = 1
    dx: int = 1


class Window(_Geometry):
    """A window of kh x kw pixels, moved by (sy, sx) over an image padded by (ph, pw) on each side.

    With `cover_all` the last window may extend beyond the padded edge, so that every pixel is in a
    window: Chainer's default for pooling. The pixels of a window are dy rows and dx columns apart.

    It is a tuple, so hashing it for a cache lookup runs no Python code.
    """

    def __init__(self, *_: int, **__: int) -> None:
        steps = (self.kh, self.kw, self.sy, self.sx, self.dy, self.dx)
        pads = (self.ph, self.pw)
        whole = all(map(is_whole, steps + pads))
        if not whole or min(steps) < 1 or min(pads) < 0 or max(steps + pads) > LARGEST:
            raise KernelError(
                "window, dilation and stride must be at least 1, padding at least 0, all whole "
                f"numbers of at most {LARGEST}: {self}"
            )

    @property
    def span(self) -> tuple[int, int]:
        """The height and width that a window covers, including dilation."""
        return (self.kh - 1) * self.dy + 1, (self.kw - 1) * self.dx + 1

    def output_size(self, h: int, w: int) -> tuple[int, int]:
        """The number of windows, vertically and horizontally."""
        span_h, span_w = self.span
        out_h = _positions(h + 2 * self.ph - span_h, self.sy, self.cover_all)
        out_w = _positions(w + 2 * self.pw - span_w, self.sx, self.cover_all)
        if out_h < 1 or out_w < 1:
            raise KernelError(
                f"an image of {h} x {w} pixels is smaller than the window: {self}",
                hint="use larger images, fewer strides before this layer, or more padding",
            )
        return out_h, out_w

    def covered_size(self, h: int, w: int) -> tuple[int, int]:
        """The size of the padded image that contains every window."""
        (out_h, out_w), (span_h, span_w) = self.output_size(h, w), self.span
        return (
            max(h + 2 * self.ph, (out_h - 1) * self.sy + span_h),
            max(w + 2 * self.pw, (out_w - 1) * self.sx + span_w),
        )

    @property
    def is_pointwise(self) -> bool:
        """Whether windows are single pixels of the image itself."""
        return (self.kh, self.kw, self.ph, self.pw) == (1, 1, 0, 0)


def _positions(room: int, stride: int, cover_all: bool) -> int:
    if room < 0 and not cover_all:
        return 0
    return (room + (stride - 1 if cover_all else 0)) // stride + 1
