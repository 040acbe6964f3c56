"""Commands, described by their parsers."""

from __future__ import annotations

import argparse
import copy
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from invoke import Collection

import cluster.emulate.__main__
import cluster.inventory_file
import cluster.monitoring.__main__
import edgeddl.__main__
from cluster.fabfile import namespace
from docs_reference.markdown import sentence, table

SCRIPTS = Path(__file__).resolve().parent.parent


def describe_commands() -> Iterator[str]:
    yield "Every command explains itself with `--help`."
    yield "## edgeddl"
    modules = [name for name, _, _ in (*edgeddl.__main__.COMMANDS, *edgeddl.__main__.BENCHES)]
    yield from _describe_parser(edgeddl.__main__.build_parser(modules))
    for parser in (
        cluster.emulate.__main__.build_parser(),
        cluster.monitoring.__main__.build_parser(),
        _parser_of(cluster.inventory_file.main),
    ):
        yield f"## {parser.prog}"
        yield from _describe_parser(parser)
    yield "## fab"
    yield "Run these in `cluster/` ([Operate a cluster with fab](../guides/operate.md))."
    yield from _describe_tasks(namespace)
    yield "## scripts"
    yield table(("script", "what it does"), _scripts())


class _Found(Exception):
    pass


def _parser_of(main: Any) -> argparse.ArgumentParser:
    """The parser that a command builds in its main function."""

    def stop(parser: argparse.ArgumentParser, *_: Any) -> None:
        raise _Found(parser)

    with mock.patch.object(argparse.ArgumentParser, "parse_args", stop):
        try:
            main([])
        except _Found as found:
            parser: argparse.ArgumentParser = found.args[0]
            return parser
    raise RuntimeError(f"{main} parses no options")


def _describe_parser(parser: argparse.ArgumentParser, about: str = "") -> Iterator[str]:
    """`about`: what the command above says of this one."""
    description = " ".join((parser.description or "").split())
    yield from dict.fromkeys(sentence(text) for text in (about, description) if text)
    rows = [row for action in parser._actions if (row := _describe_argument(parser, action))]
    if rows:
        yield table(("argument", "meaning"), rows)
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for name, command in action.choices.items():
            yield f"### `{parser.prog} {name}`"
            yield from _describe_parser(command, helps.get(name, ""))
            if command.prog == "edgeddl train":
                yield "See [Training options](options.md)."


def _describe_argument(parser: argparse.ArgumentParser, action: argparse.Action) -> list[str]:
    hidden = isinstance(action, argparse._SubParsersAction | argparse._HelpAction)
    if hidden or action.help == argparse.SUPPRESS:
        return []
    metavar = action.metavar if isinstance(action.metavar, str) else None
    value = metavar or "|".join(map(str, action.choices or ())) or action.dest.upper()
    if not action.option_strings:
        name = f"`{metavar or action.dest}`"
    else:
        words = [] if action.nargs == 0 else [value]
        name = ", ".join(f"`{' '.join([flag, *words])}`" for flag in action.option_strings)
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    return [name, text or " or ".join(map(str, action.choices or ()))]


def _describe_tasks(tasks: Collection) -> Iterator[str]:
    for name in tasks.task_names:
        task = copy.deepcopy(tasks[name])  # get_arguments empties task.help
        yield f"### `fab {name}`"
        yield sentence((inspect.getdoc(task.body) or "").partition("\n")[0])
        rows = []
        for argument in task.get_arguments():
            value = {bool: "", int: " N"}.get(argument.kind, " VALUE")
            rows.append([f"`--{argument.names[0]}{value}`", argument.help or ""])
        yield table(("argument", "meaning"), rows)


def _scripts() -> Iterator[list[str]]:
    """Every executable in scripts/ with the comment at its top."""
    for path in sorted(SCRIPTS.iterdir()):
        lines = path.read_text().splitlines() if path.is_file() else [""]
        if lines[0] != "#!/bin/sh":
            continue
        comment = ""
        for line in lines[1:]:
            if not line.startswith("# "):
                break
            comment += f"{line[2:]} "
        yield [f"`scripts/{path.name}`", comment.partition(". ")[0].rstrip(" .")]
