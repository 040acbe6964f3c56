"""Plans the runs, their order and their numbers of steps. Pure."""

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

# The first step allocates memory and opens connections; DistributedDataParallel rebuilds its
# buckets after it.
WARM_UP_STEPS = 2
LEAST_WARM_UP_STEPS = 1
LEAST_MEASURED_STEPS = 2


@dataclass(frozen=True)
class Case:
    """A measured case: a system and its task. `batch` is the batch of one node.

    apart: all nodes train at the same time, but independently. Emulated nodes share the caches and
        the memory of one machine, so they are slower together than alone. Boards are not.
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
        """The key of a series, which is the same for all numbers of nodes."""
        return replace(self, nodes=1)

    @property
    def alone(self) -> Case:
        """The case on a single node that this one is compared with."""
        return replace(self.plain, nodes=1)

    @property
    def beside(self) -> Case:
        """The case with the same nodes, each training independently."""
        return replace(self.plain, apart=True)

    @property
    def plain(self) -> Case:
        """The case without features that only some systems have."""
        return replace(self, compression=UNCOMPRESSED, balance=EVEN, apart=False)

    @property
    def order(self) -> tuple[object, ...]:
        """Sort key for tables: by task, then by system."""
        compressed = self.compression != UNCOMPRESSED
        kind = (not self.apart, BALANCES.index(self.balance), compressed, self.compression)
        task = (STEMS.index(self.stem), self.batch, self.nodes)
        return (*task, SYSTEMS.index(self.system), *kind)

    @property
    def label(self) -> str:
        """Name of the system in tables, e.g. "edgeddl fp16"."""
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
    """Numbers of warm-up and measured steps of a run."""

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
    """Plan all runs: within a repeat, every system runs on every number of nodes.

    So compared runs have similar background load. Small tasks come first, to estimate the duration
    of large ones.
    """
    return [
        Run(case, repeat)
        for stem, batch in product(stems, sorted(batches))
        for repeat in range(repeats)
        for nodes, system in product(sorted(all_nodes), systems)
        for case in _cases(Case(system, UNCOMPRESSED, stem, batch, nodes), balances, compressions)
    ]


def _cases(plain: Case, balances: Sequence[str], compressions: Sequence[str]) -> list[Case]:
    """Return the variants of a case that make sense.

    A single node sends nothing. The baselines have no compression without a GPU, and no uneven
    shares.
    """
    if plain.nodes == 1:
        return [plain]
    if plain.system != EDGEDDL:
        return [plain.beside, plain]
    kinds = product(balances, compressions)
    return [plain.beside, *(replace(plain, balance=b, compression=c) for b, c in kinds)]


def plan_steps(system: str, step_seconds: float, budget_seconds: float) -> Steps:
    """Return as many steps as fit the budget, but at least the minimum for a measurement."""
    affordable = int(budget_seconds / step_seconds)
    # edgeddl's trainer always excludes its first two steps
    short = affordable < WARM_UP_STEPS + LEAST_MEASURED_STEPS and system != EDGEDDL
    warm_up = LEAST_WARM_UP_STEPS if short else WARM_UP_STEPS
    return Steps(warm_up, max(affordable - warm_up, LEAST_MEASURED_STEPS))
