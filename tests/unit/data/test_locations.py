"""The default folder of data sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeddl.data import default_data_dir
from edgeddl.errors import DataError


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert default_data_dir() == Path("/cache/edgeddl")


@pytest.mark.parametrize("configured", [None, "", "relative/path"])
def test_else_the_home_directory(monkeypatch: pytest.MonkeyPatch, configured: str | None) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if configured is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", configured)
    assert default_data_dir() == Path("/home/me/.cache/edgeddl")


def test_no_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(DataError, match="--data-dir"):
        default_data_dir()
