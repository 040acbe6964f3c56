"""The geometry of a convolution or a pooling: window size, stride and padding."""

from __future__ import annotations

from dataclasses import dataclass

from edgeddl.errors import KernelError


@dataclass(frozen=True)
class Window:
    """A window of kh x kw pixels, moved by (sy, sx) over an image padded by (ph, pw) on each side.

    With `cover_all` the last window may reach over the padded edge, so that every pixel is in one:
    Chainer's default for pooling.
    """

    kh: int
    kw: int
    sy: int = 1
    sx: int = 1
    ph: int = 0
    pw: int = 0
    cover_all: bool = False

    def __post_init__(self) -> None:
        if min(self.kh, self.kw, self.sy, self.sx) < 1 or min(self.ph, self.pw) < 0:
            raise KernelError(f"window and stride must be at least 1, padding at least 0: {self}")

    def output_size(self, h: int, w: int) -> tuple[int, int]:
        """How many windows there are from top to bottom and from left to right."""
        out_h = _positions(h + 2 * self.ph - self.kh, self.sy, self.cover_all)
        out_w = _positions(w + 2 * self.pw - self.kw, self.sx, self.cover_all)
        if out_h < 1 or out_w < 1:
            raise KernelError(
                f"an image of {h} x {w} pixels is smaller than the window: {self}",
                hint="larger images, fewer strides before this layer, or more padding",
            )
        return out_h, out_w

    def covered_size(self, h: int, w: int) -> tuple[int, int]:
        """The size of the padded image that holds every window whole."""
        out_h, out_w = self.output_size(h, w)
        return (
            max(h + 2 * self.ph, (out_h - 1) * self.sy + self.kh),
            max(w + 2 * self.pw, (out_w - 1) * self.sx + self.kw),
        )

    @property
    def is_pointwise(self) -> bool:
        """Whether windows are single pixels of the image itself."""
        return (self.kh, self.kw, self.ph, self.pw) == (1, 1, 0, 0)


def _positions(room: int, stride: int, cover_all: bool) -> int:
    if room < 0 and not cover_all:
        return 0
    return (room + (stride - 1 if cover_all else 0)) // stride + 1
