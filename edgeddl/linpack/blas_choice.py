"""Which BLAS hpcc shall use: each is tried by a small HPL, the better one kept.

A product of matrices alone would not tell: on 2 cores that others were using too, both made 100
GFLOPS in products, but 0.2 (BLIS) and 20 (OpenBLAS) in HPL with N = 2000. One run each, and the
load was not the same for both: that they differ is certain, by how much is not.
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
    """How a library did."""

    blas: Blas
    gflops: float


def choose_blas(wanted: str, threads: int) -> Blas:
    """The best of those wanted ("auto": of all that are installed)."""
    candidates = [blas for blas in find_blas() if wanted in ("auto", blas.name)]
    if not candidates:
        kind = "BLAS" if wanted == "auto" else wanted
        raise LinpackError(f"no {kind} for hpcc is installed", hint=f"sudo apt install {PACKAGES}")
    # the reference is worse than any: it is taken only where there is nothing else
    tuned = [blas for blas in candidates if blas.name != REFERENCE] or candidates
    if len(tuned) == 1:
        return tuned[0]
    best = max((_try(blas, threads) for blas in tuned), key=lambda trial: trial.gflops)
    if not best.gflops:
        raise LinpackError("no BLAS has done a small HPL; the warnings above say why")
    return best.blas


def _try(blas: Blas, threads: int) -> Trial:
    """A library that fails, or takes too long, is no candidate."""
    title = f"trying {blas.folder.name}"
    try:
        result, _ = run_hpcc(plan_hpcc(TRIAL_SIZE, 1), Launch(blas, threads), title, TRIAL_SECONDS)
    except LinpackError as error:
        logger.warning("%s: %s", title, error)
        return Trial(blas, 0.0)
    logger.info("%s: %.1f GFLOPS with N = %s", title, result.gflops, f"{TRIAL_SIZE:,}")
    return Trial(blas, result.gflops)


def measure_processor_share(blas: Blas, threads: int) -> float:
    """Of its threads' time, what a program gets now: one second of products.

    In a process of its own, because a library reads its number of threads once.
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
        raise LinpackError(f"{library} has multiplied for {PRODUCT_SECONDS:.0f} s") from None
    if done.returncode:
        raise LinpackError(f"{library} cannot multiply:\n{done.stderr[-500:].rstrip()}")
    return float(json.loads(done.stdout)["processor_share"])
