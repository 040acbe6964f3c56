"""python -m cluster.monitoring: Prometheus and Grafana for boards, or for this machine."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster.errors import exit_code_of
from cluster.inventory_file import read_inventory
from cluster.monitoring import dashboard_json, grafana, targets, views
from cluster.monitoring.local import (
    GRAFANA_HOME,
    GRAFANA_PORT,
    LOOPBACK,
    PROMETHEUS_PORT,
    Monitoring,
    Places,
    default_folder,
)
from edgeddl.table import render_table

EXAMPLES = """\
examples:
  python -m cluster.monitoring up       # then train with --metrics-port 9836
  python -m cluster.monitoring up --inventory cluster/inventory/boards.yml
  python -m cluster.monitoring status
  python -m cluster.monitoring down
"""


def main(arguments: Sequence[str] | None = None) -> int:
    options = build_parser().parse_args(arguments)
    return exit_code_of(lambda: options.run(options))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cluster.monitoring",
        description="Starts Prometheus, and Grafana where it is installed, on this machine, with"
        " targets, rules, alerts and dashboards in place. As your user, without root. On the head"
        " board ansible/playbooks/monitoring.yml does the same for good.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_folder(parser, default=default_folder())
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_up(commands)
    down = commands.add_parser("down", help="end what `up` started; measured values stay")
    _add_folder(down)
    down.set_defaults(run=take_down)
    status = commands.add_parser("status", help="what runs, and who answers")
    status.add_argument("--json", action="store_true", help="print JSON instead of tables")
    _add_folder(status)
    status.set_defaults(run=print_status)
    _add_writers(commands)
    return parser


def _add_folder(parser: argparse.ArgumentParser, default: Path | str = argparse.SUPPRESS) -> None:
    """--folder, before or after the command: a command without it leaves what stood before."""
    parser.add_argument("--folder", type=Path, default=default, metavar="DIR", help=(
        f"where logs and values are kept ({default_folder()})"
    ))  # fmt: skip


def _add_up(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    up = commands.add_parser("up", help="start, or read a new inventory", description=(
        "Without --inventory: watches ranks and an exporter on this machine, and starts that"
        " exporter."
    ))  # fmt: skip
    up.add_argument("--inventory", type=Path, metavar="FILE", help="watch the boards of this file")
    up.add_argument("--address", default=LOOPBACK, help=(
        "listen on this address; others than loopback can be reached by whoever is in that network"
        " (%(default)s)"
    ))  # fmt: skip
    up.add_argument("--prometheus-port", type=int, default=PROMETHEUS_PORT, metavar="N",
                    help="(%(default)s)")  # fmt: skip
    up.add_argument("--grafana-port", type=int, default=GRAFANA_PORT, metavar="N",
                    help="(%(default)s)")  # fmt: skip
    up.add_argument("--grafana", type=Path, default=GRAFANA_HOME, metavar="DIR", help=(
        "folder of Grafana: of its package, or of an unpacked archive from grafana.com"
        " (%(default)s)"
    ))  # fmt: skip
    _add_folder(up)
    up.set_defaults(run=bring_up)


def _add_writers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "print the targets of an inventory, for a Prometheus of your own"
    command = commands.add_parser("targets", help=text)
    command.add_argument("--inventory", type=Path, metavar="FILE", required=True)
    command.set_defaults(run=print_targets)
    text = "print Grafana's data source and provider of dashboards, for a Grafana of your own"
    command = commands.add_parser("provisioning", help=text)
    command.add_argument("--prometheus-url", metavar="URL", required=True)
    command.add_argument("--dashboards", type=Path, metavar="DIR", default=grafana.DASHBOARDS)
    command.set_defaults(run=print_provisioning)
    text = "write dashboards/*.json anew, after a change in views/"
    commands.add_parser("dashboards", help=text).set_defaults(run=write_dashboards)


def bring_up(options: argparse.Namespace) -> None:
    monitoring = Monitoring(options.folder)
    alone = options.inventory is None
    if alone:
        groups = targets.of_this_machine()
    else:
        groups = targets.of_cluster(read_inventory(options.inventory))
    places = Places(options.address, options.prometheus_port, options.grafana_port)
    monitoring.up(groups, places, options.grafana, alone=alone)
    print(render_services(monitoring))
    if monitoring.services()[1].pid is None:
        print(
            f"\nGrafana is not in {options.grafana}: Prometheus alone shows graphs and alerts.\n"
            "It is not part of Debian: https://grafana.com/grafana/download, then --grafana DIR"
        )
    else:
        print(f"\nGrafana's user is admin, its password in {monitoring.password_file}")
    if alone:
        print(f"\ntrain with --metrics-port {targets.FIRST_RANK_PORT} to see a run")


def take_down(options: argparse.Namespace) -> None:
    ended = Monitoring(options.folder).down()
    print(f"ended: {', '.join(ended)}" if ended else "nothing was running")


def print_status(options: argparse.Namespace) -> None:
    monitoring = Monitoring(options.folder)
    runs = monitoring.services()[0].pid is not None
    found = monitoring.targets() if runs else []
    if options.json:
        services = [
            {"name": service.name, "pid": service.pid, "url": service.url}
            for service in monitoring.services()
        ]
        print(json.dumps({"services": services, "targets": found}, indent=1))
        return
    print(render_services(monitoring))
    if found:
        columns = ("host", "job", "address", "state")
        rows = [[target[name] for name in columns] for target in found]
        print(f"\n{render_table(columns, rows)}\n\nranks are up while a run goes on")


def render_services(monitoring: Monitoring) -> str:
    rows = [
        (service.name, "up" if service.pid else "down", service.url, str(service.log))
        for service in monitoring.services()
    ]
    return render_table(("service", "state", "address", "log"), rows)


def print_targets(options: argparse.Namespace) -> None:
    print(targets.render(targets.of_cluster(read_inventory(options.inventory))), end="")


def print_provisioning(options: argparse.Namespace) -> None:
    print(json.dumps(grafana.provisioning(options.prometheus_url, options.dashboards), indent=1))


def write_dashboards(_: argparse.Namespace) -> None:
    for dashboard in views.ALL:
        path = grafana.DASHBOARDS / f"{dashboard.name}.json"
        path.write_text(dashboard_json.render(dashboard))
        print(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(main())
