"""Fixtures for all tests."""

from __future__ import annotations

import signal
from collections.abc import Callable
from subprocess import CompletedProcess

import numpy as np
import pytest

from tests import support


def pytest_configure() -> None:
    """Ctrl-C works, also where a shell has started the tests in the background without it.

    Processes that tests start and interrupt would else ignore it as well.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def mpirun() -> Callable[..., CompletedProcess[str]]:
    """`mpirun(ranks, *arguments, timeout=60)`: run ranks of this Python to their end."""
    return support.mpirun


@pytest.fixture
def unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that nobody has written holds NaN, not what was right a moment ago."""
    empty, empty_like = np.empty, np.empty_like

    def poisoned(*arguments: object, **options: object) -> np.ndarray:
        array = empty(*arguments, **options)  # type: ignore[call-overload]
        array.fill(np.nan)
        return array

    def poisoned_like(array: np.ndarray, **options: object) -> np.ndarray:
        like = empty_like(array, **options)  # type: ignore[call-overload]
        like.fill(np.nan)
        return like

    monkeypatch.setattr(np, "empty", poisoned)
    monkeypatch.setattr(np, "empty_like", poisoned_like)
