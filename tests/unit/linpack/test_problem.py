"""Size, count of operations, grid; memory and its limits; the residual."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeddl.errors import LinpackError
from edgeddl.linpack.hpcc_input import plan_hpcc, render_input, size_for_nodes
from edgeddl.linpack.memory import available_bytes
from edgeddl.linpack.problem import (
    BLOCK,
    LARGEST_RESIDUAL,
    count_flops,
    plan_grid,
    size_for_memory,
)
from edgeddl.linpack.solve import make_system, scaled_residual

GIB = 2**30


def test_flops_as_hpl_counts_them() -> None:
    assert count_flops(1000) == pytest.approx(2e9 / 3 + 1.5e6)
    # HPL's own line in tests/fixtures/hpcc/two_ranks.txt: 0.281202 s, 18.9875 GFLOPS
    assert count_flops(2000) / 0.281202 == pytest.approx(18.9875e9, rel=1e-5)


@given(st.integers(min_value=8 * BLOCK**2, max_value=2**44), st.integers(1, 3))
def test_the_largest_size_of_whole_blocks_that_fits(memory: int, matrices: int) -> None:
    n = size_for_memory(memory, matrices)
    assert n * n * 8 * matrices <= memory or n == BLOCK
    if memory >= 8 * BLOCK**2 * matrices:
        assert n % BLOCK == 0
        assert (n + BLOCK) ** 2 * 8 * matrices > memory


def test_a_tiny_memory_still_gives_a_problem() -> None:
    assert size_for_memory(0) == 1
    assert size_for_memory(8 * 100**2) == 100


@pytest.mark.parametrize(
    ("ranks", "grid"),
    [(1, (1, 1)), (2, (1, 2)), (3, (1, 3)), (4, (2, 2)), (6, (2, 3)), (7, (1, 7)), (12, (3, 4))],
)
def test_the_grid_is_near_a_square(ranks: int, grid: tuple[int, int]) -> None:
    assert plan_grid(ranks) == grid


def test_the_smallest_memory_decides_for_all_nodes() -> None:
    n = size_for_nodes(GIB, 4)
    assert 8 * n * n / 4 <= GIB
    assert 8 * (n + BLOCK) ** 2 / 4 > GIB


def test_hpccs_input() -> None:
    lines = render_input(plan_hpcc(10_240, 6)).splitlines()
    words = [line.split()[0] for line in lines]
    assert words[4:13] == ["1", "10240", "1", "128", "0", "1", "2", "3", "16.0"]
    assert len(lines) == 36
    assert lines[31].startswith("#####")


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """8 GiB of memory, 6 of them available."""
    kib = GIB // 1024
    write(tmp_path, "proc/meminfo", f"MemTotal: {8 * kib} kB\nMemAvailable: {6 * kib} kB\n")
    return tmp_path


def test_memory_without_cgroups(machine: Path) -> None:
    assert available_bytes(machine) == 6 * GIB


def test_a_limit_of_version_2_of_a_cgroup_above(machine: Path) -> None:
    write(machine, "proc/self/cgroup", "0::/lab/node\n")
    write(machine, "sys/fs/cgroup/lab/node/memory.max", "max\n")
    write(machine, "sys/fs/cgroup/lab/node/memory.current", "1\n")
    write(machine, "sys/fs/cgroup/lab/memory.max", f"{2 * GIB}\n")
    write(machine, "sys/fs/cgroup/lab/memory.current", f"{GIB}\n")
    write(machine, "sys/fs/cgroup/lab/memory.stat", f"anon 5\ninactive_file {GIB // 2}\n")
    assert available_bytes(machine) == 3 * GIB // 2


def test_a_limit_of_version_1(machine: Path) -> None:
    write(machine, "proc/self/cgroup", "5:cpu,cpuacct:/other\n4:memory:/node\n")
    write(machine, "sys/fs/cgroup/memory/node/memory.limit_in_bytes", f"{GIB}\n")
    write(machine, "sys/fs/cgroup/memory/node/memory.usage_in_bytes", "0\n")
    assert available_bytes(machine) == GIB


def test_unknown_memory_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(LinpackError, match="--size"):
        available_bytes(tmp_path)


def test_the_residual_catches_a_wrong_solution() -> None:
    a, b = make_system(200, seed=0)
    x = np.linalg.solve(a, b)
    assert scaled_residual(a, x, b) < 1
    x[17] += 1e-6 * abs(x).max()  # as one flipped bit in the middle of a mantissa would
    assert scaled_residual(a, x, b) > LARGEST_RESIDUAL
    single = np.linalg.solve(a.astype(np.float32), b.astype(np.float32)).astype(float)
    assert scaled_residual(a, single, b) > LARGEST_RESIDUAL
