"""Output of hpcc: accepted output has usable numbers."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from random import Random

from edgeddl.linpack.hpcc_input import HpccPlan
from edgeddl.linpack.hpcc_output import LARGEST, parse_output
from fuzzing.mutation import NUMBERS, mutate

RECORDED = Path(__file__).parents[3] / "tests/fixtures/hpcc/two_ranks.txt"
PLAN = HpccPlan(2000, 80, 1, 2)
# the lines that are parsed, out of the 500 of a run
READ = ("Begin of", "End of", "||Ax-b||", "HPL_", "PingPong", "SingleSTREAM_")
TOKENS = (*NUMBERS, b"=", b"\n", b"PASSED", b"FAILED", b"HPL_time=", b"e", b"-", b"\xff", b"1e306")


class _Hpcc:
    def __init__(self, folder: Path) -> None:
        lines = RECORDED.read_text().splitlines(keepends=True)
        kept = [line for line in lines if any(word in line for word in READ)]
        self._sample = "".join(kept).encode()

    def make(self, random: Random) -> bytes:
        return mutate(random, self._sample, TOKENS)

    def check(self, data: bytes) -> None:
        result = parse_output(data.decode("utf-8", "replace"), PLAN)
        json.dumps(asdict(result), allow_nan=False)
        assert result.link is not None
        figures = (result.seconds, result.gflops, *asdict(result.link).values())
        assert all(0 < figure <= LARGEST for figure in figures), "a number that overflows"
        assert result.residual >= 0


make_target = _Hpcc
