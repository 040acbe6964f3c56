"""edgeddl data: downloads, checks and packs data sets."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from edgeddl.config import FITS, data_folder, parse_image_size, parse_test_fraction
from edgeddl.data.cifar100 import fetch_cifar100
from edgeddl.data.dataset import Dataset, load_dataset
from edgeddl.data.fetch import fetch_cifar10
from edgeddl.data.mnist import EDITIONS, fetch_edition
from edgeddl.data.pack import CHANNELS, is_pack, open_pack
from edgeddl.data.packing import PackOptions, pack_folder
from edgeddl.errors import ConfigError
from edgeddl.log import print_text
from edgeddl.options import readable_errors

FETCHABLE = ("cifar10", "cifar100", *EDITIONS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="action")
    fetch = actions.add_parser("fetch", help="download a data set, or continue a download")
    fetch.add_argument("dataset", choices=FETCHABLE)
    fetch.add_argument(
        "--url", help="mirror of the official archive of cifar10; its checksum must match"
    )
    fetch.set_defaults(action=fetch_data)
    check = actions.add_parser("check", help="read a data set or a pack and print its contents")
    check.add_argument("dataset", help=f"{', '.join(FETCHABLE)}, or the path of a pack")
    check.set_defaults(action=check_data)
    for action in (fetch, check):
        action.add_argument(
            "--data-dir",
            type=Path,
            metavar="DIR",
            help="folder of the data set (default: $EDGEDDL_DATA, or else the cache folder)",
        )
    _add_pack(actions)


def run(options: argparse.Namespace) -> None:
    options.action(options)


def _add_pack(actions: Any) -> None:
    pack = actions.add_parser(
        "pack", help="decode a folder of pictures once, for training that maps it into memory"
    )
    pack.add_argument(
        "source",
        type=Path,
        metavar="SOURCE",
        help="folder with train/CLASS/ and test/CLASS/ (or val/CLASS/), or with one folder per"
        " class",
    )
    pack.add_argument("dest", type=Path, metavar="DEST", help="folder of the new pack")
    pack.add_argument(
        "--image-size",
        type=readable_errors(parse_image_size),
        metavar="N|WxH",
        help="size of the images: N pixels, or width x height (default: 32 for pictures up to 64"
        " pixels, else 224)",
    )
    pack.add_argument(
        "--fit",
        choices=FITS,
        default="crop",
        help="for pictures of another aspect ratio: crop (remove edges, default) or pad (add black"
        " borders)",
    )
    pack.add_argument(
        "--channels", type=int, choices=CHANNELS, default=3, help="grey, RGB (default) or RGBA"
    )
    pack.add_argument(
        "--test-fraction",
        type=readable_errors(parse_test_fraction),
        default=0.1,
        metavar="X",
        help="part of the pictures used for tests, if there is no folder test or val (default:"
        " 0.1)",
    )
    pack.add_argument(
        "--bad-images",
        choices=("stop", "skip"),
        default="stop",
        help="at a damaged picture: stop (default), or skip it with a warning",
    )
    pack.set_defaults(action=pack_pictures)


def fetch_data(options: argparse.Namespace) -> None:
    folder = data_folder(options.data_dir)
    if options.url and options.dataset != "cifar10":
        raise ConfigError(f"--url applies to cifar10, not to {options.dataset}")
    if options.dataset == "cifar100":
        return fetch_cifar100(folder)
    if options.dataset in EDITIONS:
        return fetch_edition(options.dataset, folder)
    mirror = {"url": options.url} if options.url else {}
    fetch_cifar10(folder, **mirror)


def check_data(options: argparse.Namespace) -> None:
    path = Path(options.dataset.removeprefix("pack:"))
    if is_pack(path):
        open_pack(path, verify=True)
        dataset = load_dataset(f"pack:{path}")
    else:
        dataset = load_dataset(options.dataset, data_dir=data_folder(options.data_dir))
    _print_contents(dataset)


def pack_pictures(options: argparse.Namespace) -> None:
    wanted = PackOptions(
        image_size=options.image_size,
        fit=options.fit,
        test_fraction=options.test_fraction,
        bad_images=options.bad_images,
        channels=options.channels,
    )
    path = pack_folder(options.source, options.dest, wanted)
    _print_contents(load_dataset(f"pack:{path}"))


def _print_contents(dataset: Dataset) -> None:
    channels, height, width = dataset.image_shape
    print_text(
        f"{dataset.name}: {len(dataset.train):,} training and {len(dataset.test):,} test images"
        f" of {len(dataset.classes)} classes, {width} x {height} pixels, {channels} channels,"
        f" fingerprint {dataset.fingerprint}, contents"
        f" {'match their checksums' if dataset.verified else 'not verified'}"
    )
