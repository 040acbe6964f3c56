"""Parses the options of a training run from the command line and from a TOML file."""

from __future__ import annotations

import argparse
import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from edgeddl.config import TrainConfig
from edgeddl.errors import ConfigError, shown

# A file with all options has about 2 KB. The time of tomllib grows with the square of the length of
# a dotted key: 3 s for a line of 16 KB.
LARGEST_FILE_BYTES = 2**16
LONGEST_LINE_BYTES = 1000
# Metavariables of options without a default whose values are text.
TEXTS = ("DIR", "PATH", "FILE.json", "ADDRESS", "URI")


def parse_train_options(arguments: Sequence[str]) -> TrainConfig:
    """The command line overrides `--config FILE.toml`, which overrides the defaults."""
    return TrainConfig(**read_given_options(arguments))


def read_given_options(arguments: Sequence[str]) -> dict[str, Any]:
    """The options given on the command line or in its `--config FILE.toml`, without defaults."""
    given = vars(build_parser().parse_args(arguments))
    config_file = given.pop("config", None)
    from_file = read_config_file(config_file) if config_file else {}
    return {**from_file, **given}


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="edgeddl train",
        usage="[mpirun -np N] edgeddl train [options]",
        description="Train a convolutional network, data-parallel over MPI ranks.\n"
        "Without mpirun, train on one rank.",
        epilog="examples:\n"
        "  edgeddl train --dataset shapes --model resnet9 --epochs 3\n"
        "  mpirun -np 4 edgeddl train --config cifar.toml --resume auto\n"
        "You can also run it as python -m edgeddl.train.\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE.toml",
        help="read options from this file; options on the command line override it",
    )
    groups = {name: parser.add_argument_group(name) for name in _group_names()}
    for option in fields(TrainConfig):
        _add_argument(groups[option.metadata["group"]], option)
    return parser


