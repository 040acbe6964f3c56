"""Reads the options of a training run from the command line and from a TOML file."""

from __future__ import annotations

import argparse
import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from edgeddl.config import TrainConfig
from edgeddl.errors import ConfigError


def parse_train_options(arguments: Sequence[str]) -> TrainConfig:
    """Options from the command line over those of `--config FILE.toml` over the defaults."""
    return TrainConfig(**read_given_options(arguments))


def read_given_options(arguments: Sequence[str]) -> dict[str, Any]:
    """The options that the command line or its `--config FILE.toml` names, without defaults."""
    given = vars(build_parser().parse_args(arguments))
    config_file = given.pop("config", None)
    from_file = read_config_file(config_file) if config_file else {}
    return {**from_file, **given}


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m edgeddl.train",
        usage="[mpirun -np N] python -m edgeddl.train [options]",
        description="Train a CNN, data-parallel over MPI ranks. Without mpirun: one rank.",
        epilog="examples:\n"
        "  python -m edgeddl.train --dataset shapes --model resnet9 --epochs 3\n"
        "  mpirun -np 4 python -m edgeddl.train --config cifar.toml --resume auto\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE.toml", help="read options from this file first"
    )
    groups = {name: parser.add_argument_group(name) for name in _group_names()}
    for option in fields(TrainConfig):
        _add_argument(groups[option.metadata["group"]], option)
    return parser


def read_config_file(path: Path) -> dict[str, Any]:
    """The options in a TOML file, checked as on the command line."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path}: not TOML: {error}") from None
    checked = [_checked_item(f"--config {path}", key, value) for key, value in content.items()]
    options = dict(checked)
    if len(options) < len(checked):
        raise ConfigError(f"--config {path}: an option is given twice, with - and with _")
    return options


def options_from_json(origin: str, content: Any) -> dict[str, Any]:
    """The options that `TrainConfig.to_json` wrote, checked as on the command line.

    Options that this version does not know are left out; those that it has added since keep their
    defaults.
    """
    if not isinstance(content, dict):
        raise ConfigError(f"{origin} does not hold the options of a run")
    known = {option.name for option in fields(TrainConfig)}
    return dict(
        _checked_item(origin, name, _as_given(name, value))
        for name, value in content.items()
        if name in known and value is not None
    )


def _as_given(name: str, value: Any) -> Any:
    """A JSON value as a configuration file would have it."""
    is_speeds = name == "balance" and isinstance(value, list)
    return ",".join(map(str, value)) if is_speeds else value


def _checked_item(origin: str, key: str, value: Any) -> tuple[str, Any]:
    known = {_flag(option.name)[2:]: option for option in fields(TrainConfig)}
    option = known.get(key.replace("_", "-"))
    if option is None:
        raise ConfigError(f"{origin}: unknown key {key!r}", hint=_suggestion(key, known))
    argument = option.metadata["argument"]
    try:
        _check_kind(option.default, argument, value)
        value = argument.get("type", type(option.default))(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{origin}: {key} = {value!r}: {error}") from None
    if value not in argument.get("choices", (value,)):
        raise ConfigError(
            f"{origin}: {key} = {value!r}: expected one of {', '.join(argument['choices'])}"
        )
    return option.name, value


def _check_kind(default: Any, argument: Mapping[str, Any], value: Any) -> None:
    """TOML knows kinds, where a command line has only texts."""
    if isinstance(default, bool) and not isinstance(value, bool):
        raise ValueError("expected true or false")
    if isinstance(value, bool) and not isinstance(default, bool):
        raise ValueError("not a switch")
    is_text = isinstance(default, str) or argument.get("metavar") in (
        "DIR",
        "PATH",
        "FILE.json",
        "ADDRESS",
    )
    if is_text != isinstance(value, str):
        raise ValueError("expected a text" if is_text else "not a text")


def _suggestion(key: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(key.replace("_", "-"), known, n=1)
    return (
        f"did you mean {close[0]}?"
        if close
        else "keys are the long options without dashes in front"
    )


def _group_names() -> list[str]:
    return list(dict.fromkeys(option.metadata["group"] for option in fields(TrainConfig)))


def _add_argument(group: Any, option: Any) -> None:
    text, argument = option.metadata["help"], dict(option.metadata["argument"])
    if isinstance(option.default, bool):
        argument["action"] = argparse.BooleanOptionalAction
        text += f" (default: {'yes' if option.default else 'no'})"
    elif option.default is not None:
        is_list = isinstance(option.default, tuple)
        text += f" (default: {','.join(map(str, option.default)) if is_list else option.default})"
    if "type" in argument:
        argument["type"] = _readable_errors(argument["type"])
    group.add_argument(_flag(option.name), help=text.replace("%", "%%"), **argument)


def _readable_errors(parse: Any) -> Any:
    """argparse shows the text of an ArgumentTypeError, but not that of a ValueError."""

    def parse_argument(text: str) -> Any:
        try:
            return parse(text)
        except (ValueError, OverflowError) as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None

    return parse_argument


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


class _Parser(argparse.ArgumentParser):
    """Raises ConfigError, because N ranks with one wrong option should complain once."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message, hint="Try 'python -m edgeddl.train --help'")
