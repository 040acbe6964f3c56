"""A V4L2 camera whose driver is this file: buffers are parts of a regular file."""

from __future__ import annotations

import errno
import mmap
from pathlib import Path

import pytest

from edgeddl.inference import camera

BUFFER_BYTES = 256 * mmap.PAGESIZE


class FakeCamera:
    """`arrivals`: frames in groups; those of a group arrive while the program is busy."""

    def __init__(
        self, device: Path, arrivals: list[list[bytes]], formats: tuple[int, ...] = (camera.MJPEG,)
    ) -> None:
        device.write_bytes(bytes(camera.BUFFERS * BUFFER_BYTES))
        self.device, self.arrivals, self.formats = device, arrivals, formats
        self.capabilities = camera.CAN_CAPTURE | camera.CAN_STREAM
        self.ready: list[bytes] = []
        self.queued: list[int] = []
        self.size = (camera.WIDTH, camera.HEIGHT)
        self.is_streaming = False
        self.fails_with: int | None = None

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(camera.fcntl, "ioctl", self.ioctl)
        monkeypatch.setattr(camera.select, "select", self.select)

    def select(self, files: list[int], _: object, __: object, timeout: float) -> tuple[list[int]]:
        if timeout and not self.ready and self.arrivals:
            self.ready = self.arrivals.pop(0)
        return (files if self.ready else [],)

    def ioctl(self, file: int, request: int, argument: bytes) -> bytes:
        assert (request >> 16) & 0x3FFF == len(argument)  # the number contains the size
        if request == camera.QUERYCAP:
            return camera.CAPABILITY.pack(camera.HAS_DEVICE_CAPS, self.capabilities)
        if request == camera.S_FMT:
            kind, _, _, wanted, field, _ = camera.FORMAT.unpack(argument)
            found = wanted if wanted in self.formats else 0
            return camera.FORMAT.pack(kind, *self.size, found, field, 0)
        if request == camera.REQBUFS:
            return argument
        if request in (camera.STREAMON, camera.STREAMOFF):
            self.is_streaming = request == camera.STREAMON
            return argument
        index, *_ = camera.BUFFER.unpack(argument)
        if request == camera.QBUF:
            self.queued.append(index)
            return argument
        if request == camera.QUERYBUF:
            return camera.BUFFER.pack(index, 1, 0, 0, 1, index * BUFFER_BYTES, BUFFER_BYTES)
        assert request == camera.DQBUF
        return self._deliver()

    def _deliver(self) -> bytes:
        if self.fails_with is not None:
            raise OSError(self.fails_with, "")
        if not self.queued:
            raise OSError(errno.EIO, "no buffer is queued")
        index, frame = self.queued.pop(0), self.ready.pop(0)
        with self.device.open("r+b") as file:
            file.seek(index * BUFFER_BYTES)
            file.write(frame)
        return camera.BUFFER.pack(index, 1, len(frame), 0, 1, 0, BUFFER_BYTES)
