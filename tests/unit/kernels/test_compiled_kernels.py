"""Kernels in a C program: under sanitizers, and on emulated aarch64.

scripts/test-sanitizers and scripts/test-aarch64 are the long versions.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from edgeddl.kernel_builds import BUILDS, COMMON_FLAGS
from tests.support import REPOSITORY

SOURCES = REPOSITORY / "edgeddl" / "kernels" / "csrc"
CHECK = Path(__file__).with_name("kernel_check.c")
STRICT = [flag for flag in COMMON_FLAGS if flag.startswith(("-std", "-W", "-pthread"))]
FLAGS = [*STRICT, "-Werror", f"-I{SOURCES}"]

SANITIZERS = {
    "address, undefined": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "thread": ["-fsanitize=thread"],
}


def compile_check(compiler: str, flags: list[str], program: Path) -> None:
    sources = [CHECK, *sorted(SOURCES.glob("*.c"))]
    subprocess.run([compiler, *FLAGS, *flags, "-o", program, *sources, "-lm"], check=True)


def can_link(compiler: str, flags: list[str], folder: Path) -> bool:
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    command = [compiler, *flags, "-o", folder / "empty", folder / "empty.c"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def assert_succeeds(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_kernels_pass_under_a_sanitizer(tmp_path: Path, sanitizer: str) -> None:
    compiler, flags = shutil.which("cc"), ["-O0", "-g", *SANITIZERS[sanitizer]]
    if compiler is None:
        pytest.skip("there is no C compiler")
    if not can_link(compiler, flags, tmp_path):
        pytest.skip(f"{compiler} has no sanitizer for {sanitizer}")
    compile_check(compiler, flags, tmp_path / "check")
    assert_succeeds(tmp_path / "check")


@pytest.mark.parametrize("build", BUILDS["aarch64"])
def test_kernels_pass_on_emulated_aarch64(tmp_path: Path, build: str) -> None:
    compiler = shutil.which("aarch64-linux-gnu-gcc")
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip("needs aarch64-linux-gnu-gcc and qemu-aarch64")
    compile_check(compiler, ["-O1", "-static", *BUILDS["aarch64"][build].flags], tmp_path / "check")
    assert_succeeds(emulator, tmp_path / "check")
