"""The communicators' contract over real MPI."""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from tests.contract import CONTRACT

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_contract(mpirun: Callable[..., CompletedProcess[str]], ranks: int) -> None:
    done = mpirun(ranks, "-m", "tests.contract")
    assert done.returncode == 0, done.stderr
    assert f"{len(CONTRACT)} checks hold on {ranks} ranks" in done.stdout
