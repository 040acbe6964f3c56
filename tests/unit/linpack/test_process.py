"""Running programs that succeed, fail or hang."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from edgeddl.errors import LinpackError
from edgeddl.linpack import process as process_module
from edgeddl.linpack.process import check_end, running


def run(command: Sequence[str], timeout_seconds: float | None = None) -> list[str]:
    with running(command, os.environ, timeout_seconds=timeout_seconds) as process:
        assert process.stdout is not None
        said = list(process.stdout)
        check_end("the program", process, said)
    return said


def test_success() -> None:
    assert run(["sh", "-c", "echo one; echo two >&2"]) == ["one\n", "two\n"]


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("echo no licence; exit 3", "exit code 3:\n  no licence"),
        ("exit 3", "no output"),
        ("kill -KILL $$", "memory ran out"),
        ("kill -TERM $$", "received SIGTERM"),
    ],
)
def test_failure(script: str, complaint: str) -> None:
    with pytest.raises(LinpackError, match=complaint):
        run(["sh", "-c", script])


def test_timeout() -> None:
    with pytest.raises(LinpackError, match="took too long"):
        run(["sleep", "600"], timeout_seconds=0.1)


def test_a_program_that_ignores_sigterm_is_killed_with_its_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The child keeps the output open, so a reader would wait for it."""
    monkeypatch.setattr(process_module, "KILL_AFTER_SECONDS", 0.2)
    with pytest.raises(LinpackError):
        run(["sh", "-c", "trap '' TERM; sleep 600 & wait; wait"], timeout_seconds=0.5)


def test_nothing_is_left_running_when_its_reader_fails() -> None:
    with (
        pytest.raises(ZeroDivisionError),
        running(["sleep", "600"], os.environ) as process,
    ):
        raise ZeroDivisionError
    assert process.returncode is not None
