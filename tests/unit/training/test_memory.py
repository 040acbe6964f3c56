"""The memory of a step, predicted before the first one, against what it takes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgeddl.comm.arena import Arena
from edgeddl.comm.bucket import plan_buckets
from edgeddl.config import TrainConfig
from edgeddl.data.pack import images_name, labels_name, write_index
from edgeddl.models import build_model
from edgeddl.training.memory import REFUSAL_MARGIN, WARNING_MARGIN, MemoryPrediction, smaller_batch
from edgeddl.training.parameters import move_parameters, observe_parameters
from edgeddl.training.pass_memory import BlankPasses, pass_bytes, without_trace
from edgeddl.training.statistics import RunningStatistics
from tests.support import REPOSITORY

IMAGE_SHAPE = (3, 32, 32)
LIMIT_BYTES = 230 << 20
TRAIN = "--model resnet9 --dataset shapes --batch-size 256 --limit-train 256 --limit-test 16"


def make_passes() -> tuple[object, BlankPasses]:
    model = build_model("resnet9", stem="cifar", classes=10, seed=0)
    specs = observe_parameters(model, IMAGE_SHAPE, 10)
    arena = Arena(plan_buckets(specs, 4 << 20))
    move_parameters(model, arena)
    return model, BlankPasses(model, arena, IMAGE_SHAPE)


@pytest.mark.parametrize("images", [5, 80])  # 80: arrays are computed again, kernels run early
def test_two_small_passes_predict_a_large_one(images: int) -> None:
    _, passes = make_passes()
    predicted = pass_bytes(passes.train, images)
    tracemalloc.start()
    try:
        passes.train(images)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert predicted == pytest.approx(peak, rel=0.03)


def test_measuring_leaves_no_trace() -> None:
    model, passes = make_passes()
    statistics = RunningStatistics(model).flat()
    state = np.random.get_state()[1].copy()
    with without_trace(model):
        passes.train(3)
        np.random.rand()
    assert np.array_equal(RunningStatistics(model).flat(), statistics)
    assert np.array_equal(np.random.get_state()[1], state)


def test_a_prediction_fits_up_to_its_margin() -> None:
    assert MemoryPrediction(100, 150, 73).fits(WARNING_MARGIN)
    assert not MemoryPrediction(100, 150, 72).fits(WARNING_MARGIN)
    assert MemoryPrediction(100, 150, 36).fits(REFUSAL_MARGIN)
    assert not MemoryPrediction(100, 150, 34).fits(REFUSAL_MARGIN)
    assert MemoryPrediction(100, 150, None).fits(WARNING_MARGIN)


def test_a_smaller_batch_keeps_images_and_learning_rate_of_a_step() -> None:
    config = TrainConfig(batch_size=48, accumulation=2, lr=0.1)
    assert "--batch-size 32 --accumulation 3 --lr 0.0666667 " in smaller_batch(config, 40)
    unscaled = TrainConfig(batch_size=128, lr_scaling="none")
    assert "--batch-size 32 --accumulation 4 (" in smaller_batch(unscaled, 36)


@pytest.fixture
def memory_cgroup() -> Iterator[Path]:
    """A cgroup with little memory and no swap."""
    if os.geteuid() != 0:
        pytest.skip("a memory limit needs root")
    first, second = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    version_1 = (first / "memory.limit_in_bytes").exists()
    folder = (first if version_1 else second) / f"edgeddl-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup with a memory limit can be made here: {error}")
    limit = folder / ("memory.limit_in_bytes" if version_1 else "memory.max")
    try:
        if not limit.exists():
            pytest.skip("the memory controller is not enabled for cgroups below /sys/fs/cgroup")
        limit.write_text(str(LIMIT_BYTES))
        swap = folder / ("memory.swappiness" if version_1 else "memory.swap.max")
        if swap.exists():
            swap.write_text("0")
        yield folder
    finally:
        _remove(folder)


def _remove(cgroup: Path) -> None:
    """Once the last process in it is reaped: a sentinel ends just after its rank."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            cgroup.rmdir()
            return
        time.sleep(0.1)
    cgroup.rmdir()


def train_within(cgroup: Path, run_folder: Path, *options: str) -> tuple[int, str]:
    words = [*TRAIN.split(), "--run-dir", str(run_folder), *options]
    return run_within(cgroup, "-m", "edgeddl.train", *words)


def run_within(cgroup: Path, *words: str) -> tuple[int, str]:
    command = f"echo $$ > {cgroup}/cgroup.procs; exec {sys.executable}"
    run = subprocess.run(
        ["sh", "-c", f'{command} "$@"', "sh", *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return run.returncode, run.stderr


def test_a_batch_that_does_not_fit_is_refused(memory_cgroup: Path, tmp_path: Path) -> None:
    code, errors = train_within(memory_cgroup, tmp_path / "run")
    assert code == 2
    assert "--batch-size 256 may not fit into memory" in errors
    assert "--accumulation" in errors
    assert not (tmp_path / "run").exists()


def test_an_oom_kill_is_reported_as_such(memory_cgroup: Path, tmp_path: Path) -> None:
    code, errors = train_within(memory_cgroup, tmp_path / "run", "--memory-check", "warn")
    assert code == -9
    assert "warning: --batch-size 256 may not fit" in errors
    assert "rank 0 on" in errors
    assert "was killed: the kernel ran out of memory" in errors


def write_large_pack(folder: Path, count: int, side: int = 96) -> Path:
    """A pack of random images, most of them copies of each other."""
    folder.mkdir()
    block = np.random.default_rng(0).integers(0, 256, (100, side, side, 3), np.uint8).tobytes()
    counts = {"train": count, "test": 100}
    for split, images in counts.items():
        (folder / images_name(split)).write_bytes(block * (images // 100))
        (folder / labels_name(split)).write_bytes((np.arange(images) % 2).astype("<i4").tobytes())
    index = {"classes": ["a", "b"], "image_shape": [3, side, side], "counts": counts}
    index |= {"mean": [0.5] * 3, "std": [0.25] * 3, "fit": "crop", "skipped": 0, "source": ""}
    write_index(folder, index)
    drop_cache(folder / images_name("train"))
    return folder


def drop_cache(file: Path) -> None:
    """Cached pages would count towards the limit of this process, not of the one that reads."""
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_a_pack_may_be_larger_than_the_memory(memory_cgroup: Path, tmp_path: Path) -> None:
    """The page cache counts towards the limit, but the kernel can evict it."""
    pack = write_large_pack(tmp_path / "pack", 12_000)
    assert (pack / images_name("train")).stat().st_size > 1.3 * LIMIT_BYTES
    load = "from edgeddl.data import load_dataset as load; load({!r}).train.images.copy()"
    assert run_within(memory_cgroup, "-c", load.format(f"pack:{pack}"))[0] == -9
    drop_cache(pack / images_name("train"))
    words = ["--model", "tests.models:TinyNet", "--dataset", f"pack:{pack}", "--epochs", "1"]
    words += ["--no-augment", "--batch-size", "16", "--limit-train", "12000", "--limit-test", "100"]
    code, errors = train_within(memory_cgroup, tmp_path / "run", *words)
    assert code == 0, errors
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["images"] == 12_000
