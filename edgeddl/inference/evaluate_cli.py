"""[mpirun -np N] edgeddl evaluate RUN: accuracy, loss and confusion matrix of a trained model."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from edgeddl import kernels, log
from edgeddl.atomic_file import check_output_path, replacing, write_json
from edgeddl.comm.agreement import check_agreement, run_as_rank, together
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.connect import connect
from edgeddl.config import TrainConfig, data_folder
from edgeddl.data import Dataset, load_dataset
from edgeddl.errors import ConfigError
from edgeddl.inference.evaluation import Result, evaluate, label_numbers
from edgeddl.inference.trained_model import TrainedModel, load
from edgeddl.table import render_facts, render_table
from edgeddl.training.run_folder import locate

JSON_NAME, PLOT_NAME = "evaluation.json", "confusion.png"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="RUN", help=(
        "run folder, such as runs/resnet18-cifar10 (its best checkpoint is used), or a checkpoint"
    ))  # fmt: skip
    parser.add_argument(
        "--dataset", metavar="NAME", help="data set to evaluate on (default: that of the run)"
    )
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help=(
        "folder of the data set (default: that of the run, or else $EDGEDDL_DATA, or else the"
        " cache folder)"
    ))  # fmt: skip
    parser.add_argument(
        "--limit-test", type=int, metavar="N", help="use only the first N test images"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    parser.add_argument("--output", type=Path, metavar="DIR", help=(
        f"folder for {JSON_NAME} and {PLOT_NAME} (default: evaluation/ in the run folder, or in"
        " the current folder if the checkpoint is not in a run folder)"
    ))  # fmt: skip


def run(options: argparse.Namespace) -> int:
    communicator = connect()
    log.set_rank(communicator.rank, communicator.size, communicator.host)
    return run_as_rank(communicator, lambda: _run(options, communicator))


def _run(options: argparse.Namespace, communicator: Communicator) -> int:
    trained = load(options.model, communicator)
    dataset, numbers = together(communicator, lambda: _load_data(options, trained))
    facts = {"data (fingerprint)": dataset.fingerprint, "kernels": kernels.chosen()}
    check_agreement(communicator, facts, may_differ=("kernels",))
    folder = together(
        communicator, lambda: _output_folder(options) if communicator.rank == 0 else None
    )
    result = evaluate(trained, dataset.test, numbers, communicator)
    if folder is not None:
        content = describe(result, trained, dataset)
        written = _write(options.json, folder, content, result)
        log.print_text(render(content, written))
    communicator.close()
    return 0


def _load_data(options: argparse.Namespace, trained: TrainedModel) -> tuple[Dataset, Any]:
    of_run = trained.meta.get("options") or {}
    name = options.dataset or of_run.get("dataset")
    if name is None:
        raise ConfigError(
            f"{trained.origin} does not say which data set it was trained on",
            hint="name one with --dataset",
        )
    folder = options.data_dir
    if folder is None and name == of_run.get("dataset") and of_run.get("data_dir"):
        folder = Path(of_run["data_dir"])
    _, height, width = trained.image_shape
    dataset = load_dataset(
        name,
        data_dir=data_folder(folder),
        limit_train=1,
        limit_test=options.limit_test,
        image_size=(height, width),
        fit=trained.fit,
        test_fraction=of_run.get("test_fraction", TrainConfig.test_fraction),
    )
    if dataset.image_shape != trained.image_shape:
        shapes = (" x ".join(map(str, one)) for one in (dataset.image_shape, trained.image_shape))
        raise ConfigError(
            "data set {} has images of {}, but the model takes {}"
            " (channels x height x width)".format(name, *shapes),
            hint="use a data set with images of the size that the model was trained with",
        )
    return dataset, label_numbers(trained, dataset.classes, f"data set {name}")


def _output_folder(options: argparse.Namespace) -> Path:
    """Check before the evaluation that its results can be written."""
    run_folder, _ = locate(options.model)
    folder = options.output or (run_folder.path if run_folder else Path()) / "evaluation"
    check_output_path("--output", folder / JSON_NAME, hint="choose another folder with --output")
    if options.json is not None:
        check_output_path("--json", options.json)
    return folder


def describe(result: Result, trained: TrainedModel, dataset: Dataset) -> dict[str, Any]:
    """The results as JSON; they do not depend on the number of ranks."""
    return {
        "checkpoint": str(trained.origin),
        "dataset": dataset.name,
        "fingerprint": dataset.fingerprint,
        "images": result.images,
        "correct": result.correct,
        "accuracy": result.accuracy,
        "loss": result.loss if math.isfinite(result.loss) else None,
        "classes": [
            {
                "name": name,
                "images": images,
                "correct": correct,
                "accuracy": correct / images if images else None,
            }
            for name, images, correct in result.by_class()
        ],
        "confusion": result.confusion.tolist(),
    }


def render(content: dict[str, Any], written: list[Path]) -> str:
    rows = [
        [
            one["name"],
            f"{one['images']:,}",
            f"{one['correct']:,}",
            f"{one['accuracy']:.2%}" if one["images"] else "-",
        ]
        for one in content["classes"]
    ]
    accuracy = f"{content['accuracy']:.2%} ({content['correct']:,} of {content['images']:,} images)"
    facts = [
        ("checkpoint", content["checkpoint"]),
        ("data set", content["dataset"]),
        ("accuracy", accuracy),
        ("loss", "not finite" if content["loss"] is None else f"{content['loss']:.4f}"),
        ("files", ", ".join(map(str, written))),
    ]
    table = render_table(["class", "images", "correct", "accuracy"], rows)
    return f"{table}\n\n{render_facts(facts)}"


def _write(
    json_file: Path | None, folder: Path, content: dict[str, Any], result: Result
) -> list[Path]:
    """Write the results; returns the files. Boards have no Matplotlib, so a plot is optional."""
    files = [folder / JSON_NAME, *([json_file] if json_file else [])]
    try:
        for path in files:
            write_json(path, content)
        if (png := _draw(result)) is not None:
            with replacing(folder / PLOT_NAME) as file:
                file.write(png)
            files.append(folder / PLOT_NAME)
    except OSError as error:
        raise ConfigError(
            f"cannot write the results to {folder}: {error.strerror or error}",
            hint="choose another folder with --output",
        ) from None
    return files


def _draw(result: Result) -> bytes | None:
    try:
        from edgeddl.inference.confusion_plot import draw_confusion
    except ConfigError as error:
        log.logger.warning("%s is not written: %s", PLOT_NAME, error.message)
        return None
    return draw_confusion(result)
