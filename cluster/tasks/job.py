"""A training job on the head: it goes on when the laptop is closed, and can be looked for again."""

from __future__ import annotations

import posixpath
import shlex
from pathlib import Path

from cluster.errors import ClusterError
from cluster.tasks.board import Board, BoardError, CommandFailed

START = Path(__file__).with_name("start_job.sh")
RUNS_ALREADY = 75  # as in start_job.sh
# A job that is told to stop twice ends at once; so soon after the first, both would count as one.
SECOND_STOP_SECONDS = 1


class Job:
    """The one job that runs on a head, or ran there last."""

    def __init__(self, head: Board) -> None:
        self._head = head

    def start(self, command: str, columns: int) -> None:
        """`columns` of a terminal, or 0 for none: lines instead of a progress bar."""
        words = ["sh", "-c", START.read_text(), "start_job", str(columns), command]
        enter = f"cd {shlex.quote(self._head.work)} && "
        try:
            self._head.run(enter + shlex.join(words))
        except CommandFailed as error:
            if error.code == RUNS_ALREADY:
                raise ClusterError(
                    f"a job runs already: {self.command()}",
                    hint="`fab logs` shows it, `fab stop` ends it",
                ) from None
            raise BoardError(
                f"{self._head.name} cannot start a job: {'; '.join(error.last_lines)}",
                hint=f"is there a folder {self._head.work} that {self._user} may write to?",
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
        """Print its log until it has ended; `start`: "-n 40" for the last 40 lines, and so on."""
        watch = "--pid=$(cat job/watcher) -s 0.2 -f"
        self._head.run(f"tail {start} {watch} job/log", hide=False)

    def show(self, lines: int) -> None:
        """Print its last lines; of a bar that has moved, where it stood last."""
        self._head.run(f"tail -n {lines} job/log | sed 's/\\r*$//; s/.*\\r//'", hide=False)

    def log_bytes(self) -> int:
        return int(self._head.run("wc -c <job/log"))

    def code(self) -> int:
        """The exit code of a job that has ended."""
        text = self._head.run("cat job/code 2>/dev/null || :").strip()
        if not text:
            raise BoardError(
                "the job has ended without an exit code",
                hint=f"it was killed, or {self._head.name} lost its power;"
                " fab train -- --resume auto goes on",
            )
        return int(text)

    def stop(self) -> None:
        """Ask it to end in good order; asked a second time, it ends at once."""
        self._succeeds("kill -TERM $(cat job/pid)")

    def stop_by_force(self) -> None:
        self.stop()
        self._succeeds(f"sleep {SECOND_STOP_SECONDS}")
        self.stop()

    def runs(self, named: str | None) -> list[str]:
        """The run folders that it has written to; `named`: one that need not be in runs/."""
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
