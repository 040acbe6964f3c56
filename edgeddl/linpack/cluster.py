"""Measures a cluster: each node alone, in parallel, then all nodes together on one problem."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgeddl.config import state_folder
from edgeddl.errors import ConfigError, LinpackError
from edgeddl.linpack.hpcc import Launch, run_hpcc
from edgeddl.linpack.hpcc_input import plan_hpcc, size_for_nodes
from edgeddl.linpack.hpcc_output import HpccResult
from edgeddl.linpack.record import NodeRecord, parse_record
from edgeddl.linpack.verdict import (
    EXIT_SICK,
    HEALTHY,
    SICK,
    Verdict,
    combine,
    judge_efficiency,
    judge_link,
    judge_result,
)
from edgeddl.log import logger
from edgeddl.terminal import ProgressBar

# ssh gives up after 45 s if a node stops responding; without these options it would wait forever.
SSH = (
    "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15",
    "-o", "ServerAliveCountMax=3",
)  # fmt: skip
LAST_LINES = 6
# Pairs are run only for the ping-pong test, so the smallest problem is enough.
PAIR_SIZE = 256


@dataclass(frozen=True)
class NodeOutcome:
    """The record of a node, or the reason why there is none."""

    host: str
    record: NodeRecord | None
    failure: str | None = None

    @property
    def verdict(self) -> Verdict:
        return self.record.verdict if self.record else Verdict(SICK, (self.failure or "",))


@dataclass(frozen=True)
class ClusterOutcome:
    """The results of all nodes, and of the joint run if there was one."""

    nodes: list[NodeOutcome]
    joint: HpccResult | None
    verdict: Verdict

    @property
    def efficiency(self) -> float | None:
        """Speed of the joint run over the sum of the speeds of the nodes alone."""
        alone = sum(node.record.figures.gflops for node in self.nodes if node.record)
        return self.joint.gflops / alone if self.joint else None

    def to_json(self) -> dict[str, Any]:
        return {
            "hosts": [node.host for node in self.nodes],
            "verdict": self.verdict.rating,
            "causes": list(self.verdict.causes),
            "efficiency": self.efficiency,
            **(_joint_json(self.joint) if self.joint else {}),
            "nodes": [
                node.record.to_json() if node.record else {"host": node.host, "verdict": SICK,
                "causes": [node.failure]} for node in self.nodes
            ],
        }  # fmt: skip


def _joint_json(joint: HpccResult) -> dict[str, Any]:
    return {
        "n": joint.plan.n,
        "grid": [joint.plan.rows, joint.plan.columns],
        "seconds": joint.seconds,
        "gflops": joint.gflops,
        "residual": joint.residual,
        "passed": joint.passed,
        "link": joint.link and asdict(joint.link),
    }


def read_hosts(hosts: str | None, hostfile: Path | None) -> list[str]:
    """Host names from a comma-separated list or from an Open MPI hostfile."""
    names = [name.strip() for name in hosts.split(",")] if hosts else []
    if hostfile:
        try:
            lines = hostfile.read_text().splitlines()
        except OSError as error:
            raise ConfigError(f"--hostfile {hostfile}: {error.strerror}") from None
        names = [line.split()[0] for line in lines if line.split("#")[0].strip()]
    # a name that starts with - would be an option of ssh
    wrong = [name for name in names if not name or name.startswith("-") or " " in name]
    if wrong or len(set(names)) < len(names) or not names:
        option = f"--hostfile {hostfile}" if hostfile else f"--hosts {hosts}"
        raise ConfigError(f"{option}: expected distinct host names, such as pi-01,pi-02")
    return names


def measure_alone(hosts: Sequence[str], arguments: Sequence[str]) -> list[NodeOutcome]:
    """Run `python -m edgeddl linpack` on every host in parallel."""
    logger.info("measuring each node alone: %s", ", ".join(hosts))
    with (
        ThreadPoolExecutor(len(hosts)) as pool,
        ProgressBar(total=len(hosts), desc="each node alone", leave=False) as bar,
    ):

        def measure(host: str) -> NodeOutcome:
            outcome = _measure_on(host, arguments)
            bar.update()
            return outcome

        return list(pool.map(measure, hosts))


def _measure_on(host: str, arguments: Sequence[str]) -> NodeOutcome:
    command = node_command(host, arguments)
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode not in (0, EXIT_SICK):
        errors = "; ".join(done.stderr.strip().splitlines()[-LAST_LINES:])
        return NodeOutcome(host, None, f"no result: {errors or f'exit code {done.returncode}'}")
    try:
        return NodeOutcome(host, parse_record(json.loads(done.stdout)))
    except ValueError as error:
        return NodeOutcome(host, None, f"no result: {error}")


def node_command(host: str, arguments: Sequence[str]) -> list[str]:
    """The command for a host. All hosts use the same paths for the environment and the state."""
    own = ["env", f"EDGEDDL_STATE={state_folder()}", sys.executable, "-m", "edgeddl", "linpack"]
    command = [*own, *arguments, "--json"]
    if host in ("localhost", socket.gethostname()):
        return command
    return [*SSH, host, shlex.join(command)]


def measure_together(
    nodes: Sequence[NodeOutcome], launch: Launch, size: int | None, fraction: float
) -> HpccResult:
    """Solve one problem on all nodes, as large as the smallest memory allows."""
    records = [node.record for node in nodes if node.record]
    smallest = min(record.memory_bytes for record in records)
    n = size or size_for_nodes(smallest * fraction, len(nodes))
    plan = plan_hpcc(n, len(nodes))
    logger.info(
        "measuring all nodes together: N = %s on a grid of %d x %d nodes",
        f"{n:,}",
        plan.rows,
        plan.columns,
    )
    return run_hpcc(plan, launch, "all together")[0]


def judge_cluster(
    nodes: list[NodeOutcome], joint: HpccResult | None, slow_hosts: Sequence[str] = ()
) -> ClusterOutcome:
    """Combine the verdicts on the nodes, the joint run and the links."""
    verdicts = [
        Verdict(node.verdict.rating, tuple(f"{node.host}: {text}" for text in node.verdict.causes))
        for node in nodes
    ]
    if joint:
        alone = sum(node.record.figures.gflops for node in nodes if node.record)
        verdicts.append(judge_result(joint.residual, joint.passed))
        verdicts.append(judge_efficiency(joint.gflops / alone, joint.seconds))
    if joint and joint.link:
        link, where = judge_link(joint.link), ", ".join(slow_hosts) or "some pair of nodes"
        verdicts.append(Verdict(link.rating, tuple(f"{where}: {text}" for text in link.causes)))
    return ClusterOutcome(nodes, joint, combine(verdicts))


def find_slow_hosts(
    hosts: Sequence[str], launch_pair: Callable[[Sequence[str]], Launch]
) -> list[str]:
    """Find hosts with slow links by ping-pong between the first host and each other host.

    hpcc reports the bandwidth of the worst pair, but not which pair it is.
    """
    first, *others = hosts
    slow = [host for host in others if _is_slow(launch_pair((first, host)))]
    return [first] if len(slow) == len(others) > 1 else slow


def _is_slow(launch: Launch) -> bool:
    try:
        result = run_hpcc(plan_hpcc(PAIR_SIZE, 2), launch, f"link to {launch.hosts[1]}")[0]
    except LinpackError as error:
        logger.warning("%s", error)
        return True
    return result.link is not None and judge_link(result.link).rating != HEALTHY
