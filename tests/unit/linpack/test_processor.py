"""Peaks of processors, and identifying BLAS libraries."""

from __future__ import annotations

import pytest

from edgeddl.linpack.blas import find_blas, name_of_loaded
from edgeddl.linpack.processor import Processor, flops_per_cycle, read_processor
from tests.support import REPOSITORY

FIXTURES = REPOSITORY / "tests/fixtures"


def x86(vendor: str, family: int, model: int, flags: str = "avx avx2 fma") -> list[dict[str, str]]:
    return [
        {
            "vendor_id": vendor,
            "cpu family": str(family),
            "model": str(model),
            "flags": flags,
        }
    ]


@pytest.mark.parametrize(
    ("blocks", "flops"),
    [
        ([{"CPU part": "0xd08"}] * 4, 4),
        ([{"CPU part": "0xd0b"}] * 4, 8),
        ([{"CPU part": "0xd08"}, {"CPU part": "0xd03"}], None),
        ([{"CPU part": "0xfff"}], None),
        (x86("AuthenticAMD", 23, 0x01), 8),
        (x86("AuthenticAMD", 23, 0x31), 16),
        (x86("AuthenticAMD", 25, 0x11), 16),
        (x86("AuthenticAMD", 21, 0x02), None),
        (x86("GenuineIntel", 6, 0x3C), 16),
        (x86("GenuineIntel", 6, 0x6A, "avx avx2 fma avx512f"), 32),
        (x86("GenuineIntel", 6, 0x2A, "avx"), 8),
        (x86("GenuineIntel", 6, 0xB7), None),
        (x86("GenuineIntel", 6, 0x0F, "sse2"), None),
        ([{"processor": "0"}], None),
        ([], None),
    ],
)
def test_operations_each_cycle(blocks: list[dict[str, str]], flops: int | None) -> None:
    assert flops_per_cycle(blocks) == flops


def test_a_board_by_its_files() -> None:
    board = read_processor(FIXTURES / "pi4")
    assert board.name.startswith("Raspberry Pi 4")
    assert board.flops_per_cycle == 4
    four_cores = Processor(board.name, 4, 1.5e9, board.flops_per_cycle)
    assert four_cores.peak_gflops(4) == pytest.approx(24)
    assert four_cores.peak_gflops(1) == pytest.approx(6)
    assert board.hertz is not None
    assert board.hertz >= 1.5e9


def test_without_a_clock_there_is_no_peak() -> None:
    assert Processor("x", 4, None, 4).peak_gflops(4) is None
    assert Processor("x", 4, 1e9, None).peak_gflops(4) is None


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/v/numpy.libs/libscipy_openblas64_-56d6093b.so", "openblas"),
        ("/usr/lib/aarch64-linux-gnu/openblas-pthread/libopenblasp-r0.3.21.so", "openblas"),
        ("/usr/lib/x86_64-linux-gnu/blis-pthread/libblis.so.4", "blis"),
        ("/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0", "reference"),
        ("/usr/lib/libm.so.6", "reference"),
    ],
)
def test_the_blas_that_is_loaded(file: str, name: str) -> None:
    maps = [f"7f00-7f01 r-xp 00000000 08:01 123 {file}", "7f02-7f03 rw-p 0 00:00 0 [heap]"]
    assert name_of_loaded(maps) == name


def test_blas_libraries_by_their_folders(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    for folder in ("openblas-pthread", "blis-pthread", "blas", "perl"):
        library = tmp_path / "usr/lib/aarch64-linux-gnu" / folder / "libblas.so.3"
        library.parent.mkdir(parents=True)
        library.touch()
    assert [blas.name for blas in find_blas(tmp_path)] == ["reference", "blis", "openblas"]
