"""Processes that go on after the command that started them, and are found again by the next one."""

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
    """A program, where it listens, and the page that answers once it is ready.

    folder: of its log, and of the file by which the next command knows it
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
        """Of the process, if it is still the one that was started: numbers are used again."""
        try:
            record = json.loads(self._record.read_text())
            return record["pid"] if _started_at(record["pid"]) == record["started_at"] else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start it and wait until it answers."""
        self.check_free()
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                command,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C at this terminal is not for it
            )
        record = {"pid": process.pid, "started_at": _started_at(process.pid)}
        self._record.write_text(json.dumps(record) + "\n")
        try:
            self._wait_until_ready(process)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> bool:
        """End it and wait for its end; False if it was not running."""
        pid = self.pid
        if pid is not None:
            _end(pid)
        self._record.unlink(missing_ok=True)
        return pid is not None

    def check_free(self) -> None:
        """Raise unless the service can listen."""
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        try:
            socket.create_server((self.address, self.port), family=family).close()
        except OSError as error:
            hint = "ip -brief address shows the addresses of this machine"
            if error.errno == errno.EADDRINUSE:
                who = f"ss -ltnp 'sport = :{self.port}'"
                hint = f"give another port (up --help), or end what is there: {who}"
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
                    f"{self.name} has ended at once:\n{self._last_words()}", hint=f"see {self.log}"
                )
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{self.name} does not answer at {self.url} after {START_SECONDS:.0f} s",
                    hint=f"see {self.log}",
                )
            time.sleep(0.1)

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-5:]
        return "\n".join(f"  {line}" for line in lines)


def answers(url: str) -> bool:
    """Whether a page is there, in good order."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (OSError, ValueError):
        return False


def _started_at(pid: int) -> str:
    """When a process was started, in ticks since the machine was; raises if it is not there."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    if words[0] == "Z":
        raise ProcessLookupError(pid)
    return words[19]


def _end(pid: int) -> None:
    """Ask, wait, and force it if it does not listen."""
    started_at = _started_at(pid)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):  # started by an earlier command
                os.waitpid(pid, os.WNOHANG)
            try:
                if _started_at(pid) != started_at:
                    return
            except OSError:
                return
            time.sleep(0.05)
