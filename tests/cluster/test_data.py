"""Packs on emulated boards, copied by fab and by Ansible.

Light nodes share this machine's files except /run, so packs are copied to a folder there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeddl.data.packing import PackOptions, pack_folder
from tests.cluster.emulator import Emulator
from tests.cluster.fab import Fab
from tests.provision.playbook import PROGRAM, play, site
from tests.unit.data.pictures import write_folder

pytestmark = pytest.mark.cluster

NAME = "my pictures.pack"
FILES = 5


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    source = write_folder(tmp_path / "pictures")
    return pack_folder(source, tmp_path / NAME, PackOptions(image_size=(32, 32)))


@pytest.fixture
def fab(three_nodes: Emulator) -> Iterator[Fab]:
    fab = Fab(three_nodes)
    yield fab
    shutil.rmtree(fab.results, ignore_errors=True)


def files_copied(said: str) -> list[int]:
    """Return the number of files copied to each board."""
    return [int(line.split()[2]) for line in said.splitlines()[2:]]


def test_fab_copies_only_differences(fab: Fab, pack: Path) -> None:
    copy = ("data", "--pack", str(pack), "--to", "/run/fab-packs")
    there = f"/run/fab-packs/{NAME}"
    assert files_copied(fab.succeed(*copy)) == [FILES] * 3
    two = f"{fab.emulator.node(1)},{fab.emulator.node(2)}"
    options = ("--model", "resnet9", "--batch-size", "4", "--max-steps", "2", "--run-dir", "runs/p")
    fab.succeed("train", "-H", two, "--", "--dataset", f"pack:{there}", *options)
    assert json.loads((fab.results / "p" / "summary.json").read_text())["steps"] == 2
    # training has written verified.json on two boards
    assert files_copied(fab.succeed(*copy)) == [0, 0, 0]
    fab.emulator.on(2, "sh", "-c", f"printf x | dd conv=notrunc of='{there}/train-images.bin'")
    assert files_copied(fab.succeed(*copy)) == [0, 1, 0]
    assert "match" in fab.emulator.on(2, "edgeddl", "data", "check", there)
    found = fab.emulator.on(2, "ls", "-A", there).split()
    assert not [name for name in found if name.endswith(".partial")]


def test_an_unreachable_board_does_not_stop_the_others(
    fab: Fab, pack: Path, tmp_path: Path
) -> None:
    address = fab.emulator.network.rpartition(".")[0] + ".50"
    more = fab.inventory.read_text().replace(
        "  vars:", f'    absent:\n      ansible_host: "{address}"\n  vars:'
    )
    (tmp_path / "more.yml").write_text(more)
    words = ("--to", "/run/more-packs", "--inventory", str(tmp_path / "more.yml"))
    done = fab("data", "--pack", str(pack), *words)
    outcomes = [line.split()[1] for line in done.stdout.splitlines()[2:]]
    assert (done.returncode, outcomes) == (1, ["ok", "ok", "ok", "unreachable:"])


@pytest.mark.skipif(not PROGRAM.exists(), reason="ansible-core is not installed")
def test_ansible_copies_only_differences(fab: Fab, pack: Path) -> None:
    variables = {
        "data_dataset": "none",
        "data_pack": f"'{pack}'",
        "python_env_data": "/run/ansible-packs",
    }

    def changed(*words: str) -> list[int]:
        outcome = play(
            site("site"),
            inventory=fab.inventory,
            words=["--tags", "data", *words],
            variables=variables,
        )
        assert outcome.code == 0, outcome.output
        counts = outcome.counts()
        return [counts[fab.emulator.node(number)]["changed"] for number in (1, 2, 3)]

    assert changed("--check") == changed() == [2, 2, 2]  # the folder, the files
    there = f"/run/ansible-packs/{NAME}"
    assert "match" in fab.emulator.on(3, "edgeddl", "data", "check", there)
    assert changed() == [0, 0, 0]
    fab.emulator.on(3, "sh", "-c", f"printf x | dd conv=notrunc of='{there}/train-images.bin'")
    assert changed() == [0, 0, 1]
