"""edgeddl export: writes a trained model as ONNX, npz or safetensors."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgeddl import log
from edgeddl.atomic_file import check_output_path, replacing
from edgeddl.errors import ConfigError
from edgeddl.table import render_facts

SUFFIXES = (".onnx", ".npz", ".safetensors")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="RUN", help=(
        "run folder, whose best model is exported, or a checkpoint"
    ))  # fmt: skip
    parser.add_argument("target", type=Path, metavar="OUT", help=(
        "file to write; its suffix selects the format: .onnx, .npz (Chainer) or .safetensors"
    ))  # fmt: skip
    parser.add_argument("--fold-batch-norm", action="store_true", help=(
        "ONNX: fold batch normalisation into the convolution or linear layer before it"
    ))  # fmt: skip
    parser.add_argument(
        "--softmax", action="store_true", help="ONNX: output probabilities instead of logits"
    )
    parser.add_argument("--include-normalisation", choices=("uint8", "float"), help=(
        "ONNX: normalise in the graph, which then takes uint8 pixels (n, height, width, channels)"
        " or float pixels from 0 to 1 (n, channels, height, width)"
    ))  # fmt: skip


def run(options: argparse.Namespace) -> None:
    _check(options)
    check_output_path("export", options.target, hint="choose another file or folder")
    content = _render(options)
    try:
        with replacing(options.target) as file:
            file.write(content)
    except OSError as error:
        raise ConfigError(
            f"export {options.target} cannot be written: {error.strerror or error}",
            hint="check free space and permissions of its folder",
        ) from error
    log.print_text(render_facts([("written", str(options.target)), ("bytes", f"{len(content):,}")]))


def _check(options: argparse.Namespace) -> None:
    suffix = options.target.suffix
    if suffix not in SUFFIXES:
        raise ConfigError(
            f"export {options.target}: the file name must end in {', '.join(SUFFIXES)}"
        )
    only_onnx = {
        "--fold-batch-norm": options.fold_batch_norm,
        "--softmax": options.softmax,
        "--include-normalisation": options.include_normalisation,
    }
    given = [name for name, value in only_onnx.items() if value]
    if suffix != ".onnx" and given:
        raise ConfigError(f"{', '.join(given)}: only for .onnx, not for {suffix}")


def _render(options: argparse.Namespace) -> bytes:
    """The content of the file; packages are imported before the model is read."""
    from edgeddl.inference import load

    if options.target.suffix == ".onnx":
        from edgeddl.export.onnx_file import render_onnx

        return render_onnx(
            load(options.source),
            fold=options.fold_batch_norm,
            softmax=options.softmax,
            normalisation=options.include_normalisation,
        )
    from edgeddl.export.parameter_files import render_npz, render_safetensors

    render = render_npz if options.target.suffix == ".npz" else render_safetensors
    return render(load(options.source))
