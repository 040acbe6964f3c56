"""Files that the emulator writes: inventory, ssh, Open MPI, nftables, package sources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.emulate import host_settings, inventory, nat, openmpi, ssh
from cluster.emulate.spec import ClusterSpec, plan_cluster
from cluster.errors import ClusterError
from cluster.inventory_file import read_inventory, render_inventory

FOLDER = Path("/var/lib/edgeddl/clusters/lab")


@pytest.fixture
def spec() -> ClusterSpec:
    shares = {"cores": 0.35, "rate_mbit": 940.0, "memory_bytes": 2**30}
    return plan_cluster(name="lab", network="10.1.2.0/24", count=2, defaults=shares)


def test_nodes_get_the_variables_of_the_activate_script(tmp_path: Path) -> None:
    """The variables of the calling shell are not passed on."""
    environment = tmp_path / "with space"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "activate").write_text(
        """
        echo welcome
        export VIRTUAL_ENV="$(dirname "$(dirname "$0")")" OMPI_PRTERUN="a=b c" PS1=x
        export PATH="$VIRTUAL_ENV/bin:$PATH"
        """
    )
    assert openmpi.activated(environment) == {
        "PATH": f"{environment}/bin:{openmpi.SYSTEM_PATH}",
        "VIRTUAL_ENV": str(environment),
        "OMPI_PRTERUN": "a=b c",
    }
    assert openmpi.activated(None) == {"PATH": openmpi.SYSTEM_PATH}


def test_an_inventory() -> None:
    text = render_inventory(
        {"pi-01": {"ansible_host": "10.0.0.1", "cluster_cores": 4}, "pi-02": {}},
        {"cluster_head": "pi-01", "ansible_ssh_common_args": '-F "a b"'},
        "made for a test",
    )
    assert text.splitlines() == [
        "# made for a test",
        "cluster:",
        "  hosts:",
        "    pi-01:",
        '      ansible_host: "10.0.0.1"',
        "      cluster_cores: 4",
        "    pi-02:",
        "  vars:",
        '    cluster_head: "pi-01"',
        '    ansible_ssh_common_args: "-F \\"a b\\""',
    ]


def test_a_users_own_inventory_is_not_overwritten(tmp_path: Path) -> None:
    inventory.check(tmp_path / "new.yml", "pi")
    (tmp_path / "ours.yml").write_text("# Emulated cluster 'pi': ...\n")
    inventory.check(tmp_path / "ours.yml", "pi")
    (tmp_path / "own.yml").write_text("cluster:\n")
    for path in (tmp_path / "own.yml", tmp_path, tmp_path / "absent" / "new.yml"):
        with pytest.raises(ClusterError, match=str(path)):
            inventory.check(path, "pi")


def test_only_a_clusters_own_inventory_is_removed(spec: ClusterSpec, tmp_path: Path) -> None:
    path = tmp_path / "emulated.yml"
    path.write_text(inventory.render(spec, FOLDER / "ssh_config", {"edgeddl_work": "/w"}))
    assert f'ansible_ssh_common_args: "-F {FOLDER}/ssh_config"' in path.read_text()
    read = read_inventory(path)
    assert [(host.name, host.cores, host.memory_mib) for host in read.hosts] == [
        ("lab-01", 1, 1024),
        ("lab-02", 1, 1024),
    ]
    assert (read.head.name, read.variables["edgeddl_work"]) == ("lab-01", "/w")
    with pytest.raises(ClusterError, match="does not belong to cluster 'la'"):
        inventory.check(path, "la")
    inventory.remove(path, "la")
    assert path.exists()
    inventory.check(path, "lab")
    inventory.remove(path, "lab")
    assert not path.exists()
    inventory.remove(tmp_path, "lab")  # a folder is not an inventory
    assert tmp_path.exists()


def test_ssh_trusts_only_the_clusters_keys(spec: ClusterSpec) -> None:
    text = ssh.render_client_config(spec, FOLDER)
    assert "Host lab-02\n    HostName 10.1.2.2\n" in text
    assert "StrictHostKeyChecking yes" in text
    assert f"UserKnownHostsFile {FOLDER}/known_hosts" in text
    assert "GlobalKnownHostsFile /dev/null" in text


def test_sshd_listens_only_on_its_nodes_address(spec: ClusterSpec) -> None:
    text = ssh.render_server_config(FOLDER, spec.nodes[1], {"PATH": "/a b:/c"})
    assert "ListenAddress 10.1.2.2\n" in text
    assert "AuthenticationMethods publickey\n" in text
    assert 'SetEnv "PATH=/a b:/c"\n' in text
    assert "Subsystem sftp internal-sftp\n" in text


def test_open_mpis_own_settings_are_kept(spec: ClusterSpec, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "prte-mca-params.conf").write_text("a = 1\n")
    files = openmpi.render_files(spec, tmp_path)
    assert files == {
        "prte-default-hostfile": "lab-01 slots=1\nlab-02 slots=1\n",
        "prte-mca-params.conf": "a = 1\nprte_if_include = 10.1.2.0/24\n",
        "openmpi-mca-params.conf": "btl_tcp_if_include = 10.1.2.0/24\n",
    }


def test_only_packets_that_leave_the_cluster_are_translated(spec: ClusterSpec) -> None:
    text = nat.render_table(spec)
    assert text.startswith("table ip edgeddl_lab {")
    assert "ip saddr 10.1.2.0/24 ip daddr != 10.1.2.0/24 masquerade" in text


def host(folder: Path, **files: str) -> Path:
    """Create a host's root with these files; __ in a name stands for a slash."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_machines_use_the_hosts_mirrors_with_their_own_suite(tmp_path: Path) -> None:
    sources = (
        "# URIs: http://old.example/debian\n"
        "URIs: http://mirror.example/debian/\nSuites: bookworm\n\n"
        "URIs: https://mirror.example/debian-security\nSuites: bookworm-security\n"
    )
    other = "deb https://packages.example/debian-extras x main\n"
    root = host(
        tmp_path,
        etc__apt__sources_dot_list=other,
        **{"etc__apt__sources_dot_list.d__debian.sources": sources},
    )
    mirrors = host_settings.debian_mirrors(root)
    assert mirrors == ("http://mirror.example/debian", "https://mirror.example/debian-security")
    assert host_settings.render_sources("trixie", *mirrors).splitlines() == [
        "deb http://mirror.example/debian trixie main",
        "deb http://mirror.example/debian trixie-updates main",
        "deb https://mirror.example/debian-security trixie-security main",
    ]


def test_the_default_mirror_is_debians(tmp_path: Path) -> None:
    assert host_settings.debian_mirrors(tmp_path) == (
        "http://deb.debian.org/debian",
        "http://deb.debian.org/debian-security",
    )


def test_network_settings_of_the_host_are_copied(tmp_path: Path) -> None:
    root = host(
        tmp_path,
        etc__resolv_dot_conf="nameserver 127.0.0.53\n",
        run__systemd__resolve__resolv_dot_conf="nameserver 10.0.0.53\n",
        etc__pip_dot_conf="[global]\n",
        usr__local__share__ca_dash="unrelated",
        **{"usr__local__share__ca-certificates__own__ca.crt": "certificate"},
    )
    files = host_settings.machine_files("bookworm", root)
    assert files["etc/resolv.conf"] == "nameserver 10.0.0.53\n"
    assert files["etc/pip.conf"] == "[global]\n"
    assert files["usr/local/share/ca-certificates/own/ca.crt"] == "certificate"
    assert json.dumps(files)  # only text
