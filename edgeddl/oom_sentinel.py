"""Says that a rank was killed for lack of memory, which neither the rank nor mpirun can.

The kernel's OOM killer sends SIGKILL; mpirun reports "signal 9". A shell, which takes less than
1 MB, therefore waits beside each rank. It reads from a pipe that the rank never writes to until it
ends on its own. If the pipe closes before that, the rank is dead, and the shell looks whether the
kernel has counted an OOM kill since the start. What it prints goes to the rank's stderr, which
Open MPI forwards from any host.

The shell stays in the rank's process group. When mpirun ends a job, it signals whole groups, so the
sentinels of ranks that are ended because another one died end with them and print nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from edgeddl.hardware.files import read_text

COUNTER = "/proc/vmstat"  # counts kills of cgroups, too
# What a terminal and mpirun send to whole groups for the rank to act on; SIGTERM ends both.
FOR_THE_RANK = {signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1}
SCRIPT = """
if read -r word; then exit; fi
while read -r name count; do
    if [ "$name" = oom_kill ] && [ "$count" -gt "$1" ]; then printf '%s\\n' "$2" >&2; fi
done < "$3"
"""

_pipe: int | None = None  # of the sentinel that watches this process


def watch(message: str, counter: Path = Path(COUNTER)) -> None:
    """Have `message` printed if this process is killed for lack of memory, until `dismiss`."""
    global _pipe
    kills = read_kills(counter)
    if kills is None:  # the kernel does not count them
        return
    read_end, write_end = os.pipe()
    # inherited by the shell, and blocked from its first moment on
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FOR_THE_RANK)
    with contextlib.suppress(OSError):  # no shell: as without a sentinel
        subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, "edgeddl-oom-sentinel", str(kills), message, str(counter)],
            stdin=read_end,
            stdout=subprocess.DEVNULL,
            env={},
        )
        _pipe = write_end
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(read_end)


def dismiss() -> None:
    """This process ends on its own."""
    global _pipe
    if _pipe is not None:
        with contextlib.suppress(OSError):  # the sentinel is gone
            os.write(_pipe, b"done\n")
        os.close(_pipe)
        _pipe = None


def read_kills(counter: Path = Path(COUNTER)) -> int | None:
    """How many processes the kernel has killed for lack of memory since it was started."""
    lines = (line.split() for line in (read_text(counter) or "").splitlines())
    return next((int(words[1]) for words in lines if words[0] == "oom_kill"), None)
