"""edgeddl predict RUN PICTURE ...: the most probable classes of pictures."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edgeddl import log, machine
from edgeddl.data.images import UInt8s
from edgeddl.errors import ConfigError, DataError
from edgeddl.inference.camera import read_camera
from edgeddl.inference.evaluation import batch_size
from edgeddl.inference.pictures import Picture, find_pictures, watch_folder
from edgeddl.inference.trained_model import Score, TrainedModel, load
from edgeddl.table import counted, render_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="RUN", help=(
        "run folder, such as runs/resnet18-cifar10 (its best checkpoint is used), or a checkpoint"
    ))  # fmt: skip
    parser.add_argument("pictures", nargs="*", metavar="PICTURE", help=(
        "picture file, or folder of pictures; - reads file names from stdin, one per line"
    ))  # fmt: skip
    parser.add_argument(
        "--top", type=int, default=3, metavar="K", help="classes per picture (default: %(default)s)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one line of JSON per picture instead of a table"
    )
    parser.add_argument("--camera", type=Path, metavar="SOURCE", help=(
        "classify frames of a V4L2 device such as /dev/video0, or new pictures in a folder, until"
        " Ctrl-C"
    ))  # fmt: skip
    parser.add_argument("--count", type=int, metavar="N", help="end after N pictures of the camera")


def run(options: argparse.Namespace) -> int:
    _check(options)
    trained = load(options.model)
    is_live = options.camera is not None or "-" in options.pictures
    size = 1 if is_live else batch_size(trained.image_shape)
    printer = Printer(options.json, is_live)
    predictor = Predictor(trained, min(options.top, len(trained.classes)))
    try:
        for predictions in predictor.predict(_pictures(options), size):
            for prediction in predictions:
                printer.show(prediction)
    finally:  # also after Ctrl-C, which ends a camera
        printer.end()
        if predictor.pictures:
            log.logger.info("%s", predictor.summary())
    return DataError.exit_code if predictor.failures else 0


def _check(options: argparse.Namespace) -> None:
    if options.camera is None and not options.pictures:
        raise ConfigError(
            "there are no pictures to classify",
            hint="name files or a folder, use - to read file names from stdin, or --camera",
        )
    if options.camera is not None and options.pictures:
        raise ConfigError("--camera cannot be combined with pictures", hint="leave one of them out")
    if options.top < 1:
        raise ConfigError(f"--top must be at least 1, not {options.top}")
    if options.count is not None and (options.count < 1 or options.camera is None):
        raise ConfigError("--count must be at least 1, and needs --camera")


def _pictures(options: argparse.Namespace) -> Iterator[Picture]:
    if options.camera is None:
        return find_pictures(options.pictures, sys.stdin.buffer)
    read = watch_folder if os.path.isdir(options.camera) else read_camera
    return itertools.islice(read(options.camera), options.count)


@dataclass(frozen=True)
class Prediction:
    """The scores of a picture, or the error that it caused."""

    name: str
    scores: list[Score] = field(default_factory=list)
    error: DataError | None = None


@dataclass
class Predictor:
    """Predicts pictures in batches, and counts them; an unreadable picture does not stop it."""

    trained: TrainedModel
    top: int
    pictures: int = 0
    failures: int = 0
    seconds: float = 0.0  # for decoding and predicting, without waiting for a camera

    def predict(self, pictures: Iterable[Picture], size: int) -> Iterator[list[Prediction]]:
        iterator = iter(pictures)
        with ThreadPoolExecutor(machine.available_cores()) as pool:  # Pillow releases the GIL
            while batch := list(itertools.islice(iterator, size)):
                started = time.perf_counter()
                images = list(pool.map(self._decode, batch))
                predictions = self._predict_batch(batch, images)
                self.seconds += time.perf_counter() - started
                yield predictions

    def _decode(self, picture: Picture) -> UInt8s | DataError:
        if isinstance(picture.content, DataError):
            return picture.content
        try:
            return self.trained.read_picture(picture.content)
        except DataError as error:
            if isinstance(picture.content, Path):
                return error
            return DataError(f"{picture.name}: {error.message}", hint="check the camera's cable")

    def _predict_batch(
        self, batch: Sequence[Picture], images: Sequence[UInt8s | DataError]
    ) -> list[Prediction]:
        readable = [image for image in images if not isinstance(image, DataError)]
        scores = iter(self.trained.predict(np.stack(readable), self.top) if readable else [])
        self.pictures += len(readable)
        self.failures += len(batch) - len(readable)
        return [
            Prediction(picture.name, error=image)
            if isinstance(image, DataError)
            else Prediction(picture.name, next(scores))
            for picture, image in zip(batch, images, strict=True)
        ]

    def summary(self) -> str:
        rate = self.pictures / self.seconds
        failed = f"; {self.failures:,} could not be read" if self.failures else ""
        return (
            f"{counted(self.pictures, 'picture')} in {self.seconds:.2f} s: {rate:.1f} img/s{failed}"
        )


class Printer:
    """Prints JSON or, for live sources, text at once; a table needs all rows for its widths."""

    def __init__(self, as_json: bool, is_live: bool) -> None:
        self._as_json, self._is_live = as_json, is_live
        self._rows: list[list[str]] = []

    def show(self, prediction: Prediction) -> None:
        if prediction.error is not None:
            log.logger.error("%s", prediction.error)
        if self._as_json:
            log.print_text(json.dumps(_to_json(prediction)))
        elif prediction.scores:
            row = [
                prediction.name,
                *(f"{name} {probability:.2%}" for name, probability in prediction.scores),
            ]
            if self._is_live:
                log.print_text("  ".join(row))
            else:
                self._rows.append(row)

    def end(self) -> None:
        if self._rows:
            headings = ["picture", *map(str, range(1, len(self._rows[0])))]
            log.print_text(render_table(headings, self._rows))


def _to_json(prediction: Prediction) -> dict[str, object]:
    if prediction.error is not None:
        return {"picture": prediction.name, "error": prediction.error.message}
    scores = [{"class": name, "probability": value} for name, value in prediction.scores]
    return {"picture": prediction.name, "predictions": scores}
