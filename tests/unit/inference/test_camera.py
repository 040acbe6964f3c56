"""V4L2 cameras, and folders that another program writes pictures to."""

from __future__ import annotations

import errno
import io
import itertools
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgeddl.errors import DataError
from edgeddl.inference import camera
from edgeddl.inference.camera import read_camera, yuyv_to_rgb
from edgeddl.inference.pictures import POLL_SECONDS, watch_folder
from tests.unit.data.pictures import write_picture
from tests.unit.inference.fake_camera import FakeCamera


def test_requests_and_structures_have_the_same_size() -> None:
    for request, structure in [
        (camera.QUERYCAP, camera.CAPABILITY),
        (camera.S_FMT, camera.FORMAT),
        (camera.REQBUFS, camera.REQUEST),
        (camera.QUERYBUF, camera.BUFFER),
    ]:
        assert (request >> 16) & 0x3FFF == structure.size


def test_the_newest_frame_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCamera(tmp_path / "video0", [[b"one", b"two"], [b"three"], [b"4", b"5", b"6"]])
    fake.install(monkeypatch)
    frames = read_camera(fake.device)
    found = [(picture.name, picture.content) for picture in itertools.islice(frames, 3)]
    contents = [b"two", b"three", b"6"]
    assert found == [(f"{fake.device} frame {n}", c) for n, c in enumerate(contents, 1)]
    assert fake.is_streaming
    frames.close()  # type: ignore[attr-defined]
    assert not fake.is_streaming


def test_yuyv_frames_become_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    red_and_grey = bytes([81, 90, 81, 240] * 2 + [126, 128, 126, 128] * 2)
    fake = FakeCamera(tmp_path / "video0", [[red_and_grey]], formats=(camera.YUYV,))
    fake.size = (4, 2)
    fake.install(monkeypatch)
    content = next(read_camera(fake.device)).content
    assert isinstance(content, bytes)
    pixels = np.asarray(Image.open(io.BytesIO(content)))
    assert pixels.shape == (2, 4, 3)
    np.testing.assert_allclose(pixels[0], [[255, 0, 0]] * 4, atol=2)
    np.testing.assert_allclose(pixels[1], [[128, 128, 128]] * 4, atol=2)


def test_yuyv_agrees_with_pillow() -> None:
    """Pillow uses the full range, so it gets scaled values."""
    y, u, v = 100, 110, 160
    scaled = [round((y - 16) * 255 / 219), *(round((c - 128) * 255 / 224 + 128) for c in (u, v))]
    expected = Image.new("YCbCr", (1, 1), tuple(scaled)).convert("RGB").getpixel((0, 0))
    found = yuyv_to_rgb(np.array([[y, u, y, v]], np.uint8))
    np.testing.assert_allclose(found[0, 0], expected, atol=2)


def test_cameras_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="absent does not exist") as caught:
        next(read_camera(tmp_path / "absent"))
    assert "ls /dev/video" in str(caught.value)
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    with pytest.raises(DataError, match=r"notes.txt is not a camera"):
        next(read_camera(text))
    fake = FakeCamera(tmp_path / "video0", [])
    fake.install(monkeypatch)
    with pytest.raises(DataError, match="sent no frame within 5 s"):
        next(read_camera(fake.device))
    fake.formats = ()
    with pytest.raises(DataError, match="neither MJPEG nor YUYV"):
        next(read_camera(fake.device))
    fake.capabilities = 0
    with pytest.raises(DataError, match="video device without pictures"):
        next(read_camera(fake.device))


def test_a_camera_that_is_unplugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCamera(tmp_path / "video0", [[b"one"], [b"two"]])
    fake.install(monkeypatch)
    frames = read_camera(fake.device)
    next(frames)
    fake.fails_with = errno.ENODEV
    with pytest.raises(DataError, match="video0 is not connected any more"):
        next(frames)


def test_a_folder_gives_new_and_replaced_pictures(tmp_path: Path) -> None:
    write_picture(tmp_path / "old.png")
    (tmp_path / "notes.txt").write_text("not a picture")

    def write() -> None:
        time.sleep(2 * POLL_SECONDS)
        write_picture(tmp_path / "new.png")
        time.sleep(4 * POLL_SECONDS)
        write_picture(tmp_path / "old.png", size=(50, 50))

    writer = threading.Thread(target=write)
    writer.start()
    found = [picture.content for picture in itertools.islice(watch_folder(tmp_path), 2)]
    writer.join()
    assert found == [tmp_path / "new.png", tmp_path / "old.png"]


def test_a_picture_counts_when_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = write_picture(tmp_path / "elsewhere" / "slow.png").read_bytes()
    target = tmp_path / "watched" / "slow.png"
    target.parent.mkdir()
    parts = [content[:10], content[:50], content]

    def write_more(seconds: float) -> None:
        if parts:
            target.write_bytes(parts.pop(0))

    monkeypatch.setattr("edgeddl.inference.pictures.time.sleep", write_more)
    picture = next(watch_folder(target.parent))
    assert picture.content == target and target.read_bytes() == content


def test_a_folder_that_disappears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "watched"
    folder.mkdir()
    monkeypatch.setattr("edgeddl.inference.pictures.time.sleep", lambda _: folder.rmdir())
    with pytest.raises(DataError, match="watched cannot be listed any more"):
        next(watch_folder(folder))
