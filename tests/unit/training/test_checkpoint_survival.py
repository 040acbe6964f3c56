"""Full disks, killed writers and readers beside a writer: there is always a readable checkpoint."""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgeddl.training.checkpoint import (
    CheckpointStore,
    find_checkpoints,
    read_checkpoint,
)
from tests.unit.training.test_checkpoint import names, of_step


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "run" / "checkpoints", keep=2)


def start_python(
    script: str, *arguments: object, launcher: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    command = [*launcher, sys.executable, "-c", script, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)


def output_of(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "ignored" not in errors, "an exception that nobody could catch"
    return output


# Full disks

SAVE_UNTIL_REFUSED = """
import os, resource, signal, sys
from pathlib import Path
import numpy as np
from edgeddl.errors import CheckpointError
from edgeddl.training.checkpoint import Checkpoint, CheckpointStore, read_checkpoint

folder, room = Path(sys.argv[1]) / "checkpoints", int(sys.argv[2])
small = {"a": np.ones(1000), "b": np.ones(1000)}
store = CheckpointStore(folder, keep=2)
overhead = store.save(2, Checkpoint({**small, "c": np.ones(1)}, {})).stat().st_size - 8
store.save(1, Checkpoint(small, {}), best=True)
if room:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
else:
    disk = os.statvfs(folder)
    room = disk.f_bavail * disk.f_frsize

fits = (room - overhead) // 8
for size in (10 * room, room // 8, fits + 1):  # the last one lacks room for its last bytes only
    for step in (1, 2):
        try:
            store.save(step, Checkpoint({**small, "c": np.ones(size)}, {}), best=True)
        except CheckpointError as error:
            print(error.message)
        assert sorted(p.name for p in folder.iterdir()) == ["best.npz", "checkpoint-00000001.npz"]
        for path in folder.iterdir():
            assert list(read_checkpoint(path).arrays) == ["a", "b"]
store.save(2, Checkpoint({**small, "c": np.ones(fits)}, {}), best=True)
"""


def test_a_file_that_may_not_grow_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    output = output_of(start_python(SAVE_UNTIL_REFUSED, tmp_path, 256_000))
    assert output.count(os.strerror(errno.EFBIG)) == 6


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    launcher = on_a_small_disk(tmp_path)
    output = output_of(start_python(SAVE_UNTIL_REFUSED, tmp_path, 0, launcher=launcher))
    assert output.count(os.strerror(errno.ENOSPC)) == 6


def on_a_small_disk(folder: Path) -> tuple[str, ...]:
    """Starts a command that alone sees a disk of 256 KiB at `folder`; skips where not allowed."""
    mount = f'mount -t tmpfs -o size=256k none "{folder}" && exec "$@"'
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "-r", "--mount"]
    launcher = (*namespace, "sh", "-c", mount, "sh")
    if not shutil.which("unshare") or subprocess.run([*launcher, "true"], check=False).returncode:
        pytest.skip("mounting a file system is not allowed here")
    return launcher


READ_ONLY = """
import subprocess, sys
from pathlib import Path
from edgeddl.errors import CheckpointError, ConfigError
from edgeddl.training.checkpoint import Checkpoint, CheckpointStore
from edgeddl.training.run_folder import choose_run_folder

base = Path(sys.argv[1])
store = CheckpointStore(choose_run_folder(base, "run", None, "never").checkpoints, keep=1)
store.save(1, Checkpoint({}, {}))
subprocess.run(["mount", "-o", "remount,ro", base], check=True)
try:
    store.save(2, Checkpoint({}, {}))
except CheckpointError as error:
    print(error.message)
for resume in ("never", str(base / "run")):
    try:
        choose_run_folder(base, "run", None, resume)
    except ConfigError as error:
        print(error.message)
assert store.latest()[0].name == "checkpoint-00000001.npz"
"""


def test_a_disk_that_became_read_only_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    launcher = on_a_small_disk(tmp_path)
    output = output_of(start_python(READ_ONLY, tmp_path, launcher=launcher))
    assert output.count(os.strerror(errno.EROFS)) == 3


# Writers that die, and readers beside them

SAVE_FOREVER = """
import itertools, os, sys, time
from pathlib import Path
import numpy as np
from edgeddl.training.checkpoint import Checkpoint, CheckpointStore

store = CheckpointStore(Path(sys.argv[1]), keep=2)
if sys.argv[3] == "stop-before-rename":
    os.replace = lambda *names: time.sleep(60)
for step in itertools.count(int(sys.argv[2])):
    arrays = {name: np.full(100_000, step, np.float32) for name in "abcde"}
    store.save(step, Checkpoint(arrays, {"step": step}), best=step % 2 == 0)
"""


def wait_for(folder: Path, pattern: str) -> None:
    deadline = time.monotonic() + 30
    while not any(folder.glob(pattern)):
        assert time.monotonic() < deadline, f"no {pattern} in {names(folder)}"
        time.sleep(0.001)


def kill(process: subprocess.Popen[str]) -> None:
    assert process.poll() is None, process.communicate()
    process.kill()
    process.communicate()


def latest_step(store: CheckpointStore) -> int:
    found = store.latest()
    assert found is not None
    step = int(found[1].meta["step"])
    for array in found[1].arrays.values():
        assert np.all(array == step)
    return step


def test_killed_before_the_rename(store: CheckpointStore) -> None:
    store.save(1, of_step(1))
    process = start_python(SAVE_FOREVER, store.folder, 2, "stop-before-rename")
    wait_for(store.folder, ".checkpoint-00000002.npz.*.tmp")
    kill(process)
    assert latest_step(store) == 1
    store.save(3, of_step(3))
    assert names(store.folder) == ["checkpoint-00000001.npz", "checkpoint-00000003.npz"]


def test_killed_at_any_time_there_is_a_readable_latest(
    store: CheckpointStore, caplog: pytest.LogCaptureFixture
) -> None:
    delays = random.Random(0)
    step = 0
    for _ in range(8):
        process = start_python(SAVE_FOREVER, store.folder, step + 1, "")
        wait_for(store.folder, f"checkpoint-{step + 1:08d}.npz")
        time.sleep(delays.uniform(0, 0.03))
        kill(process)
        assert latest_step(store) > step
        step = latest_step(store)
        for path in find_checkpoints(store.folder):
            read_checkpoint(path)
    assert "damaged" not in caplog.text


@pytest.fixture
def saving_thread(store: CheckpointStore) -> Iterator[threading.Thread]:
    stop = threading.Event()

    def save_until_stopped() -> None:
        for step in itertools.count(1):
            store.save(step, of_step(step, size=20_000), best=True)
            if stop.is_set():
                return

    thread = threading.Thread(target=save_until_stopped)
    thread.start()
    yield thread
    stop.set()
    thread.join()


def test_a_reader_beside_the_writer_always_finds_a_whole_one(
    store: CheckpointStore, saving_thread: threading.Thread, caplog: pytest.LogCaptureFixture
) -> None:
    wait_for(store.folder.parent.parent, "run/checkpoints/checkpoint-*.npz")
    steps = [latest_step(store) for _ in range(150)]
    assert steps == sorted(steps)
    assert steps[-1] > steps[0]
    assert saving_thread.is_alive()
    assert "damaged" not in caplog.text
