"""Kernel tests that use the fixture `implementation` run once for each one this machine can run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.unit.kernels.implementations import (
    FAILURES,
    NATIVE,
    REFERENCE,
    Implementation,
    using,
)

NO_NATIVE = pytest.param(None, id="native", marks=pytest.mark.skip(reason=FAILURES))

# pytest --hypothesis-profile=few: for emulators and sanitizers
settings.register_profile("few", max_examples=5, deadline=None)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "large: too slow for an emulator")


@pytest.fixture(scope="module", params=[REFERENCE, *(NATIVE or [NO_NATIVE])], ids=str)
def implementation(request: pytest.FixtureRequest) -> Iterator[Implementation]:
    """The kernels compute with this implementation."""
    with using(request.param) as chosen:
        yield chosen


@pytest.fixture(scope="module", params=NATIVE or [NO_NATIVE], ids=str)
def native(request: pytest.FixtureRequest) -> Iterator[Implementation]:
    """Likewise, for tests of native kernels only."""
    with using(request.param) as chosen:
        yield chosen
