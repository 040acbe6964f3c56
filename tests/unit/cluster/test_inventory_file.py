"""Reading and checking the inventory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.inventory_file import FOLDER, main, read_inventory

GOOD = """\
cluster:
  hosts:
    pi-01:
      ansible_host: 10.0.0.1
    pi-02:
      ansible_host: 10.0.0.2
      cluster_cores: 2
      edgeddl_work: /mnt/work
  vars:
    cluster_network: 10.0.0.0/24
    cluster_head: pi-01
    ansible_user: pi
    cluster_memory_mib: 3792
    ansible_become_password: !vault |
      $ANSIBLE_VAULT;1.1;AES256
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "boards.yml"


def test_a_valid_inventory(file: Path) -> None:
    file.write_text(GOOD)
    inventory = read_inventory(file)
    first, second = inventory.hosts
    assert (inventory.network, inventory.head, inventory.user) == ("10.0.0.0/24", first, "pi")
    assert (first.name, first.address, first.cores, first.memory_mib) == (
        *("pi-01", "10.0.0.1"),
        *(None, 3792),
    )
    assert (second.cores, second.variables["edgeddl_work"]) == (2, "/mnt/work")
    assert "edgeddl_work" not in inventory.variables
    assert second.variables["ansible_become_password"].startswith("$ANSIBLE_VAULT")


def test_the_example_is_valid() -> None:
    assert len(read_inventory(FOLDER / "boards.example.yml").hosts) == 4


