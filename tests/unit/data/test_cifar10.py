"""Reading CIFAR-10 in all its official forms, and errors for damaged files."""

from __future__ import annotations

import gzip
import pickle
import shutil
import tarfile
from dataclasses import replace
from hashlib import md5, sha256
from pathlib import Path

import numpy as np
import pytest

from edgeddl.data import cifar10
from edgeddl.data.cifar10 import OFFICIAL, Layout, load_cifar10
from edgeddl.data.fetch import CIFAR10_BINARY
from edgeddl.data.images import Images
from edgeddl.errors import DataError
from tests.unit.data import cifar_files
from tests.unit.data.cifar_files import LAYOUT, RECORD_BYTES


def load(path: Path) -> Images:
    return load_cifar10([path], LAYOUT)


def assert_right(loaded: Images) -> None:
    images, labels = cifar_files.expected_images()
    train, test, verified = loaded
    assert not verified  # random images match no published checksum
    assert len(train) == LAYOUT.train_count == 100
    assert len(test) == LAYOUT.test_count == 20
    np.testing.assert_array_equal(np.concatenate([train.images, test.images]), images)
    np.testing.assert_array_equal(np.concatenate([train.labels, test.labels]), labels)
    for part in (train, test):
        assert part.images.dtype == np.uint8 and part.images.flags.c_contiguous
        assert part.labels.dtype == np.int32


