"""Which runs are made, in which order, and how many steps each takes: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from edgeddl.table import counted

EDGEDDL, TORCH, CHAINERMN = "edgeddl", "torch", "chainermn"
SYSTEMS = (EDGEDDL, TORCH, CHAINERMN)
STEMS = ("cifar", "imagenet")
UNCOMPRESSED = "none"

# The first step touches memory for the first time and makes connections; DistributedDataParallel
# cuts its buckets anew after it.
WARM_UP_STEPS = 2
LEAST_WARM_UP_STEPS = 1
LEAST_MEASURED_STEPS = 2


@dataclass(frozen=True)
class Case:
    """What is measured: a system at work on one task. `batch` is that of one node."""

    system: str
    compression: str
    stem: str
    batch: int
    nodes: int

    @property
    def series(self) -> Case:
        """The same for all numbers of nodes."""
        return replace(self, nodes=1)

    @property
    def alone(self) -> Case:
        """The run on a single node that this one is compared with."""
        return replace(self, nodes=1, compression=UNCOMPRESSED)

    @property
    def order(self) -> tuple[object, ...]:
        """Where it stands in tables: by task, then by system."""
        compressed = self.compression != UNCOMPRESSED
        system = (SYSTEMS.index(self.system), compressed, self.compression)
        return (STEMS.index(self.stem), self.batch, self.nodes, *system)

    @property
    def label(self) -> str:
        """The system as tables name it, e.g. "edgeddl fp16"."""
        return (
            self.system if self.compression == UNCOMPRESSED else f"{self.system} {self.compression}"
        )

    def __str__(self) -> str:
        task = f"{self.stem} stem, batch {self.batch}, {counted(self.nodes, 'node')}"
        return f"{self.label}, {task}"


@dataclass(frozen=True)
class Run:
    """One measurement of a case, the `repeat`th."""

    case: Case
    repeat: int


@dataclass(frozen=True)
class Steps:
    """How many steps a run takes: first those that are not counted."""

    warm_up: int
    measured: int

    @property
    def total(self) -> int:
        return self.warm_up + self.measured


def plan_runs(
    systems: Sequence[str],
    compressions: Sequence[str],
    stems: Sequence[str],
    batches: Sequence[int],
    all_nodes: Sequence[int],
    repeats: int,
) -> list[Run]:
    """All runs: within a repeat of a task every system has its turn, so all meet the same weather.

    Small tasks come first: what they took tells how long the large ones will take.
    """
    return [
        Run(Case(system, compression, stem, batch, nodes), repeat)
        for stem, batch, nodes in product(stems, sorted(batches), sorted(all_nodes))
        for repeat in range(repeats)
        for system in systems
        for compression in _compressions_of(system, compressions, nodes)
    ]


def _compressions_of(system: str, compressions: Sequence[str], nodes: int) -> Sequence[str]:
    """A single node sends nothing, and the rivals know no compression without a graphics card."""
    return compressions if system == EDGEDDL and nodes > 1 else (UNCOMPRESSED,)


def plan_steps(system: str, step_seconds: float, budget_seconds: float) -> Steps:
    """As many steps as the budget holds, but enough of them to be a measurement."""
    affordable = int(budget_seconds / step_seconds)
    # edgeddl's trainer does not count its first two steps, whatever they cost
    short = affordable < WARM_UP_STEPS + LEAST_MEASURED_STEPS and system != EDGEDDL
    warm_up = LEAST_WARM_UP_STEPS if short else WARM_UP_STEPS
    return Steps(warm_up, max(affordable - warm_up, LEAST_MEASURED_STEPS))
