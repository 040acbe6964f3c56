"""fab deploy: installs edgeddl from this checkout on all boards."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from invoke import Context, Exit, task

from cluster.errors import ClusterError
from cluster.tasks.boards import HELP, find_inventory, select

ANSIBLE = Path(__file__).parents[2] / "ansible"


@task(help=HELP, auto_shortflags=False)
def deploy(c: Context, inventory: str | None = None) -> None:
    """Install edgeddl from this checkout on all boards, with Ansible

    fab deploy -- --check      arguments after -- go to ansible-playbook
    """
    cluster = find_inventory(inventory)
    limit = ["--limit", ",".join(board.name for board in select(c, cluster))] if c.only else []
    program = shutil.which("ansible-playbook")
    if program is None:
        raise ClusterError(
            "ansible-playbook is not installed",
            hint="pip install 'ansible-core>=2.19', then try again",
        )
    command = [program, "-i", str(cluster.path.absolute()), "playbooks/deploy.yml", *limit]
    print(f"ansible$ {' '.join(command[1:])}", flush=True)
    code = subprocess.run([*command, *c.words], cwd=ANSIBLE, check=False).returncode
    if code:
        raise Exit(f"deployment failed with exit code {code}", code)
