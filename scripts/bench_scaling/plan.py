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
EVEN = "even"
BALANCES = (EVEN, "auto")

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
    balance: str = EVEN

    @property
    def series(self) -> Case:
        """The same for all numbers of nodes."""
        return replace(self, nodes=1)

    @property
    def alone(self) -> Case:
        """The run on a single node that this one is compared with."""
        return replace(self.plain, nodes=1)

    @property
    def beside(self) -> Case:
        """The same nodes, each for itself."""
        return replace(self.plain, apart=True)

    @property
    def plain(self) -> Case:
        """Without what only some systems can do."""
        return replace(self, compression=UNCOMPRESSED, balance=EVEN, apart=False)

    @property
    def order(self) -> tuple[object, ...]:
        """Where it stands in tables: by task, then by system."""
        compressed = self.compression != UNCOMPRESSED
        kind = (not self.apart, BALANCES.index(self.balance), compressed, self.compression)
        task = (STEMS.index(self.stem), self.batch, self.nodes)
        return (*task, SYSTEMS.index(self.system), *kind)

    @property
    def label(self) -> str:
        """The system as tables name it, e.g. "edgeddl fp16"."""
        words = [self.system, self.compression, self.balance, "apart" if self.apart else ""]
        return " ".join(word for word in words if word not in (UNCOMPRESSED, EVEN, ""))

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
    balances: Sequence[str] = (EVEN,),
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
        for case in _cases(Case(system, UNCOMPRESSED, stem, batch, nodes), balances, compressions)
    ]


def _cases(plain: Case, balances: Sequence[str], compressions: Sequence[str]) -> list[Case]:
    """A single node sends and shares nothing; the rivals know no compression without a graphics
    card, and no uneven shares.
    """
    if plain.nodes == 1:
        return [plain]
    if plain.system != EDGEDDL:
        return [plain.beside, plain]
    kinds = product(balances, compressions)
    return [plain.beside, *(replace(plain, balance=b, compression=c) for b, c in kinds)]


def plan_steps(system: str, step_seconds: float, budget_seconds: float) -> Steps:
    """As many steps as the budget holds, but enough of them to be a measurement."""
    affordable = int(budget_seconds / step_seconds)
    # edgeddl's trainer does not count its first two steps, whatever they cost
    short = affordable < WARM_UP_STEPS + LEAST_MEASURED_STEPS and system != EDGEDDL
    warm_up = LEAST_WARM_UP_STEPS if short else WARM_UP_STEPS
    return Steps(warm_up, max(affordable - warm_up, LEAST_MEASURED_STEPS))
