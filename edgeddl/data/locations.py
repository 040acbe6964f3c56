"""The default folder of data sets."""

from __future__ import annotations

import os
from pathlib import Path

from edgeddl.errors import DataError


def default_data_dir() -> Path:
    """A folder in the user's cache folder."""
    return _cache_folder() / "edgeddl"


def _cache_folder() -> Path:
    """Follows the XDG base directory specification, which says to ignore relative paths."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    if Path(configured).is_absolute():
        return Path(configured)
    try:
        return Path.home() / ".cache"
    except RuntimeError as error:
        raise DataError(
            "cannot find data sets: this user has no home directory",
            hint="set a folder with --data-dir or EDGEDDL_DATA",
        ) from error