# name: text to replace in the valid file, its replacement, the reported line, parts of the message
MISTAKES = {
    "unknown group": (
        "cluster:",
        "clusters:",
        1,
        "unknown key 'clusters'",
        "did you mean cluster?",
    ),
    "unknown key": ("  vars:", "  var:", 9, "unknown key 'var' in cluster", "did you mean vars?"),
    "misspelt host variable": ("cluster_cores", "cluster_core", 7, "unknown key 'cluster_core'"),
    "unknown role": ("edgeddl_work", "work", 8, "unknown key 'work' in pi-02", "role's prefix"),
    "variable of the cluster": ("cluster_cores: 2", "cluster_head: x", 7, "move it to vars"),
    "merge key": ("cluster_cores: 2", "<<: {}", 7, "unknown key '<<' in pi-02"),
    "duplicate host": ("pi-02:", "pi-01:", 5, "duplicate key 'pi-01'", "in line 3"),
    "duplicate variable": ("cluster_cores: 2", "edgeddl_work: x", 8, "duplicate key", "in line 7"),
    "duplicate address": ("10.0.0.2", "10.0.0.1", 6, "pi-02 has address", "line 4"),
    "bad address": ("10.0.0.2", "10.0.0.256", 6, "'10.0.0.256' is not an IP address"),
    "a name as address": ("10.0.0.2", "pi-02.local", 6, "is not an IP address"),
    "a number as address": ("10.0.0.2", "10", 6, "ansible_host must be text, not 10"),
    "address elsewhere": ("10.0.0.2", "10.0.1.2", 6, "outside cluster_network 10.0.0.0/24"),
    "broadcast": ("10.0.0.2", "10.0.0.255", 6, "broadcast address of 10.0.0.0/24"),
    "no address": ("ansible_host: 10.0.0.2", "ansible_port: 22", 5, "pi-02 has no ansible_host"),
    "bad host name": ("pi-02:", "pi_02:", 5, "'pi_02' is not a host name"),
    "range of hosts": ("pi-02:", "pi-[2:4]:", 5, "is not a host name"),
    "host as number": ("pi-02:", "2:", 5, "the key 2 must be text", 'write "2":'),
    "host as list": ("    pi-02:\n", "    pi-02: [a]\n    pi-03:\n", 5, "must be a mapping"),
    "network with host bits": ("10.0.0.0/24", "10.0.0.1/24", 10, "did you mean 10.0.0.0/24?"),
    "bad network": ("10.0.0.0/24", "10.0.0.0/33", 10, "is not a network", "such as"),
    "no network": ("    cluster_network: 10.0.0.0/24\n", "", 9, "vars has no cluster_network"),
    "no head": ("    cluster_head: pi-01\n", "", 9, "vars has no cluster_head"),
    "empty head": ("cluster_head: pi-01", "cluster_head:", 11, "must be text, not None"),
    "head is no host": ("cluster_head: pi-01", "cluster_head: pi-1", 11, "not a host", "as pi-01"),
    "no user": ("    ansible_user: pi\n", "", 9, "vars has no ansible_user"),
    "text for a number": ("cluster_cores: 2", "cluster_cores: four", 7, "not 'four'"),
    "truth for a number": ("cluster_cores: 2", "cluster_cores: yes", 7, "not True"),
    "negative memory": ("3792", "-1", 13, "cluster_memory_mib must be a whole number above 0"),
    "tab": ("    pi-02:", "\tpi-02:", 5, "not YAML", "indent by two spaces"),
    "unknown tag": ("/mnt/work", "!work x", 8, "invalid value"),
    "impossible date": ("/mnt/work", "2024-13-45", 8, "invalid value"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported_with_its_line(file: Path, mistake: str) -> None:
    right, wrong, line, *words = MISTAKES[mistake]
    assert str(right) in GOOD
    file.write_text(GOOD.replace(str(right), str(wrong), 1))
    with pytest.raises(ClusterError) as raised:
        read_inventory(file)
    said = str(raised.value)
    assert said.startswith(f"{file}:{line}: "), said
    assert all(str(word) in said for word in words), said


WHOLE_FILES = {
    "empty": (b"", "1: the file is empty"),
    "only a comment": (b"# nothing\n", "1: the file is empty"),
    "only a word": (b"hello\n", "the file must be a mapping, not 'hello'"),
    "no hosts": (GOOD.split("    pi-01")[0].encode() + b"  vars: {}\n", "vars has no"),
    "no host": (
        b"cluster:\n  hosts:\n" + GOOD[GOOD.index("  vars") :].encode(),
        "2: hosts is empty",
    ),
    "two documents": (b"a: 1\n---\nb: 1\n", "2: not YAML"),
    "not text": (b"\xff\xfe\x00", "not a text file"),
    "control characters": (b"cluster: \x01", "not YAML"),
}


@pytest.mark.parametrize("name", WHOLE_FILES)
def test_a_file_that_is_not_an_inventory(
    file: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content, words = WHOLE_FILES[name]
    file.write_bytes(content)
    assert main([str(file)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and str(file) in said and words in said


def test_a_missing_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(file)]) == 2
    said = capsys.readouterr().err
    assert f"error: inventory {file} does not exist\n" in said
    assert f"cp {FOLDER / 'boards.example.yml'} {file}\n" in said


def test_the_inventory_is_printed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(GOOD)
    assert main([str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "host   address   cores       memory  role",
        "-----  --------  --------  --------  ----",
        "pi-01  10.0.0.1  detected  3792 MiB  head",
        "pi-02  10.0.0.2  2         3792 MiB",
        "",
        "network 10.0.0.0/24, user pi",
    ]
    assert main([str(file), "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["head"] == "pi-01" and read["hosts"][1]["cores"] == 2


def with_variable(value: str) -> str:
    return GOOD.replace("edgeddl_work: /mnt/work", f"edgeddl_work: {value}")


# chains of anchors: each contains the one before it ten times, or one level deeper
BOMB = "[&a0 [1], " + ", ".join(f"&a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 20))
CHAIN = "[&a0 [1], " + ", ".join(f"&a{n} [[[*a{n - 1}]]]" for n in range(1, 200))


@pytest.mark.parametrize("json_option", [[], ["--json"]], ids=["table", "JSON"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (with_variable("&a [*a]"), "8: values are nested too deeply or contain themselves"),
        (with_variable("&a {b: [*a]}"), "8: values are nested too deeply"),
        (with_variable(BOMB + "]"), "anchors expand to more than 100,000 values"),
        (with_variable(CHAIN + "]"), "8: values are nested too deeply"),
        (with_variable("[" * 100 + "]" * 100), "8: values are nested too deeply"),
        (with_variable("[" * 3000), "values are nested too deeply"),
        (GOOD.replace("cores: 2", "cores: 0x" + "f" * 5000), "at most 1,000,000,000, not a huge"),
        (with_variable("!!int x"), "8: invalid value"),
        (with_variable("!!bool x"), "8: invalid value"),
        (with_variable("!!timestamp x"), "8: invalid value"),
        (with_variable("x" * 300_000), "larger than 262,144 bytes"),
    ],
    ids=["list in itself", "mapping in itself", "anchors", "chain of anchors", "100 brackets",
         "3,000 brackets", "huge number", "no number", "no truth value", "no time", "large file"],
)  # fmt: skip
def test_values_that_cannot_be_printed(
    file: Path, content: str, words: str, json_option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(content)
    assert main([str(file), *json_option]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and str(file) in said and words in said


def test_anchors_are_supported(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(GOOD.replace("pi-01\n", "pi-01\n    base_a: &a [1, 2]\n    base_b: [*a, *a]\n"))
    assert main([str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["variables"]["base_b"] == [[1, 2], [1, 2]]


@pytest.mark.parametrize("value", ["{2001-01-01: x}", "0x" + "f" * 5000], ids=["key", "number"])
def test_values_that_json_cannot_represent(
    file: Path, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(with_variable(value))
    assert main([str(file), "--json"]) == 2
    assert f"error: {file}: a variable cannot be written as JSON" in capsys.readouterr().err
