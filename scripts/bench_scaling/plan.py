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
    """What is measured: a system at work on one task. `batch` is that of one node.

    apart: each node trains for itself, all at the same time. Emulated nodes share the caches and
        the memory of one machine: beside each other they are slower than alone, as boards are not.
    """

    system: str
    compression: str
    stem: str
    batch: int
    nodes: int
    apart: bool = False

    @property
    def series(self) -> Case:
        """The same for all numbers of nodes."""
        return replace(self, nodes=1)

    @property
    def alone(self) -> Case:
        """The run on a single node that this one is compared with."""
        return replace(self, nodes=1, compression=UNCOMPRESSED, apart=False)

    @property
    def beside(self) -> Case:
        """The same nodes, each for itself."""
        return replace(self, compression=UNCOMPRESSED, apart=True)

    @property
    def order(self) -> tuple[object, ...]:
        """Where it stands in tables: by task, then by system."""
        compressed = self.compression != UNCOMPRESSED
        system = (SYSTEMS.index(self.system), not self.apart, compressed, self.compression)
        return (STEMS.index(self.stem), self.batch, self.nodes, *system)

    @property
    def label(self) -> str:
        """The system as tables name it, e.g. "edgeddl fp16"."""
        if self.apart:
            return f"{self.system} apart"
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
    """All runs: within a repeat every system has its turn on every number of nodes.

    So whatever is compared has met the same weather. Small tasks come first: what they took tells
    how long the large ones will take.
    """
    return [
        Run(case, repeat)
        for stem, batch in product(stems, sorted(batches))
        for repeat in range(repeats)
        for nodes, system in product(sorted(all_nodes), systems)
        for case in _cases(Case(system, UNCOMPRESSED, stem, batch, nodes), compressions)
    ]


def _cases(plain: Case, compressions: Sequence[str]) -> list[Case]:
    """A single node sends nothing, and the rivals know no compression without a graphics card."""
    if plain.nodes == 1:
        return [plain]
    kinds = compressions if plain.system == EDGEDDL else (UNCOMPRESSED,)
    return [plain.beside, *(replace(plain, compression=kind) for kind in kinds)]


def plan_steps(system: str, step_seconds: float, budget_seconds: float) -> Steps:
    """As many steps as the budget holds, but enough of them to be a measurement."""
    affordable = int(budget_seconds / step_seconds)
    # edgeddl's trainer does not count its first two steps, whatever they cost
    short = affordable < WARM_UP_STEPS + LEAST_MEASURED_STEPS and system != EDGEDDL
    warm_up = LEAST_WARM_UP_STEPS if short else WARM_UP_STEPS
    return Steps(warm_up, max(affordable - warm_up, LEAST_MEASURED_STEPS))
