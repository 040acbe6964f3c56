"""Chooses the BLAS for hpcc: runs a small HPL with each and keeps the fastest.

Matrix products alone do not predict the speed of HPL. On 2 cores shared with other programs, both
BLIS and OpenBLAS reached 100 GFLOPS in products, but 0.2 (BLIS) and 20 (OpenBLAS) in HPL with
N = 2000. These are single runs under different load, so the size of the difference is uncertain.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from edgeddl import machine
from edgeddl.errors import LinpackError
from edgeddl.linpack.blas import PACKAGES, REFERENCE, Blas, find_blas
from edgeddl.linpack.hpcc import Launch, clean_environment, run_hpcc
from edgeddl.linpack.hpcc_input import plan_hpcc
from edgeddl.log import logger

TRIAL_SIZE = 2000
TRIAL_SECONDS = 120.0
PRODUCT_SECONDS = 60.0


@dataclass(frozen=True)
class Trial:
    """The result of a trial run with a library."""

    blas: Blas
    gflops: float


def choose_blas(wanted: str, threads: int) -> Blas:
    """The fastest of the requested libraries ("auto": of all that are installed)."""
    candidates = [blas for blas in find_blas() if wanted in ("auto", blas.name)]
    if not candidates:
        kind = "BLAS" if wanted == "auto" else wanted
        raise LinpackError(f"no {kind} is installed for hpcc", hint=f"sudo apt install {PACKAGES}")
    # The reference BLAS is slower than any other, so it is used only if there is no other.
    tuned = [blas for blas in candidates if blas.name != REFERENCE] or candidates
    if len(tuned) == 1:
        return tuned[0]
    best = max((_try(blas, threads) for blas in tuned), key=lambda trial: trial.gflops)
    if not best.gflops:
        raise LinpackError("HPL failed with every BLAS; see the warnings above")
    return best.blas


def _try(blas: Blas, threads: int) -> Trial:
    """Run a small HPL; 0 GFLOPS if it fails or takes too long."""
    title = f"trying {blas.folder.name}"
    try:
        result, _ = run_hpcc(plan_hpcc(TRIAL_SIZE, 1), Launch(blas, threads), title, TRIAL_SECONDS)
    except LinpackError as error:
        logger.warning("%s: %s", title, error)
        return Trial(blas, 0.0)
    logger.info("%s: %.1f GFLOPS with N = %s", title, result.gflops, f"{TRIAL_SIZE:,}")
    return Trial(blas, result.gflops)


def measure_processor_share(blas: Blas, threads: int) -> float:
    """The share of processor time that threads get now, measured by one second of matrix products.

    Runs in a separate process, because a BLAS reads its number of threads only once.
    """
    library = str(blas.folder / "libblas.so.3")
    command: Sequence[str] = (
        sys.executable, "-m", "edgeddl.linpack.dgemm", library, str(threads)
    )  # fmt: skip
    numbers = dict.fromkeys(machine.THREAD_VARIABLES, str(threads))
    environment = clean_environment() | numbers | {"LD_LIBRARY_PATH": str(blas.folder)}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PRODUCT_SECONDS,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise LinpackError(
            f"matrix products with {library} took over {PRODUCT_SECONDS:.0f} s"
        ) from None
    if done.returncode:
        raise LinpackError(f"matrix products with {library} failed:\n{done.stderr[-500:].rstrip()}")
    return float(json.loads(done.stdout)["processor_share"])
