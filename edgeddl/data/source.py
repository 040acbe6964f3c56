"""What a data set is before its images are loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgeddl.config import Fit
from edgeddl.data.images import Images
from edgeddl.errors import DataError


@dataclass(frozen=True)
class Request:
    """What the user asks for.

    location: what follows the prefix of --dataset, such as a path.
    image_size: height and width; None: the data set's own.
    """

    location: str = ""
    data_dir: Path | None = None
    image_size: tuple[int, int] | None = None
    fit: Fit = "crop"
    test_fraction: float = 0.1

    def check_size(self, name: str, size: tuple[int, int]) -> None:
        """For data sets of one size: refuse another."""
        if self.image_size not in (None, size):
            assert self.image_size is not None
            found, wanted = (f"{width} x {height}" for height, width in (size, self.image_size))
            raise DataError(
                f"{name} has images of {found} pixels, not {wanted}", hint="omit --image-size"
            )


@dataclass(frozen=True)
class Source:
    """A data set and how to load it: `load(train_count, test_count)`.

    generated: the counts are only defaults, and there are more images.
    fingerprint: hash of all images and labels, if it is known without reading them.
    """

    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    train_count: int
    test_count: int
    load: Callable[[int, int], Images]
    generated: bool = False
    fingerprint: str | None = None
    fit: Fit = "crop"