def test_official_layout_is_of_60000_images() -> None:
    assert OFFICIAL.images_per_file * RECORD_BYTES == 30_730_000
    assert (OFFICIAL.train_count, OFFICIAL.test_count) == (50_000, 10_000)
    assert OFFICIAL.batches == (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch")


def test_planes_become_pixels(tmp_path: Path) -> None:
    """Red, green and blue of the first pixel are 1024 bytes apart in the file."""
    folder = cifar_files.write_binary(tmp_path)
    record = (folder / "data_batch_1.bin").read_bytes()[:RECORD_BYTES]
    train = load(tmp_path).train
    assert train.labels[0] == record[0]
    assert train.images[0, 0, 0].tolist() == [record[1], record[1025], record[2049]]
    assert train.images[0, 0, 1, 0] == record[2]
    assert train.images[0, 1, 0, 0] == record[33]


def test_one_part_does_not_keep_the_memory_of_the_other(tmp_path: Path) -> None:
    cifar_files.write_binary(tmp_path)
    train, test, _ = load(tmp_path)
    assert train.images.base is None and test.images.base is None


@pytest.mark.parametrize("inside", [False, True], ids=["containing folder", "folder itself"])
@pytest.mark.parametrize("write", [cifar_files.write_binary, cifar_files.write_python])
def test_unpacked_folders(tmp_path: Path, write: object, inside: bool) -> None:
    folder = write(tmp_path)  # type: ignore[operator]
    assert_right(load(folder if inside else tmp_path))


@pytest.mark.parametrize("itself", [False, True], ids=["containing folder", "archive itself"])
@pytest.mark.parametrize(
    ("write", "name"),
    [
        (cifar_files.write_binary, "cifar-10-binary.tar.gz"),
        (cifar_files.write_python, "cifar-10-python.tar.gz"),
    ],
)
def test_archives(tmp_path: Path, write: object, name: str, itself: bool) -> None:
    folder = write(tmp_path)  # type: ignore[operator]
    archive = cifar_files.pack(folder, name)
    shutil.rmtree(folder)
    assert_right(load(archive if itself else tmp_path))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_pickle_protocol(tmp_path: Path, protocol: int) -> None:
    cifar_files.write_python(tmp_path, protocol)
    assert_right(load(tmp_path))


def test_the_first_folder_with_cifar10_is_used(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    cifar_files.write_binary(tmp_path / "second")
    broken = cifar_files.write_binary(tmp_path / "third")
    (broken / "test_batch.bin").unlink()
    places = [empty, tmp_path / "second", tmp_path / "third"]
    assert_right(load_cifar10(places, LAYOUT))


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    cifar_files.write_binary(tmp_path / "data")
    assert_right(load(Path("~/data")))


def test_absent(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with pytest.raises(DataError) as caught:
        load_cifar10([tmp_path / "here", tmp_path / "there"], LAYOUT)
    message = str(caught.value)
    assert f"{tmp_path / 'here'}, {tmp_path / 'there'} (absent)" in message
    assert "python -m edgeddl data fetch cifar10" in message
    assert "--dataset shapes" in message


def test_unfinished_download_is_not_taken_for_the_archive(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-binary.tar.gz.part").write_bytes(b"half")
    with pytest.raises(DataError, match="was not found"):
        load(tmp_path)


@pytest.mark.parametrize("change", [-RECORD_BYTES, -1, 1], ids=["a record less", "cut", "longer"])
def test_wrong_size(tmp_path: Path, change: int) -> None:
    path = cifar_files.write_binary(tmp_path) / "data_batch_3.bin"
    contents = path.read_bytes()
    path.write_bytes(contents[:change] if change < 0 else contents + b"x")
    with pytest.raises(DataError) as caught:
        load(tmp_path)
    assert str(path) in str(caught.value)
    assert f"expected 61,460 bytes, found {61460 + change:,}" in str(caught.value)


def test_mislabelled(tmp_path: Path) -> None:
    path = cifar_files.write_binary(tmp_path) / "data_batch_2.bin"
    contents = bytearray(path.read_bytes())
    contents[7 * RECORD_BYTES] = 10
    path.write_bytes(contents)
    with pytest.raises(
        DataError, match=r"data_batch_2\.bin: image 7 has label 10, expected 0 to 9"
    ):
        load(tmp_path)


@pytest.mark.parametrize("suffix", ["", ".bin"])
def test_missing_batch(tmp_path: Path, suffix: str) -> None:
    write = cifar_files.write_binary if suffix else cifar_files.write_python
    folder = write(tmp_path)
    (folder / f"data_batch_4{suffix}").unlink()
    with pytest.raises(DataError) as caught:
        load(tmp_path)
    assert f"{folder} lacks data_batch_4{suffix} of CIFAR-10" in str(caught.value)


def test_archive_without_a_batch(tmp_path: Path) -> None:
    folder = cifar_files.write_binary(tmp_path)
    (folder / "test_batch.bin").unlink()
    archive = cifar_files.pack(folder, "cifar-10-binary.tar.gz")
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz lacks test_batch\.bin"):
        load(archive)


def test_other_archive(tmp_path: Path) -> None:
    (tmp_path / "unrelated").mkdir()
    (tmp_path / "unrelated" / "readme.txt").write_text("hello")
    archive = cifar_files.pack(tmp_path / "unrelated", "other.tar.gz")
    with pytest.raises(DataError, match="lacks data_batch_1"):
        load(archive)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return cifar_files.pack(cifar_files.write_binary(tmp_path), "cifar-10-binary.tar.gz")


@pytest.mark.parametrize("fraction", [0.0, 0.001, 0.5, 0.99, 0.99999])
def test_truncated_archive(archive: Path, fraction: float) -> None:
    contents = archive.read_bytes()
    archive.write_bytes(contents[: int(fraction * len(contents))])
    with pytest.raises(DataError) as caught:
        load(archive)
    assert f"{archive} cannot be read" in str(caught.value)
    assert "data fetch cifar10" in str(caught.value)


def test_archive_with_a_tar_cut_short(archive: Path) -> None:
    with gzip.open(archive) as file:
        tar = file.read()
    with gzip.open(archive, "wb") as file:
        file.write(tar[: len(tar) // 2])
    with pytest.raises(DataError, match=r"tar\.gz cannot be read"):
        load(archive)


def test_archive_with_a_wrong_checksum(archive: Path) -> None:
    """The last eight bytes of a gzip file are its checksum and its length."""
    contents = bytearray(archive.read_bytes())
    contents[-8] ^= 1
    archive.write_bytes(contents)
    with pytest.raises(DataError, match="CRC check failed"):
        load(archive)


def test_not_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "cifar-10-python.tar.gz"
    path.write_text("<html>not found</html>")
    with pytest.raises(DataError, match=r"cifar-10-python\.tar\.gz cannot be read: Not a gzipped"):
        load(tmp_path)


def write_batch_5(folder: Path, **changes: object) -> None:
    batch = cifar_files.make_batches()["data_batch_5"]
    contents = {**batch.contents(), **changes}
    path = cifar_files.write_python(folder) / "data_batch_5"
    path.write_bytes(pickle.dumps(contents, 2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": np.zeros((19, 3072), np.uint8)}, r"shape \(20, 3072\), found \(19, 3072\)"),
        ({"data": [1, 2]}, r"shape \(20, 3072\), found list"),
        ({"labels": [0] * 19}, "expected 20 'labels', found 19"),
        ({"labels": None}, "expected 20 'labels', found NoneType"),
        ({"labels": [3] * 11 + [10] + [3] * 8}, "image 11 has label 10, expected 0 to 9"),
        ({"labels": [-1] * 20}, "image 0 has label -1"),
        ({"labels": [2**70] * 20}, "image 0 has label 1180591620717411303424"),
        ({"data": np.zeros((20, 3072), np.int64)}, "'i8'"),
    ],
)
def test_wrong_contents_of_a_pickle(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    write_batch_5(tmp_path, **changes)
    with pytest.raises(DataError, match=message) as caught:
        load(tmp_path)
    assert "data_batch_5" in str(caught.value)


def test_truncated_pickle(tmp_path: Path) -> None:
    path = cifar_files.write_python(tmp_path) / "data_batch_1"
    contents = path.read_bytes()
    path.write_bytes(contents[: len(contents) // 2])
    with pytest.raises(DataError) as caught:
        load(tmp_path)
    assert f"{path} ({len(contents) // 2:,} bytes) is not a complete pickle" in str(caught.value)


def test_a_pickle_that_is_far_too_large_is_not_read(tmp_path: Path) -> None:
    path = cifar_files.write_python(tmp_path) / "data_batch_2"
    with path.open("ab") as file:
        file.truncate(2**40)  # a terabyte of zeros, which takes no space on the disk
    with pytest.raises(DataError, match="expected at most 983,360 bytes, found 1,099,511,627,776"):
        load(tmp_path)


def test_a_label_too_large_to_print(tmp_path: Path) -> None:
    write_batch_5(tmp_path, labels=[2**20_000] * 20)
    with pytest.raises(DataError, match="image 0 has label a huge int"):
        load(tmp_path)


@pytest.fixture
def published(tmp_path: Path) -> Layout:
    """A layout whose published checksums are those of the files in tmp_path."""
    folder = cifar_files.write_python(tmp_path, protocol=4)
    return replace(
        LAYOUT,
        md5={name: md5((folder / name).read_bytes()).hexdigest() for name in LAYOUT.batches},
    )


def test_the_python_version_is_verified(tmp_path: Path, published: Layout) -> None:
    assert load_cifar10([tmp_path], published).verified
    folder = tmp_path / "cifar-10-batches-py"
    assert load_cifar10([cifar_files.pack(folder, "packed.tar.gz")], published).verified


@pytest.mark.parametrize("packed", [False, True])
def test_altered_bytes_are_found(tmp_path: Path, published: Layout, packed: bool) -> None:
    """A changed pixel, which checks of sizes and labels cannot find."""
    path = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    contents = bytearray(path.read_bytes())
    position = contents.index(cifar_files.make_batches()["data_batch_3"].planes[7, 100:110]) + 5
    contents[position] ^= 1
    path.write_bytes(contents)
    place = cifar_files.pack(path.parent, "packed.tar.gz") if packed else tmp_path
    with pytest.raises(DataError) as caught:
        load_cifar10([place], published)
    assert "data_batch_3" in str(caught.value)
    assert f"expected the published MD5 {published.md5['data_batch_3']}" in str(caught.value)
    assert "data fetch cifar10" in str(caught.value)


def test_a_folder_that_is_part_binary_is_not_verified(tmp_path: Path, published: Layout) -> None:
    binary = cifar_files.write_binary(tmp_path)
    shutil.move(binary / "data_batch_4.bin", tmp_path / "cifar-10-batches-py")
    shutil.rmtree(binary)
    assert not load_cifar10([tmp_path], published).verified


def test_the_binary_version_is_verified_by_the_whole_archive(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = sha256(archive.read_bytes()).hexdigest()
    own = replace(CIFAR10_BINARY, size=archive.stat().st_size, sha256=digest)
    monkeypatch.setattr(cifar10, "CIFAR10_BINARY", own)
    assert load(archive).verified
    assert not load(archive.parent / "cifar-10-batches-bin").verified


def test_official_checksums_are_of_the_official_batches() -> None:
    assert tuple(OFFICIAL.md5) == OFFICIAL.batches
    assert OFFICIAL.md5["data_batch_1"] == "c99cafc152244af753f735de768cd75f"


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE], ids=["symbolic", "hard"])
@pytest.mark.parametrize("target", ["data_batch_1.bin", "missing"], ids=["itself", "missing"])
def test_an_archive_with_a_link(archive: Path, kind: bytes, target: str) -> None:
    """A link in place of a batch file is not followed."""
    with tarfile.open(archive, "w:gz") as tar:
        link = tarfile.TarInfo("data_batch_1.bin")
        link.type, link.linkname = kind, target
        tar.addfile(link)
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz lacks data_batch_1"):
        load(archive)
