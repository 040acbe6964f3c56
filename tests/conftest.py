"""Fixtures for all tests."""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from tests import support


@pytest.fixture
def mpirun() -> Callable[..., CompletedProcess[str]]:
    """`mpirun(ranks, *arguments, timeout=60)`: run ranks of this Python to their end."""
    return support.mpirun
