"""Renders the input file of hpcc from problem size and grid of ranks; pure functions."""

from __future__ import annotations

from dataclasses import dataclass

from edgeddl.linpack.problem import BLOCK, LARGEST_RESIDUAL, plan_grid, size_for_memory


@dataclass(frozen=True)
class HpccPlan:
    """Parameters of an hpcc run."""

    n: int
    block: int
    rows: int
    columns: int

    @property
    def ranks(self) -> int:
        return self.rows * self.columns


def plan_hpcc(n: int, ranks: int) -> HpccPlan:
    return HpccPlan(n, min(BLOCK, n), *plan_grid(ranks))


def size_for_nodes(smallest_memory_bytes: float, nodes: int) -> int:
    """The nodes hold equal parts of one matrix, so the smallest memory sets the size."""
    return size_for_memory(smallest_memory_bytes * nodes)


def render_input(plan: HpccPlan) -> str:
    """hpccinf.txt. HPL reads the first word of each line; the rest is a comment.

    Apart from size, block and grid, these are the usual settings for a few nodes on Ethernet: ring
    broadcast of panels, one panel of look-ahead, right-looking recursive factorisation.
    """
    lines = [
        "HPLinpack benchmark input file",
        "made by: python -m edgeddl linpack --engine hpl",
        "HPL.out      output file name (if any)",
        "8            device out (6=stdout,7=stderr,file)",
        "1            # of problem sizes (N)",
        f"{plan.n:<12} Ns",
        "1            # of NBs",
        f"{plan.block:<12} NBs",
        "0            PMAP process mapping (0=Row-,1=Column-major)",
        "1            # of process grids (P x Q)",
        f"{plan.rows:<12} Ps",
        f"{plan.columns:<12} Qs",
        f"{LARGEST_RESIDUAL:<12} threshold",
        "1            # of panel fact",
        "2            PFACTs (0=left, 1=Crout, 2=Right)",
        "1            # of recursive stopping criterium",
        "4            NBMINs (>= 1)",
        "1            # of panels in recursion",
        "2            NDIVs",
        "1            # of recursive panel fact.",
        "1            RFACTs (0=left, 1=Crout, 2=Right)",
        "1            # of broadcast",
        "1            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)",
        "1            # of lookahead depth",
        "1            DEPTHs (>=0)",
        "2            SWAP (0=bin-exch,1=long,2=mix)",
        "64           swapping threshold",
        "0            L1 in (0=transposed,1=no-transposed) form",
        "0            U  in (0=transposed,1=no-transposed) form",
        "1            Equilibration (0=no,1=yes)",
        "8            memory alignment in double (> 0)",
        "##### hpcc ignores this line and reads on #####",
        "0            additional problem sizes for PTRANS",
        "1000         values of N",
        "0            additional blocking sizes for PTRANS",
        "40           values of NB",
    ]
    return "\n".join(lines) + "\n"
