"""Installs what tests need in addition to .venv: Debian packages (as root) or PyTorch.

scripts/test-tools calls it:  python scripts/test_tools.py packages|torch
"""

from __future__ import annotations

import subprocess
import sys

from baselines.torch_environment import TORCH_PYTHON, has_torch, install

from cluster.emulate.debian_packages import install as install_packages
from cluster.emulate.debian_packages import missing_packages
from cluster.emulate.requirements import EMULATOR_PACKAGES, PACKAGES
from cluster.errors import exit_code_of

# program: its packages, including those that are only recommended
TEST_PACKAGES = {
    **PACKAGES,
    **EMULATOR_PACKAGES,
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    "cc": "gcc libc6-dev",
    "chromium": "chromium",
    "hpcc": "hpcc libopenblas0-pthread",
    "npm": "nodejs npm",
    "prometheus": "prometheus",
    "prometheus-node-exporter": "prometheus-node-exporter",
    "shellcheck": "shellcheck",
}


def install_missing_packages() -> None:
    if missing := missing_packages(TEST_PACKAGES):
        install_packages(missing)
    print("Debian packages for tests are installed")


def install_torch() -> None:
    """Install PyTorch; a failed download is not an error: only the comparison needs it."""
    try:
        if not has_torch(TORCH_PYTHON):
            install()
    except subprocess.CalledProcessError:
        print("warning: PyTorch could not be installed; its tests are skipped", file=sys.stderr)
    else:
        print(f"PyTorch is in {TORCH_PYTHON.parent.parent.name}")


if __name__ == "__main__":
    steps = {"packages": install_missing_packages, "torch": install_torch}
    sys.exit(exit_code_of(steps[sys.argv[1]]))
