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
    Endpoints,
    Monitoring,
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
        description="Starts Prometheus, and Grafana if it is installed, on this machine, with"
        " targets, rules, alerts and dashboards configured. Runs as your user, without root. To"
        " install both permanently on the head board, use ansible/playbooks/monitoring.yml.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_folder(parser, default=default_folder())
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_up(commands)
    down = commands.add_parser("down", help="stop what `up` started; recorded data is kept")
    _add_folder(down)
    down.set_defaults(run=take_down)
    status = commands.add_parser("status", help="show services and scrape targets")
    status.add_argument("--json", action="store_true", help="print JSON instead of tables")
    _add_folder(status)
    status.set_defaults(run=print_status)
    _add_writers(commands)
    return parser


def _add_folder(parser: argparse.ArgumentParser, default: Path | str = argparse.SUPPRESS) -> None:
    """Add --folder, which may come before or after the command (hence no second default)."""
    parser.add_argument("--folder", type=Path, default=default, metavar="DIR", help=(
        f"folder for logs and recorded data (default: {default_folder()})"
    ))  # fmt: skip


def _add_up(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    up = commands.add_parser("up", help="start, or load a changed inventory", description=(
        "Without --inventory: monitors ranks and an exporter on this machine, and starts the"
        " exporter."
    ))  # fmt: skip
    up.add_argument("--inventory", type=Path, metavar="FILE", help=(
        "monitor the boards of this inventory"
    ))  # fmt: skip
    up.add_argument("--address", default=LOOPBACK, help=(
        "address to listen on; with an address other than loopback, everyone in that network can"
        " connect (default: %(default)s)"
    ))  # fmt: skip
    up.add_argument("--prometheus-port", type=int, default=PROMETHEUS_PORT, metavar="N",
                    help="(default: %(default)s)")  # fmt: skip
    up.add_argument("--grafana-port", type=int, default=GRAFANA_PORT, metavar="N",
                    help="(default: %(default)s)")  # fmt: skip
    up.add_argument("--grafana", type=Path, default=GRAFANA_HOME, metavar="DIR", help=(
        "home folder of Grafana: of its package, or an unpacked archive from grafana.com"
        " (default: %(default)s)"
    ))  # fmt: skip
    _add_folder(up)
    up.set_defaults(run=bring_up)


def _add_writers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "print the scrape targets of an inventory, for your own Prometheus"
    command = commands.add_parser("targets", help=text)
    command.add_argument("--inventory", type=Path, metavar="FILE", required=True)
    command.set_defaults(run=print_targets)
    text = "print the data source and dashboard provider, for your own Grafana"
    command = commands.add_parser("provisioning", help=text)
    command.add_argument("--prometheus-url", metavar="URL", required=True)
    command.add_argument("--dashboards", type=Path, metavar="DIR", default=grafana.DASHBOARDS)
    command.set_defaults(run=print_provisioning)
    text = "regenerate dashboards/*.json after a change in views/"
    commands.add_parser("dashboards", help=text).set_defaults(run=write_dashboards)


def bring_up(options: argparse.Namespace) -> None:
    monitoring = Monitoring(options.folder)
    alone = options.inventory is None
    if alone:
        groups = targets.of_this_machine()
    else:
        groups = targets.of_cluster(read_inventory(options.inventory))
    endpoints = Endpoints(options.address, options.prometheus_port, options.grafana_port)
    monitoring.up(groups, endpoints, options.grafana, alone=alone)
    print(render_services(monitoring))
    if monitoring.services()[1].pid is None:
        print(
            f"\nGrafana was not found in {options.grafana}; Prometheus also shows graphs and"
            " alerts.\nDebian has no package: download Grafana from"
            " https://grafana.com/grafana/download and use --grafana DIR"
        )
    else:
        print(f"\nGrafana: user admin, password in {monitoring.password_file}")
    if alone:
        print(f"\nto monitor a run, train with --metrics-port {targets.FIRST_RANK_PORT}")


def take_down(options: argparse.Namespace) -> None:
    ended = Monitoring(options.folder).down()
    print(f"stopped: {', '.join(ended)}" if ended else "nothing was running")


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
        print(f"\n{render_table(columns, rows)}\n\nranks are up only while a run is active")


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
