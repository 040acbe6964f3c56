"""The communicators' contract over threads of one process, and alone."""

from __future__ import annotations

import pytest

from edgeddl.comm.local import SingleCommunicator, run_ranks
from tests.contract import CONTRACT, Check


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_threads(check: Check, size: int) -> None:
    run_ranks(size, check)


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
def test_single(check: Check) -> None:
    check(SingleCommunicator())
