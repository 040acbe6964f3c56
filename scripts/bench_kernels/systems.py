"""The systems that are compared."""

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
    """All systems available on this machine; PyTorch only if its interpreter is given."""

    torch_python: Path | None

    @property
    def pytorch(self) -> tuple[str, ...]:
        """PyTorch's names, one for each memory layout."""
        return tuple(PYTORCH) if self.torch_python else ()

    @contextmanager
    def start(self, kind: str, names: tuple[str, ...], threads: int) -> Iterator[list[Worker]]:
        """Start workers of a kind, "training" or "convolution", for the duration of the block."""
        with ExitStack() as stack:
            yield [stack.enter_context(self._start(name, kind, threads)) for name in names]

    def _start(self, name: str, kind: str, threads: int) -> Worker:
        if name in PYTORCH:
            assert self.torch_python is not None
            module, arguments = f"bench_kernels.torch_{kind}", (str(threads), PYTORCH[name])
            return Worker(name, self.torch_python, module, arguments, threads=threads)
        module = f"bench_kernels.{name.lower()}_{kind}"
        return Worker(name, Path(sys.executable), module, threads=threads)
