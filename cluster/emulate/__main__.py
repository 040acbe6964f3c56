"""python -m cluster.emulate: an emulated cluster of boards on this machine."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster.emulate.cluster import EmulatedCluster, NodeStatus
from cluster.emulate.inventory import default_path
from cluster.emulate.requirements import check_host, install_tools
from cluster.emulate.rootfs import clean, host_arch
from cluster.emulate.spec import (
    DEFAULT_NAME,
    DEFAULT_NETWORK,
    KINDS,
    PI_4_CORES,
    PI_4_RATE_MBIT,
    ClusterSpec,
    check_cores,
    command_line,
    parse_memory,
    parse_number,
    parse_rate,
    plan_cluster,
    room_warning,
)
from cluster.emulate.state import clusters_of_machines
from cluster.errors import ClusterError, exit_code_of
from edgeddl.table import render_table

EXAMPLES = """\
examples:
  python -m cluster.emulate up --nodes 4
  python -m cluster.emulate up --nodes 4 --node pi-03:cpu=0.17 --node pi-04:rate=100
  python -m cluster.emulate exec pi-01 -- mpirun -np 4 python -m edgeddl.train --dataset shapes \\
      --stem imagenet --limit-train 4000 --epochs 4
  python -m cluster.emulate up --nodes 2 --kind machine --suite trixie
  python -m cluster.emulate kill pi-03
  python -m cluster.emulate down
