"""Where data sets are kept when nobody says otherwise."""

from __future__ import annotations

import os
from pathlib import Path

from edgeddl.errors import DataError


def default_data_dir() -> Path:
    """A folder in the user's cache folder."""
    return _cache_folder() / "edgeddl"


def _cache_folder() -> Path:
    """By the XDG base directory specification, which has a relative path ignored."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    if Path(configured).is_absolute():
        return Path(configured)
    try:
        return Path.home() / ".cache"
    except RuntimeError as error:
        raise DataError(
            "this user has no home directory to look for data sets in",
            hint="name a folder with --data-dir or EDGEDDL_DATA",
        ) from error