def read_config_file(path: Path) -> dict[str, Any]:
    """The options in a TOML file, checked as on the command line."""
    try:
        content = tomllib.loads(_read_limited(path).decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror}") from None
    except (
        ValueError
    ) as error:  # also raised for text that is not UTF-8 and for an integer of 5,000 digits
        raise ConfigError(f"--config {path} is not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"--config {path}: values are nested too deeply") from None
    checked = [_checked_item(f"--config {path}", key, value) for key, value in content.items()]
    options = dict(checked)
    if len(options) < len(checked):
        raise ConfigError(f"--config {path} sets an option twice, spelt with - and with _")
    return options


def _read_limited(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(LARGEST_FILE_BYTES + 1)
    if len(content) > LARGEST_FILE_BYTES:
        raise ConfigError(f"--config {path}: larger than {LARGEST_FILE_BYTES:,} bytes")
    for number, line in enumerate(content.splitlines(), 1):
        if len(line) > LONGEST_LINE_BYTES:
            raise ConfigError(
                f"--config {path}: line {number} is longer than {LONGEST_LINE_BYTES:,} bytes",
                hint="write each option on its own line as `key = value`",
            )
    return content


def options_from_json(origin: str, content: Any) -> dict[str, Any]:
    """The options written by `TrainConfig.to_json`, checked as on the command line.

    Options that this version does not know are ignored; options that the file lacks keep their
    defaults.
    """
    if not isinstance(content, dict):
        raise ConfigError(f"{origin} does not contain the options of a run")
    known = {option.name for option in fields(TrainConfig)}
    return dict(
        _checked_item(origin, name, _as_given(name, value))
        for name, value in content.items()
        if name in known and value is not None
    )


def check_options(origin: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options given in Python, checked as on the command line; None stands for the default."""
    return dict(
        _checked_item(origin, name, _as_given(name, _plain(value)))
        for name, value in options.items()
        if value is not None
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _as_given(name: str, value: Any) -> Any:
    """Convert a JSON value to the form used in a configuration file."""
    is_speeds = name == "balance" and isinstance(value, list)
    return ",".join(map(str, value)) if is_speeds else value


def _checked_item(origin: str, key: str, value: Any) -> tuple[str, Any]:
    known = {_flag(option.name)[2:]: option for option in fields(TrainConfig)}
    option = known.get(key.replace("_", "-"))
    if option is None:
        hint = suggestion(key.replace("_", "-"), known)
        hint = hint or "keys are option names without the leading dashes"
        raise ConfigError(f"{origin}: unknown key {key!r}", hint=hint)
    argument = option.metadata["argument"]
    try:
        _check_kind(option.default, argument, value)
        value = argument.get("type", type(option.default))(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{origin}: {key} = {shown(value)}: {error}") from None
    if value not in argument.get("choices", (value,)):
        raise ConfigError(
            f"{origin}: {key} = {shown(value)}: expected one of {', '.join(argument['choices'])}"
        )
    return option.name, value


def _check_kind(default: Any, argument: Mapping[str, Any], value: Any) -> None:
    """Check the type of a TOML value; on the command line everything is text."""
    expected, kinds = _expected_kind(default, argument)
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        remedy = ", without quotes" if isinstance(value, str) else ""
        raise ValueError(f"expected {expected}{remedy}")


def _expected_kind(default: Any, argument: Mapping[str, Any]) -> tuple[str, Any]:
    """The TOML type that an option expects: as text, and as Python types."""
    if isinstance(default, bool):
        return "true or false", bool
    if argument.get("metavar") == "N|WxH":
        return 'a number, or "WxH" in quotes', (int, str)
    if isinstance(default, str) or argument.get("metavar") in TEXTS:
        return "a string in quotes", str
    if default == ():
        return f'strings in brackets, such as ["{argument["metavar"]}"]', list
    if isinstance(default, tuple):
        return f"numbers in brackets, such as {list(default)}", list
    return "a number", (int, float)


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """ "did you mean ...?" with the known name closest to a wrong one."""
    by_word = {
        option.lstrip("-"): option for option in known
    }  # leading dashes would make all options similar
    close = difflib.get_close_matches(name.lstrip("-"), by_word, n=1)
    return f"did you mean {by_word[close[0]]}?" if close else None


def _group_names() -> list[str]:
    return list(dict.fromkeys(option.metadata["group"] for option in fields(TrainConfig)))


def _add_argument(group: Any, option: Any) -> None:
    text, argument = option.metadata["help"], dict(option.metadata["argument"])
    if isinstance(option.default, bool):
        argument["action"] = argparse.BooleanOptionalAction
        text += f" (default: {'yes' if option.default else 'no'})"
    elif option.default not in (None, ()):
        is_list = isinstance(option.default, tuple)
        text += f" (default: {','.join(map(str, option.default)) if is_list else option.default})"
    if "type" in argument:
        argument["type"] = readable_errors(argument["type"])
    group.add_argument(_flag(option.name), help=text.replace("%", "%%"), **argument)


def readable_errors(parse: Any) -> Any:
    """Wrap a parser: argparse shows the text of an ArgumentTypeError, but not of a ValueError."""

    def parse_argument(text: str) -> Any:
        try:
            return parse(text)
        except (ValueError, OverflowError) as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None

    return parse_argument


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


class SuggestingParser(argparse.ArgumentParser):
    """Rejects unknown options and suggests the closest known one."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._reject(unknown)
        return found, unknown

    def _reject(self, unknown: Sequence[str]) -> NoReturn:
        flags = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        hints = (suggestion(flag, self._option_string_actions) for flag in flags)
        hint = next(filter(None, hints), None)
        self.fail(f"unrecognized arguments: {' '.join(unknown)}", hint)

    def fail(self, message: str, hint: str | None) -> NoReturn:
        self.error(f"{message}\n  hint: {hint}" if hint else message)


class _Parser(SuggestingParser):
    """Raises ConfigError, so that only one of N ranks reports a wrong option."""

    def error(self, message: str) -> NoReturn:
        self.fail(message, None)

    def fail(self, message: str, hint: str | None) -> NoReturn:
        raise ConfigError(message, hint=hint or "see edgeddl train --help")
