"""The processor and its peak speed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from edgeddl import machine
from edgeddl.hardware import read_sensors
from edgeddl.hardware.files import read_text

# Double-precision operations per core and cycle; a fused multiply-add counts as two.
ARM_PARTS = {
    "0xd07": 4,  # Cortex-A57
    "0xd08": 4,  # Cortex-A72 (Raspberry Pi 4): one 128-bit multiply-add
    "0xd0b": 8,  # Cortex-A76 (Raspberry Pi 5): two
    "0xd0c": 8,  # Neoverse N1
}
# AMD: by family, then by the first model with that value.
AMD_FAMILIES = {
    23: ((0x00, 8), (0x30, 16)),  # Zen: 128-bit units; Zen 2: 256
    25: ((0x00, 16),),  # Zen 3; Zen 4 takes two cycles for 512 bits
    26: ((0x00, 32),),  # Zen 5
}
# Intel's servers with two 512-bit units: Skylake and Cascade Lake, Ice Lake, Sapphire and Emerald
# Rapids.
INTEL_WIDE = {0x55, 0x6A, 0x6C, 0x8F, 0xCF}
# Processors with two kinds of cores: Alder, Raptor, Meteor, Arrow and Lunar Lake.
INTEL_HYBRID = {0x97, 0x9A, 0xB7, 0xBA, 0xBF, 0xAA, 0xAC, 0xC5, 0xC6, 0xB5, 0xBD}


@dataclass(frozen=True)
class Processor:
    """The processor as far as this process may use it; None: unknown, hence no peak."""

    name: str
    cores: int
    hertz: float | None
    flops_per_cycle: int | None

    def peak_gflops(self, threads: int) -> float | None:
        if self.hertz is None or self.flops_per_cycle is None:
            return None
        return min(threads, self.cores) * self.hertz * self.flops_per_cycle / 1e9


def read_processor(root: Path = Path("/")) -> Processor:
    blocks = _read_cpuinfo(root)
    return Processor(
        name=machine.cpu_name(root),
        cores=_count_cores(root),
        hertz=read_sensors(root).clock_max_hertz or _nominal_hertz(blocks),
        flops_per_cycle=flops_per_cycle(blocks),
    )


def flops_per_cycle(blocks: list[dict[str, str]]) -> int | None:
    """From the blocks of /proc/cpuinfo, one per core; None for unknown processors."""
    parts = {block["CPU part"] for block in blocks if "CPU part" in block}
    if parts:
        return ARM_PARTS.get(parts.pop()) if len(parts) == 1 else None
    block = blocks[0] if blocks else {}
    try:
        family, model = int(block["cpu family"]), int(block["model"])
    except (KeyError, ValueError):
        return None
    if block.get("vendor_id") == "AuthenticAMD":
        return _latest(AMD_FAMILIES.get(family, ()), model)
    if block.get("vendor_id") == "GenuineIntel" and family == 6:
        return _intel(model, set(block.get("flags", "").split()))
    return None


def _latest(generations: tuple[tuple[int, int], ...], model: int) -> int | None:
    known = [flops for first_model, flops in generations if model >= first_model]
    return known[-1] if known else None


def _intel(model: int, flags: set[str]) -> int | None:
    if model in INTEL_HYBRID:
        return None
    if model in INTEL_WIDE and "avx512f" in flags:
        return 32
    if {"avx2", "fma"} <= flags:  # Haswell and later
        return 16
    return 8 if "avx" in flags else None  # Sandy Bridge


def _nominal_hertz(blocks: list[dict[str, str]]) -> float | None:
    """The reported clock, if the kernel does not control it, as in virtual machines."""
    megahertz = [float(block["cpu MHz"]) for block in blocks if "cpu MHz" in block]
    return max(megahertz) * 1e6 if megahertz else None


def _read_cpuinfo(root: Path) -> list[dict[str, str]]:
    blocks = (read_text(root / "proc/cpuinfo") or "").split("\n\n")
    parsed = [
        {name.strip(): value.strip() for name, _, value in map(_partition, block.splitlines())}
        for block in blocks
    ]
    return [block for block in parsed if "processor" in block]


def _partition(line: str) -> tuple[str, str, str]:
    return line.partition(":")


def _count_cores(root: Path) -> int:
    """Physical cores: hardware threads of a core share its arithmetic units."""
    folder = root / "sys/devices/system/cpu"
    siblings = (
        read_text(folder / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu)
        for cpu in os.sched_getaffinity(0)
    )
    return len(set(siblings))
