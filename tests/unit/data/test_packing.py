"""Packs: complete or absent, resumable, and refused if damaged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from edgeddl.__main__ import main
from edgeddl.data import folder, pack, packing
from edgeddl.data.pack import open_pack
from edgeddl.data.packing import PackOptions, pack_folder, part_folder
from edgeddl.data.picture import decode
from edgeddl.errors import DataError
from tests.unit.data.pictures import COLOURS, write_bomb, write_folder, write_picture

OPTIONS = PackOptions(image_size=(24, 16))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "my pictures Ω")


def contents(path: Path) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in pack.FILE_NAMES}


def test_contents(tmp_path: Path, source: Path) -> None:
    packed = open_pack(pack_folder(source, tmp_path / "pack", OPTIONS), verify=True)
    scanned = folder.scan(source, OPTIONS.test_fraction)
    assert packed.classes == ("blue", "green", "red")
    for part, pictures in ((packed.train, scanned.train), (packed.test, scanned.test)):
        assert len(part) == len(pictures) > 0
        assert isinstance(part.images, np.memmap)
        for image, label, found in zip(part.images, part.labels, pictures, strict=True):
            np.testing.assert_array_equal(image, decode(found.path, (24, 16), "crop", 3))
            assert packed.classes[label] == found.path.parent.name
    pixels = packed.train.images.reshape(-1, 3) / 255
    np.testing.assert_allclose(packed.mean, pixels.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(packed.std, pixels.std(axis=0), rtol=1e-5)
    assert not part_folder(tmp_path / "pack").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my pictures Ω", "pack"]


def test_the_split_is_stable(tmp_path: Path, source: Path) -> None:
    before = {found.key for found in folder.scan(source, 0.3).test}
    write_picture(source / "red" / "another.png")
    after = {found.key for found in folder.scan(source, 0.3).test}
    assert after - {"red/another.png"} == before
    assert {found.key for found in folder.scan(source, 0.5).test} > before


def test_the_first_pictures_show_all_classes(source: Path) -> None:
    assert {found.label for found in folder.scan(source, 0.1).train[:15]} == {0, 1, 2}


@pytest.mark.parametrize("test", ["test", "val"])
def test_folders_of_training_and_test_pictures(tmp_path: Path, test: str) -> None:
    write_folder(tmp_path / "in" / "train", 3)
    write_folder(tmp_path / "in" / test, 2)
    packed = open_pack(pack_folder(tmp_path / "in", tmp_path / "pack", OPTIONS))
    assert (len(packed.train), len(packed.test)) == (9, 6)


def test_train_may_be_a_class(tmp_path: Path) -> None:
    for name in ("car", "train"):
        for number in range(9):
            write_picture(tmp_path / name / f"{number}.jpg")
    assert folder.scan(tmp_path, 0.2).classes == ("car", "train")


@pytest.mark.parametrize(("side", "expected"), [(40, (32, 32)), (100, (224, 224))])
def test_default_size(tmp_path: Path, side: int, expected: tuple[int, int]) -> None:
    write_folder(tmp_path, 4, (side, side))
    assert folder.default_size(folder.scan(tmp_path, 0.3).train) == expected


@pytest.mark.parametrize("channels", [1, 4])
def test_channels(tmp_path: Path, source: Path, channels: int) -> None:
    options = PackOptions(image_size=(8, 8), channels=channels)
    packed = open_pack(pack_folder(source, tmp_path / "pack", options))
    assert packed.train.image_shape == (channels, 8, 8) and packed.mean.shape == (channels,)


def test_interrupted_packing_continues(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "BLOCK", 8)
    whole = pack_folder(source, tmp_path / "whole", OPTIONS)
    decoded = []

    def interrupt(*arguments: object) -> None:
        decoded.append(arguments)
        if len(decoded) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        write = packing.write_json
        patch.setattr(packing, "write_json", lambda *args: (write(*args), interrupt(*args)))
        with pytest.raises(KeyboardInterrupt):
            pack_folder(source, tmp_path / "pack", OPTIONS)
    part = part_folder(tmp_path / "pack")
    assert json.loads((part / "progress.json").read_bytes())["splits"]["train"]["consumed"] == 24
    assert not (tmp_path / "pack").exists()
    with (part / "train-images.bin").open("ab") as file:
        file.write(b"written after the last record")
    counted = []
    original = packing._try_decode
    monkeypatch.setattr(
        packing, "_try_decode", lambda *args: (counted.append(args), original(*args))[1]
    )
    pack_folder(source, tmp_path / "pack", OPTIONS)
    assert len(counted) == 60 - 24
    assert contents(tmp_path / "pack") == contents(whole)
    assert open_pack(whole).fingerprint == open_pack(tmp_path / "pack", verify=True).fingerprint


def test_a_complete_pack_is_kept_and_others_are_not_overwritten(
    tmp_path: Path, source: Path
) -> None:
    path = pack_folder(source, tmp_path / "pack", OPTIONS)
    stamp = (path / "index.json").stat().st_mtime_ns
    pack_folder(source, path, OPTIONS)
    assert (path / "index.json").stat().st_mtime_ns == stamp
    write_picture(source / "red" / "new.png")
    with pytest.raises(DataError, match=r"already exists(.|\n)*hint: delete it"):
        pack_folder(source, path, OPTIONS)


@pytest.mark.parametrize("bad", ["text", "truncated", "bomb"])
def test_bad_pictures_stop_or_are_skipped(tmp_path: Path, source: Path, bad: str) -> None:
    path = source / "red" / "broken.png"
    if bad == "bomb":
        write_bomb(path)
    else:
        path.write_bytes(b"text" if bad == "text" else write_picture(path).read_bytes()[:500])
    with pytest.raises(DataError, match=r"red/broken\.png (.|\n)*--bad-images skip"):
        pack_folder(source, tmp_path / "pack", OPTIONS)
    assert not (tmp_path / "pack").exists()
    skip = PackOptions(image_size=(24, 16), bad_images="skip")
    packed = open_pack(pack_folder(source, tmp_path / "pack", skip))
    assert len(packed.train) + len(packed.test) == 60
    assert json.loads((packed.path / "index.json").read_bytes())["skipped"] == 1


def test_all_pictures_of_a_class_are_damaged(tmp_path: Path, source: Path) -> None:
    for path in (source / "red").iterdir():
        path.write_text("no picture")
    with pytest.raises(DataError, match="class 'red' has no training pictures that can be read"):
        pack_folder(source, tmp_path / "pack", PackOptions((8, 8), bad_images="skip"))
    assert not (tmp_path / "pack").exists()


def test_bad_folders(tmp_path: Path, source: Path) -> None:
    def check(message: str) -> None:
        with pytest.raises(DataError, match=message) as caught:
            pack_folder(source, tmp_path / "pack", OPTIONS)
        assert caught.value.hint
        assert not (tmp_path / "pack").exists() and not part_folder(tmp_path / "pack").exists()

    (source / "empty").mkdir()
    (source / "empty" / "notes.txt").write_text("no picture")
    check("class 'empty' in .* has no pictures")
    for name in ("empty", "green", "blue"):
        shutil.rmtree(source / name)
    check("only the class 'red'")
    shutil.rmtree(source)
    check("is not a folder")
    write_folder(source / "train", 3)
    write_folder(source / "test", 3)
    write_picture(source / "test" / "yellow" / "a.png")
    check("class 'yellow' has test pictures")


@pytest.mark.parametrize("name", [*pack.FILE_NAMES, "index.json"])
@pytest.mark.parametrize("damage", ["truncated", "altered", "missing"])
def test_damaged_packs_are_refused(tmp_path: Path, source: Path, name: str, damage: str) -> None:
    path = pack_folder(source, tmp_path / "pack", OPTIONS)
    content = bytearray((path / name).read_bytes())
    if damage == "missing":
        (path / name).unlink()
    else:
        content[len(content) // 2] ^= 1
        (path / name).write_bytes(content[:-1] if damage == "truncated" else content)
    with pytest.raises(DataError) as caught:
        open_pack(path)
    assert name in str(caught.value) and "data pack" in str(caught.value)


def test_an_index_with_other_contents_is_refused(tmp_path: Path, source: Path) -> None:
    path = pack_folder(source, tmp_path / "pack", OPTIONS)
    index = json.loads((path / "index.json").read_bytes())
    for change in ({"classes": list(COLOURS)}, {"version": 2}, {"format": "other"}):
        (path / "index.json").write_text(json.dumps({**index, **change}))
        with pytest.raises(DataError, match=r"index\.json"):
            open_pack(path)
    for text in ("[]", "{}", "nonsense", '{"format": "edgeddl pack", "version": 1}'):
        (path / "index.json").write_text(text)
        with pytest.raises(DataError, match=r"index\.json"):
            open_pack(path)


def test_checksums_are_compared_once_per_copy(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pack_folder(source, tmp_path / "pack", OPTIONS)
    compared = []
    monkeypatch.setattr(pack, "_verify", lambda *args: compared.append(args))
    open_pack(path)
    assert not compared
    open_pack(Path(shutil.copytree(path, tmp_path / "copy", copy_function=shutil.copyfile)))
    assert len(compared) == 1


def test_command(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["data", "pack", str(source), str(tmp_path / "pack"), "--image-size", "24x16"]
    assert main([*words, "--fit", "pad"]) == 0
    assert "3 classes, 24 x 16 pixels, 3 channels" in capsys.readouterr().out
    assert open_pack(tmp_path / "pack").fit == "pad"
    assert main(["data", "check", str(tmp_path / "pack")]) == 0
    (source / "red" / "broken.jpg").write_text("no picture")
    assert main([*words[:3], str(tmp_path / "other")]) == 2
    assert "broken.jpg is not a JPEG" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*words, "--image-size", "0x4"])
    assert "expected a size such as 64" in capsys.readouterr().err
