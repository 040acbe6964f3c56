"""Kernel tests that use `implementation` run once for each implementation of this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from edgeddl.kernels.selection import selected
from tests.unit.kernels.implementations import FAILURES, NATIVE, REFERENCE, Implementation

NO_NATIVE = pytest.param(None, id="native", marks=pytest.mark.skip(reason=FAILURES))

# pytest --hypothesis-profile=few: for emulators and sanitizers
settings.register_profile("few", max_examples=5, deadline=None)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "large: too slow for an emulator")


@pytest.fixture(scope="module", params=[REFERENCE, *(NATIVE or [NO_NATIVE])], ids=str)
def implementation(request: pytest.FixtureRequest) -> Iterator[Implementation]:
    """Make the entry points of `kernels` call this implementation."""
    yield from _behind_the_entry_points(request.param)


@pytest.fixture(scope="module", params=NATIVE or [NO_NATIVE], ids=str)
def native(request: pytest.FixtureRequest) -> Iterator[Implementation]:
    """The same, for native implementations only."""
    yield from _behind_the_entry_points(request.param)


def _behind_the_entry_points(chosen: Implementation) -> Iterator[Implementation]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selected, "implementation", chosen.module)
        if chosen.threads is not None:
            chosen.set_threads(chosen.threads)
        yield chosen
