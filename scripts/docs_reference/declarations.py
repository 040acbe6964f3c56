"""Options, metrics, exit codes and Ansible's variables, as the code declares them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from cluster.errors import ClusterError
from docs_reference.markdown import table
from edgeddl import config, errors
from edgeddl.linpack.verdict import EXIT_SICK
from edgeddl.metrics import names

ROLES = Path(__file__).resolve().parents[2] / "ansible/roles"


def describe_options() -> Iterator[str]:
    yield (
        "Options of `edgeddl train`. In a"
        " [configuration file](../guides/train.md#configuration-file), use the name without the"
        " leading dashes. The last column says what happens when you"
        " [resume](../guides/resume.md#change-options) a run: *inherited* options come from the run"
        " and may change, *fixed* options come from the run and cannot change, and options of *this"
        " start* do not come from the run."
    )
    groups: dict[str, list[list[str]]] = {}
    for option in fields(config.TrainConfig):
        row = [_option_name(option), option.metadata["help"], _default(option), _on_resume(option)]
        groups.setdefault(option.metadata["group"], []).append(row)
    for group, rows in groups.items():
        yield f"## {group.capitalize()}"
        yield table(("option", "meaning", "default", "resume"), rows)
    yield "## Environment variables"
    source = inspect.getsource(config)
    variables = sorted(set(re.findall(r"\bEDGEDDL_[A-Z_]+\b", source)))
    yield f"`edgeddl` reads {', '.join(f'`{name}`' for name in variables)}."


def _option_name(option: Any) -> str:
    flag = "--" + option.name.replace("_", "-")
    if isinstance(option.default, bool):
        return f"`{flag}`, `--no-{flag[2:]}`"
    argument = option.metadata["argument"]
    value = argument.get("metavar") or "|".join(argument.get("choices", ("VALUE",)))
    return f"`{flag} {value}`"


def _default(option: Any) -> str:
    if option.default is None:
        return ""
    if isinstance(option.default, bool):
        return "yes" if option.default else "no"
    is_list = isinstance(option.default, tuple)
    return f"`{','.join(map(str, option.default)) if is_list else option.default}`"


def _on_resume(option: Any) -> str:
    if option.name in config.START_OPTIONS:
        return "this start"
    return "inherited" if option.name in config.CHANGEABLE_OPTIONS else "fixed"


def describe_metrics() -> Iterator[str]:
    yield (
        "Metrics that ranks and boards export ([Monitor runs and boards](../guides/monitor.md))."
        " Metrics of a rank have the labels `run` (the folder in `runs/`), `rank` and `host`; those"
        " of the whole run, exported by rank 0, have `run`; those of a board have `host`. If a"
        " value is unknown, the metric is absent: a board without a sensor has no"
        " `edgeddl_node_temperature_celsius`, and never a zero. Counters start at 0 with the"
        " process. A histogram adds `_bucket`, `_sum` and `_count` to its name."
    )
    for title, labels in (("Ranks", names.RANK), ("Runs", names.RUN), ("Boards", names.NODE)):
        rows = [
            [f"`{metric.name}`", metric.kind, _labels(metric.labels), metric.help]
            for metric in names.ALL
            if metric.labels[: len(labels)] == labels
            and (labels != names.RUN or metric.labels == labels)
        ]
        yield f"## {title}"
        yield table(("metric", "kind", "labels", "meaning"), rows)


def _labels(labels: Sequence[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels)


def describe_exit_codes() -> Iterator[str]:
    yield "[Failures](failures.md) describes what happens in each case."
    yield table(
        ("exit code", "meaning"),
        [
            ["0", "success; for `edgeddl linpack`, no machine is sick"],
            ["1", "an exception, with the rank's host and traceback"],
            [str(errors.EdgeddlError.exit_code), "a problem that you can fix, see below"],
            [str(errors.CommunicationError.exit_code), "ranks disagree or do not respond"],
            [str(EXIT_SICK), "`edgeddl linpack`, `fab linpack`: a machine is sick"],
            [str(errors.INTERRUPTED), "ended by Ctrl-C or SIGTERM, after a checkpoint"],
        ],
    )
    yield "## Errors"
    found = [*vars(errors).values(), ClusterError]
    rows = [
        [f"`{kind.__module__}.{kind.__name__}`", str(kind.exit_code), inspect.getdoc(kind) or ""]
        for kind in found
        if inspect.isclass(kind) and hasattr(kind, "exit_code")
    ]
    yield table(
        ("class", "exit code", "meaning"),
        [[name, code, text.partition("\n\n")[0].replace("\n", " ")] for name, code, text in rows],
    )


def describe_roles() -> Iterator[str]:
    yield (
        "Roles of `ansible/` with their variables. Set them in the inventory, under `vars` for all"
        " boards or with a board for that one, or with `-e NAME=VALUE` for a single run"
        " ([Provision boards](../guides/provision.md))."
    )
    for role in sorted(path.parent for path in ROLES.glob("*/meta")):
        specification = _read_yaml(role / "meta/argument_specs.yml")["argument_specs"]["main"]
        defaults = _read_yaml(role / "defaults/main.yml")
        yield f"## {role.name}"
        yield specification["short_description"]
        rows = [
            [f"`{name}`", _shown(defaults[name]), option["description"]]
            for name, option in specification["options"].items()
        ]
        yield table(("variable", "default", "meaning"), rows)


def _read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(f"`{one}`" for one in value)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value != "" else ""
