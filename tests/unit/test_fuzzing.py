"""Corrupted input of every kind is read or rejected with a message; the fuzzer finds violations.

./scripts/fuzz runs more and other cases of the same generators.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from fuzzing.session import MOST_FAILURES, make_input, run_target
from fuzzing.targets import TARGET_NAMES

from edgeddl.errors import ConfigError
from tests.support import REPOSITORY

CASES = 2000


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_corrupted_input(target: str) -> None:
    result = run_target(target, seed=0, cases=range(CASES))
    assert not result.failures, "\n".join(map(str, result.failures))
    assert result.cases == CASES


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_cases_are_reproducible(target: str) -> None:
    seven = make_input(target, 3, 7)
    assert make_input(target, 3, 7) == seven
    assert len({make_input(target, seed, case) for seed in (3, 4) for case in range(5)}) > 5


class Careless:
    """A target that fails in different ways for some inputs."""

    def __init__(self, folder: Path) -> None:
        pass

    def make(self, random: Random) -> bytes:
        return bytes([random.randrange(256)])

    def check(self, data: bytes) -> None:
        match data[0] % 6:
            case 0:
                os.abort()
            case 1:
                time.sleep(60)
            case 2:
                raise KeyError("x")
            case 3:
                sys.exit(4)
            case 4:
                raise ConfigError("refused")


CARELESS = "tests.unit.test_fuzzing:Careless"
EXPECTED = {
    0: "the process ended: SIGABRT",
    1: "no result within 0.5 s",
    2: "KeyError: 'x'",
    3: "SystemExit: 4",
}


def test_every_kind_of_failure_is_found() -> None:
    inputs = [make_input(CARELESS, 0, case)[0] for case in range(16)]
    wrong = {
        case: EXPECTED[value % 6] for case, value in enumerate(inputs) if value % 6 in EXPECTED
    }
    cases = [case for case in range(16) if case not in list(wrong)[MOST_FAILURES - 1 :]]
    found = run_target(CARELESS, seed=0, cases=cases, case_seconds=0.5)
    assert {failure.what for failure in found.failures} == set(EXPECTED.values())
    for failure in found.failures:
        assert failure.what == wrong[failure.case]
        assert f"seed 0, case {failure.case}: {failure.what}" in str(failure)
        assert repr(make_input(CARELESS, 0, failure.case)) in str(failure)
    assert found.rejected == sum(inputs[case] % 6 == 4 for case in cases)
    assert found.accepted == sum(inputs[case] % 6 == 5 for case in cases)


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fuzzing", *arguments],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY / 'scripts'}:{REPOSITORY}"},
        capture_output=True,
        text=True,
    )


def test_the_command() -> None:
    done = fuzz("--target", "hpcc", "--target", "pickle", "--cases", "20", "--seed", "5")
    assert (done.returncode, done.stderr) == (0, "")  # no progress bar without a terminal
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[2:4]] == [["hpcc", "20"], ["pickle", "20"]]
    assert lines[-1] == "seed 5: 0 failures in 40 cases"


def test_the_command_reports_failures() -> None:
    case = next(n for n in range(100) if make_input(CARELESS, 1, n)[0] % 6 == 2)
    done = fuzz("--target", CARELESS, "--case", str(case), "--seed", "1")
    assert done.returncode == 1
    assert f"{CARELESS}, seed 1, case {case}: KeyError: 'x'\n  input (1 bytes): b" in done.stderr
    assert f"rerun: ./scripts/fuzz --target {CARELESS} --seed 1 --case {case}" in done.stderr
    assert done.stdout.splitlines()[-1] == "seed 1: 1 failure in 1 case"


def test_an_unknown_target() -> None:
    done = fuzz("--target", "checkpoints")
    assert done.returncode == 2 and "'checkpoints': expected one of checkpoint," in done.stderr