"""


def main(arguments: Sequence[str] | None = None) -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: undo unfinished changes
        signal.signal(number, signal.default_int_handler)
    options = build_parser().parse_args(arguments)

    def run() -> None:
        check_host()
        options.run(options)

    return exit_code_of(run)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cluster.emulate",
        description="Emulates a cluster of boards on this machine: N nodes on a bridge, each with"
        " its own network, host name, processes and sshd, and with the CPU, link rate and memory of"
        " a board. Needs Linux and root.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--name",
        default=DEFAULT_NAME,
        help="name of the cluster; several can be up at once (default: %(default)s)",
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    _add_up(commands)
    down = commands.add_parser("down", help="remove the cluster and end everything that runs on it")
    down.set_defaults(run=take_down)
    status = commands.add_parser("status", help="show the state of each node")
    status.add_argument("--json", action="store_true", help="print JSON instead of a table")
    status.set_defaults(run=print_status)
    clean = commands.add_parser("clean", help="remove the cached Debian of machines")
    clean.set_defaults(run=clean_roots)
    _add_node_commands(commands)
    return parser


def _add_up(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    up = commands.add_parser("up", help="create the cluster")
    up.add_argument(
        "--nodes", type=int, default=4, metavar="N", help="number of nodes (default: %(default)s)"
    )
    up.add_argument("--kind", choices=KINDS, default="light", help=(
        "light: shares this machine's file system, up in seconds; machine: its own Debian with"
        " systemd, like a freshly flashed board (default: %(default)s)"
    ))  # fmt: skip
    up.add_argument("--cpu", default=str(PI_4_CORES), metavar="X", help=(
        "CPU quota of a node, in cores; the default corresponds to a Raspberry Pi 4"
        " (default: %(default)s)"
    ))  # fmt: skip
    up.add_argument("--rate", default=f"{PI_4_RATE_MBIT:g}", metavar="MBIT", help=(
        "rate of a node's link in Mbit/s, in each direction (default: %(default)s)"
    ))  # fmt: skip
    up.add_argument(
        "--memory",
        default="4G",
        metavar="SIZE",
        help="memory of a node; nodes have no swap (default: %(default)s)",
    )
    up.add_argument("--node", action="append", default=[], metavar="NODE:KEY=X,...", help=(
        "cpu, rate or memory of a single node; can be repeated"
    ))  # fmt: skip
    up.add_argument("--network", default=DEFAULT_NETWORK, metavar="CIDR", help=(
        "network of the nodes, which get its first addresses; the host gets the last one"
        " (default: %(default)s)"
    ))  # fmt: skip
    up.add_argument("--environment", type=Path, metavar="DIR", help=(
        "virtual environment to activate on light nodes (default: the active one)"
    ))  # fmt: skip
    up.add_argument("--inventory", type=Path, metavar="FILE", help=(
        "where to write the inventory (default: cluster/inventory/emulated-NAME.yml)"
    ))  # fmt: skip
    up.add_argument("--suite", choices=("bookworm", "trixie"), default="bookworm", help=(
        "Debian release of machines (default: %(default)s)"
    ))  # fmt: skip
    up.add_argument("--arch", choices=("amd64", "arm64"), default=host_arch(), help=(
        "architecture of machines; arm64 on another host runs under qemu, which is slow"
        " (default: %(default)s)"
    ))  # fmt: skip
    up.set_defaults(run=bring_up)


def _add_node_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    texts = {
        "exec": "run a command on a node",
        "ssh": "log in to a node, or run a command over ssh",
        "kill": "simulate a power failure of a node",
        "cut": "disconnect a node from the network",
        "restore": "reconnect or restart a node and restore its limits",
        "slow": "change a node's CPU quota or link rate",
    }
    runs = {
        "exec": run_command, "ssh": log_in, "kill": kill, "cut": cut, "restore": restore,
        "slow": slow_down,
    }  # fmt: skip
    for name, text in texts.items():
        command = commands.add_parser(name, help=text, description=text.capitalize() + ".")
        command.add_argument("node", metavar="NODE", help="name of the node, such as pi-02")
        command.set_defaults(run=runs[name])
        if name in ("exec", "ssh"):
            command.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
        if name == "slow":
            command.add_argument("--cpu", metavar="X", help="CPU quota in cores")
            command.add_argument("--rate", metavar="MBIT", help="link rate in Mbit/s")


def bring_up(options: argparse.Namespace) -> None:
    spec = _plan(options)
    host_cores = len(os.sched_getaffinity(0))
    check_cores(spec.nodes, host_cores)
    install_tools(spec.kind, spec.arch)
    if warning := room_warning(spec, host_cores):
        print(f"warning: {warning}", file=sys.stderr)
    cluster = EmulatedCluster(spec.name)
    inventory = (options.inventory or default_path(spec.name)).absolute()
    if not cluster.up(spec, environment=_environment(options), inventory_path=inventory):
        print(f"cluster {spec.name!r} is already up")
    print(render_status(cluster.status()))
    print(f"\ninventory  {os.path.relpath(inventory)}")
    command = f"exec {spec.head.name} -- mpirun -np {len(spec.nodes)} hostname"
    if spec.kind == "machine":
        command = f"ssh {spec.head.name}"
    print(f"try        {command_line(spec.name, command)}")


def _plan(options: argparse.Namespace) -> ClusterSpec:
    return plan_cluster(
        name=options.name,
        network=options.network,
        kind=options.kind,
        count=options.nodes,
        defaults={
            "cores": parse_number(options.cpu, "--cpu"),
            "rate_mbit": parse_rate(options.rate, "--rate"),
            "memory_bytes": parse_memory(options.memory, "--memory"),
        },
        overrides=options.node,
        suite=options.suite,
        arch=options.arch,
    )


def _environment(options: argparse.Namespace) -> Path | None:
    own = Path(sys.prefix) if sys.prefix != sys.base_prefix else None
    environment: Path | None = options.environment or own
    if environment is None:
        return None
    if not (environment / "bin" / "activate").is_file():
        raise ClusterError(
            f"--environment {environment}: not a virtual environment (no bin/activate)"
        )
    return environment.absolute()


def take_down(options: argparse.Namespace) -> None:
    found = EmulatedCluster(options.name).down()
    print(f"cluster {options.name!r} is down" if found else f"cluster {options.name!r} was not up")


def clean_roots(options: argparse.Namespace) -> None:
    if users := clusters_of_machines():
        raise ClusterError(
            f"the cached Debian is in use by cluster {', '.join(users)}",
            hint="run `down` for this cluster first",
        )
    print(f"removed: {', '.join(clean()) or 'nothing'}")


def print_status(options: argparse.Namespace) -> None:
    nodes = EmulatedCluster(options.name).status()
    if options.json:
        print(json.dumps([node.to_json() for node in nodes], indent=1))
    else:
        print(render_status(nodes))


def render_status(nodes: Sequence[NodeStatus]) -> str:
    headings = ("node", "address", "state", "cores", "Mbit/s", "memory", "used", "throttled")
    rows = [
        (
            node.spec.name,
            node.spec.address,
            node.state,
            f"{node.spec.cores:g}",
            f"{node.spec.rate_mbit:g}",
            f"{node.spec.memory_bytes / 2**20:.0f} MiB",
            f"{node.memory_bytes / 2**20:.0f} MiB",
            f"{node.throttled:.0%}",
        )
        for node in nodes
    ]
    return render_table(headings, rows)


def run_command(options: argparse.Namespace) -> None:
    command = options.command[options.command[:1] == ["--"] :]
    if not command:
        raise ClusterError("no command given", hint=f"exec {options.node} -- COMMAND")
    EmulatedCluster(options.name).execute(options.node, command)


def log_in(options: argparse.Namespace) -> None:
    command = options.command[options.command[:1] == ["--"] :]
    EmulatedCluster(options.name).log_in(options.node, command)


def kill(options: argparse.Namespace) -> None:
    EmulatedCluster(options.name).kill(options.node)


def cut(options: argparse.Namespace) -> None:
    EmulatedCluster(options.name).cut(options.node)


def restore(options: argparse.Namespace) -> None:
    EmulatedCluster(options.name).restore(options.node)


def slow_down(options: argparse.Namespace) -> None:
    if options.cpu is None and options.rate is None:
        raise ClusterError("nothing to change", hint="use --cpu X, --rate MBIT or both")
    EmulatedCluster(options.name).slow(
        options.node,
        cores=None if options.cpu is None else parse_number(options.cpu, "--cpu"),
        rate_mbit=None if options.rate is None else parse_rate(options.rate, "--rate"),
    )


if __name__ == "__main__":
    sys.exit(main())
