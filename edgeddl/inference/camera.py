"""Reads a V4L2 camera, such as a USB webcam, with ioctl calls.

Requests and structures are those of linux/videodev2.h on 64-bit Linux. The camera writes frames to
buffers that it shares with this process, because USB cameras do not support read().
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import mmap
import os
import select
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from edgeddl.errors import DataError
from edgeddl.inference.pictures import Picture

QUERYCAP, S_FMT, REQBUFS, QUERYBUF = 0x80685600, 0xC0D05605, 0xC0145608, 0xC0585609
QBUF, DQBUF, STREAMON, STREAMOFF = 0xC058560F, 0xC0585611, 0x40045612, 0x40045613
CAN_CAPTURE, CAN_STREAM, HAS_DEVICE_CAPS = 0x1, 0x4000000, 0x80000000
CAPTURE = MMAP = 1
DAMAGED = 0x40  # flag of a buffer
MJPEG, YUYV = (int.from_bytes(name, "little") for name in (b"MJPG", b"YUYV"))

CAPABILITY = struct.Struct("=84xII12x")  # capabilities of the hardware, and of this device
FORMAT = struct.Struct("=I4xIIIII180x")  # type; width, height, format, field, bytes per line
REQUEST = struct.Struct("=III8x")  # count, type, memory
BUFFER = struct.Struct("=IIII44xII4xI12x")  # index, type, bytes, flags; memory, offset, length

# Cameras offer this size. It is enough for networks, whose inputs are smaller.
WIDTH, HEIGHT = 640, 480
BUFFERS = 2
FRAME_SECONDS = 5.0


def read_camera(device: Path) -> Iterator[Picture]:
    """The newest frame each time one is requested, without end."""
    with contextlib.ExitStack() as stack:
        try:
            camera = _open(device, stack)
        except OSError as error:
            raise _explain(device, error) from None
        number = 0
        while True:
            number += 1
            name = f"{device} frame {number}"
            try:
                yield Picture(name, camera.newest_frame())
            except OSError as error:
                raise _explain(device, error) from None


class _Camera:
    def __init__(self, device: Path, file: int, stack: contextlib.ExitStack) -> None:
        self.device, self.file = device, file
        self._check_capabilities()
        self.format, self.width, self.height, self.row_bytes = self._choose_format()
        self.buffers = self._share_buffers(stack)
        self._call(STREAMON, struct.pack("=i", CAPTURE))
        stack.callback(self._stop)

    def newest_frame(self) -> bytes:
        """Skip frames that were taken while the previous one was in use."""
        while True:
            if not select.select([self.file], [], [], FRAME_SECONDS)[0]:
                raise DataError(
                    f"--camera {self.device} sent no frame within {FRAME_SECONDS:.0f} s",
                    hint="unplug the camera and plug it in again",
                )
            frame = self._take_frame()
            if frame is not None and not select.select([self.file], [], [], 0)[0]:
                return frame if self.format == MJPEG else self._yuyv_to_bmp(frame)

    def _take_frame(self) -> bytes | None:
        taken = self._call(DQBUF, BUFFER.pack(0, CAPTURE, 0, 0, MMAP, 0, 0))
        index, _, size, flags, *_ = BUFFER.unpack(taken)
        frame = None if flags & DAMAGED or not size else self.buffers[index][:size]
        self._queue(index)
        return frame

    def _check_capabilities(self) -> None:
        found = self._call(QUERYCAP, bytes(CAPABILITY.size))
        of_hardware, of_device = CAPABILITY.unpack(found)
        capabilities = of_device if of_hardware & HAS_DEVICE_CAPS else of_hardware
        if not (capabilities & CAN_CAPTURE and capabilities & CAN_STREAM):
            raise DataError(
                f"--camera {self.device} is a video device without pictures",
                hint="a camera often has several devices; try the others in /dev/video*",
            )

    def _choose_format(self) -> tuple[int, int, int, int]:
        for wanted in (MJPEG, YUYV):
            asked = FORMAT.pack(CAPTURE, WIDTH, HEIGHT, wanted, 0, 0)
            _, width, height, found, _, row_bytes = FORMAT.unpack(self._call(S_FMT, asked))
            if found == wanted:
                return found, width, height, row_bytes or 2 * width
        raise DataError(
            f"--camera {self.device} offers neither MJPEG nor YUYV",
            hint="let another program, such as rpicam-still, write pictures to a folder, and give"
            " that folder as --camera",
        )

    def _share_buffers(self, stack: contextlib.ExitStack) -> list[mmap.mmap]:
        count, *_ = REQUEST.unpack(self._call(REQBUFS, REQUEST.pack(BUFFERS, CAPTURE, MMAP)))
        buffers = []
        for index in range(count):
            asked = BUFFER.pack(index, CAPTURE, 0, 0, MMAP, 0, 0)
            *_, offset, length = BUFFER.unpack(self._call(QUERYBUF, asked))
            shared = mmap.mmap(self.file, length, mmap.MAP_SHARED, mmap.PROT_READ, offset=offset)
            buffers.append(stack.enter_context(contextlib.closing(shared)))
            self._queue(index)
        return buffers

    def _queue(self, index: int) -> None:
        self._call(QBUF, BUFFER.pack(index, CAPTURE, 0, 0, MMAP, 0, 0))

    def _stop(self) -> None:
        with contextlib.suppress(OSError):  # it was unplugged
            self._call(STREAMOFF, struct.pack("=i", CAPTURE))

    def _call(self, request: int, argument: bytes) -> bytes:
        return fcntl.ioctl(self.file, request, argument)

    def _yuyv_to_bmp(self, frame: bytes) -> bytes:
        from PIL import Image

        rows = np.frombuffer(frame, np.uint8, self.height * self.row_bytes)
        stream = io.BytesIO()
        pixels = yuyv_to_rgb(rows.reshape(self.height, -1)[:, : 2 * self.width])
        Image.fromarray(pixels).save(stream, "BMP")
        return stream.getvalue()


def yuyv_to_rgb(rows: np.ndarray) -> np.ndarray:
    """Rows of Y0 U Y1 V, two pixels each, as RGB by ITU-R BT.601 with limited range."""
    height, length = rows.shape
    groups = rows.reshape(height, length // 4, 4).astype(np.float32)
    y = 1.164 * (groups[:, :, 0::2] - 16)
    u, v = groups[:, :, 1, None] - 128, groups[:, :, 3, None] - 128
    rgb = np.stack([y + 1.596 * v, y - 0.392 * u - 0.813 * v, y + 2.017 * u], axis=-1)
    return np.clip(np.rint(rgb), 0, 255).astype(np.uint8).reshape(height, length // 2, 3)


def _open(device: Path, stack: contextlib.ExitStack) -> _Camera:
    file = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    stack.callback(os.close, file)
    return _Camera(device, file, stack)


PROBLEMS = {
    errno.ENOENT: ("does not exist", "connect a camera, and list devices with ls /dev/video*"),
    errno.EACCES: ("may not be read by you", "run sudo usermod -aG video $USER and log in again"),
    errno.EBUSY: ("is in use by another program", "close that program"),
    errno.ENOTTY: ("is not a camera", "give a device such as /dev/video0, or a folder"),
    errno.ENODEV: ("is not connected any more", "connect the camera again"),
}


def _explain(device: Path, error: OSError) -> DataError:
    unknown = f"cannot be read: {error.strerror}", "try another device in /dev/video*"
    problem, hint = PROBLEMS.get(error.errno or 0, unknown)
    return DataError(f"--camera {device} {problem}", hint=hint)
