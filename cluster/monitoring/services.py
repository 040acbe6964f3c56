"""Background processes that outlive the command that started them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ClusterError

START_SECONDS = 60.0
END_SECONDS = 20.0


@dataclass(frozen=True)
class Service:
    """A server process, its address, and the page that answers once it is ready.

    folder: for its log and for the record by which later commands find the process
    """

    name: str
    folder: Path
    address: str
    port: int
    ready_page: str

    @property
    def url(self) -> str:
        return f"http://{f'[{self.address}]' if ':' in self.address else self.address}:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def _record(self) -> Path:
        return self.folder / f"{self.name}.json"

    @property
    def pid(self) -> int | None:
        """PID of the running process, if any. The start time is compared: PIDs are reused."""
        try:
            record = json.loads(self._record.read_text())
            return record["pid"] if _started_at(record["pid"]) == record["started_at"] else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start the process and wait until it answers."""
        self.check_free()
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                command,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,  # not reached by Ctrl-C in this terminal
            )
        record = {"pid": process.pid, "started_at": _started_at(process.pid)}
        self._record.write_text(json.dumps(record) + "\n")
        try:
            self._wait_until_ready(process)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> bool:
        """Stop the process and wait for its end; return False if it was not running."""
        pid = self.pid
        if pid is not None:
            _end(pid)
        self._record.unlink(missing_ok=True)
        return pid is not None

    def check_free(self) -> None:
        """Raise if the service cannot listen on its address."""
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        try:
            socket.create_server((self.address, self.port), family=family).close()
        except OSError as error:
            hint = "list the addresses of this machine with: ip -brief address"
            if error.errno == errno.EADDRINUSE:
                listener = f"ss -ltnp 'sport = :{self.port}'"
                hint = f"use another port (up --help), or stop the process that uses it: {listener}"
            raise ClusterError(
                f"{self.name} cannot listen on port {self.port} of {self.address}:"
                f" {error.strerror or error}",
                hint=hint,
            ) from None

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not answers(self.url + self.ready_page):
            if process.poll() is not None:
                raise ClusterError(
                    f"{self.name} failed to start:\n{self._log_end()}", hint=f"see {self.log}"
                )
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{self.name} did not answer at {self.url} within {START_SECONDS:.0f} s",
                    hint=f"see {self.log}",
                )
            time.sleep(0.1)

    def _log_end(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-5:]
        return "\n".join(f"  {line}" for line in lines)


def answers(url: str) -> bool:
    """Whether a GET request succeeds."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (OSError, ValueError):
        return False


def _started_at(pid: int) -> str:
    """Return the start time of a process in ticks since boot; raise OSError if it has ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    if fields[0] == "Z":
        raise ProcessLookupError(pid)
    return fields[19]


def _end(pid: int) -> None:
    """Send SIGTERM, then SIGKILL if the process does not end in time."""
    started_at = _started_at(pid)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline:
            try:
                if _started_at(pid) != started_at:
                    return
            except OSError:
                with contextlib.suppress(ChildProcessError):  # started by an earlier command
                    os.waitpid(pid, 0)
                return
            time.sleep(0.05)
