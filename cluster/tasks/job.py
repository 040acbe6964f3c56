"""A training job on the head board. It continues when the connection from the laptop ends."""

from __future__ import annotations

import posixpath
import shlex
from pathlib import Path

from cluster.errors import ClusterError
from cluster.tasks.board import Board, BoardError, CommandFailed

START = Path(__file__).with_name("start_job.sh")
ALREADY_RUNNING = 75  # as in start_job.sh
# A second stop signal ends the job immediately; sooner, both would count as one.
SECOND_STOP_SECONDS = 1


class Job:
    """The job that runs on a head, or the last one that did."""

    def __init__(self, head: Board) -> None:
        self._head = head

    def start(self, command: str, columns: int) -> None:
        """Start a command in a terminal of `columns`, or without one (0): no progress bar then."""
        words = ["sh", "-c", START.read_text(), "start_job", str(columns), command]
        enter = f"cd {shlex.quote(self._head.work)} && "
        try:
            self._head.run(enter + shlex.join(words))
        except CommandFailed as error:
            if error.code == ALREADY_RUNNING:
                raise ClusterError(
                    f"a job is already running: {self.command()}",
                    hint="show it with `fab logs`, or end it with `fab stop`",
                ) from None
            raise BoardError(
                f"{self._head.name} cannot start a job: {'; '.join(error.last_lines)}",
                hint=f"check that {self._user} can write to {self._head.work}",
            ) from None

    @property
    def _user(self) -> str:
        return str(self._head.host.variables["ansible_user"])

    def command(self) -> str:
        return self._head.run("cat job/command").strip()

    def exists(self) -> bool:
        return self._succeeds("test -s job/command")

    def is_running(self) -> bool:
        return self.exists() and not self._succeeds("flock -n job/lock true")

    def follow(self, start: str) -> None:
        """Print the log until the job ends; `start` is tail's option, such as "-n 40"."""
        watch = "--pid=$(cat job/watcher) -s 0.2 -f"
        self._head.run(f"tail {start} {watch} job/log", hide=False)

    def show(self, lines: int) -> None:
        """Print the last lines of the log, with only the last state of a progress bar."""
        self._head.run(f"tail -n {lines} job/log | sed 's/\\r*$//; s/.*\\r//'", hide=False)

    def log_bytes(self) -> int:
        return int(self._head.run("wc -c <job/log"))

    def code(self) -> int:
        """Return the exit code of a finished job."""
        text = self._head.run("cat job/code 2>/dev/null || :").strip()
        if not text:
            raise BoardError(
                "the job ended without an exit code",
                hint=f"it was killed, or {self._head.name} lost power;"
                " continue it with fab train -- --resume auto",
            )
        return int(text)

    def stop(self) -> None:
        """Request a graceful stop; a second request ends the job immediately."""
        self._succeeds("kill -TERM $(cat job/pid)")

    def stop_by_force(self) -> None:
        self.stop()
        self._succeeds(f"sleep {SECOND_STOP_SECONDS}")
        self.stop()

    def runs(self, named: str | None) -> list[str]:
        """Return the run folders the job wrote to; `named` is one that may be outside runs/."""
        written = "find runs -type f -newer job/command -printf '%P\\n' | cut -d/ -f1 | sort -u"
        found = [f"runs/{name}" for name in self._head.run(written).splitlines()]
        if named and posixpath.normpath(named) not in found:
            found += [named] if self._succeeds(f"test -d {shlex.quote(named)}") else []
        return found

    def _succeeds(self, line: str) -> bool:
        try:
            self._head.run(line)
        except CommandFailed:
            return False
        return True
