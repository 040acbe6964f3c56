"""Reports that a rank has died, and whether it was killed for lack of memory.

The kernel's OOM killer sends SIGKILL, and mpirun reports only "signal 9". Each rank therefore
starts a sentinel, a shell that uses less than 1 MB. The sentinel reads from a pipe to which the
rank writes only when it exits normally. If the pipe closes without that, the rank is dead. The
sentinel then sends a last heartbeat for it, and checks whether the kernel has counted an OOM kill
since the start. Both go to the rank's stderr, which Open MPI forwards from any host.

The sentinel stays in the rank's process group. When mpirun ends a job, it signals whole groups. The
sentinels of ranks that end because another rank died are therefore ended too and print nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from edgeddl.hardware.files import read_text

COUNTER = "/proc/vmstat"  # also counts kills by cgroup limits
# Terminals and mpirun send these to the whole group, but only the rank should react. SIGTERM ends
# both.
BLOCKED_SIGNALS = {signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1}
SCRIPT = """
if read -r word; then exit; fi
printf '%s' "$4" >&2
while read -r name count; do
    if [ "$name" = oom_kill ] && [ "$count" -gt "$1" ]; then printf '%s\\n' "$2" >&2; fi
done < "$3"
"""

_pipe: int | None = None  # to the sentinel of this process


def watch(message: str, last_heartbeat: str = "", counter: Path = Path(COUNTER)) -> None:
    """If this process dies before `dismiss`, write its last heartbeat.

    If the kernel has killed a process for lack of memory by then, also print `message`.
    """
    global _pipe
    kills = read_kills(counter)
    if kills is None:  # the kernel does not count OOM kills
        return
    read_end, write_end = os.pipe()
    # The shell inherits the mask, so the signals are blocked from its start.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED_SIGNALS)
    arguments = (str(kills), message, str(counter), last_heartbeat)
    with contextlib.suppress(OSError):  # without a shell there is no sentinel
        subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, "edgeddl-oom-sentinel", *arguments],
            stdin=read_end,
            stdout=subprocess.DEVNULL,
            env={},
        )
        _pipe = write_end
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(read_end)


def dismiss() -> None:
    """Stop the sentinel: this process is about to exit normally."""
    global _pipe
    if _pipe is not None:
        with contextlib.suppress(OSError):  # the sentinel is gone
            os.write(_pipe, b"done\n")
        os.close(_pipe)
        _pipe = None


def read_kills(counter: Path = Path(COUNTER)) -> int | None:
    """The number of processes that the kernel has killed for lack of memory since boot."""
    lines = (line.split() for line in (read_text(counter) or "").splitlines())
    return next((int(words[1]) for words in lines if words[0] == "oom_kill"), None)
