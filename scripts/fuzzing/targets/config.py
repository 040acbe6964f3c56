"""Options of a training run, from a TOML file and from the command line."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from random import Random

from edgeddl.config import TrainConfig
from edgeddl.options import parse_train_options, read_config_file
from edgeddl.training.schedule import plan_schedule, scaled_learning_rate
from fuzzing.mutation import NUMBERS, mutate

SAMPLE = b"""\
model = "resnet9"
dataset = "shapes"
batch-size = 64
balance = "1,0.5"
lr = 0.1
schedule = "step"
step-at = [0.3, 0.6]
warmup-epochs = 1
nesterov = true
bucket-mib = 4.0
stall-timeout-seconds = 600
"""
TOKENS = (
    *(b"[", b"]", b"{", b"}", b"[\n", b"[[", b'"""', b"'", b"a.", b"a.b = 1\n", b"[a]\n", b"\\u0"),
    *(b"2001-01-01", b"lr = ", b"\xef\xbb\xbf", b"\r", b"#", b"=", b"\n", b"{a=", b"99:99:99"),
)


class _Config:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "run.toml"

    def make(self, random: Random) -> bytes:
        """Generate a file or, after a NUL, an option with its value."""
        if random.random() < 0.8:
            return mutate(random, SAMPLE, TOKENS)
        option = random.choice(fields(TrainConfig))
        value = mutate(random, random.choice((b"1", b"0.5,0.75", b"auto")), (*NUMBERS, *TOKENS))
        return b"\0" + f"--{option.name.replace('_', '-')}".encode() + b"=" + value

    def check(self, data: bytes) -> None:
        if data.startswith(b"\0"):
            config = parse_train_options([data[1:].decode("utf-8", "replace")])
        else:
            self._path.write_bytes(data)
            config = TrainConfig(**read_config_file(self._path))
        json.dumps(config.to_json(), allow_nan=False)
        int((config.bucket_mib or 4) * 2**20)
        peak = scaled_learning_rate(config.lr, 4, config.accumulation, config.lr_scaling)
        rate = plan_schedule(
            config.schedule,
            start=config.lr,
            peak=peak,
            epochs=config.epochs,
            warmup_epochs=config.warmup_epochs or 0.0,
            step_at=config.step_at,
            step_factor=config.step_factor,
        )
        rate(config.epochs / 2)


make_target = _Config
