"""Who takes part."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from baselines.process import Worker

EDGEDDL, CHAINER = "edgeddl", "Chainer"
PYTORCH = {"PyTorch NCHW": "nchw", "PyTorch channels last": "channels_last"}


@dataclass(frozen=True)
class Systems:
    """All rivals this machine has: PyTorch only where its interpreter is given."""

    torch_python: Path | None

    @property
    def pytorch(self) -> tuple[str, ...]:
        """The names under which PyTorch takes part, one for each layout."""
        return tuple(PYTORCH) if self.torch_python else ()

    @contextmanager
    def start(self, kind: str, names: tuple[str, ...], threads: int) -> Iterator[list[Worker]]:
        """New workers of a kind, "training" or "convolution", for the length of the block."""
        with ExitStack() as stack:
            yield [stack.enter_context(self._start(name, kind, threads)) for name in names]

    def _start(self, name: str, kind: str, threads: int) -> Worker:
        if name in PYTORCH:
            assert self.torch_python is not None
            module, arguments = f"bench_kernels.torch_{kind}", (str(threads), PYTORCH[name])
            return Worker(name, self.torch_python, module, arguments, threads=threads)
        module = f"bench_kernels.{name.lower()}_{kind}"
        return Worker(name, Path(sys.executable), module, threads=threads)
