"""Which addresses the ranks of a ring use, and which connections they accept."""

from __future__ import annotations

import contextlib
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Interface
from pathlib import Path

import numpy as np
import pytest

from edgeddl.comm.communicator import Communicator
from edgeddl.comm.local import run_ranks
from edgeddl.comm.ring import connect
from edgeddl.comm.ring.addresses import (
    NetworkInterface,
    allowed_interfaces,
    choose_addresses,
    mpi_networks,
    own_interfaces,
)
from edgeddl.comm.ring.connect import connect_ring
from edgeddl.errors import CommunicationError, EdgeddlError


def interface(text: str, mbit: int = 1000, name: str = "eth0") -> NetworkInterface:
    return NetworkInterface(name, IPv4Interface(text), mbit)


HOSTS = ["pi-01", "pi-02", "pi-03"]
WIRED = [[interface(f"10.0.0.{n}/24")] for n in (1, 2, 3)]


def test_the_network_all_hosts_share() -> None:
    interfaces = [[interface("192.168.7.1/24"), *WIRED[0]], WIRED[1], WIRED[2]]
    assert choose_addresses(HOSTS, interfaces) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


def test_the_fastest_of_several() -> None:
    interfaces = [[interface(f"192.168.7.{n}/24", 0), *WIRED[n - 1]] for n in (1, 2, 3)]
    assert choose_addresses(HOSTS, interfaces) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


def test_a_network_is_as_fast_as_its_slowest_interface() -> None:
    interfaces = [
        [interface(f"192.168.7.{n}/24", 500), interface(f"10.0.0.{n}/24")] for n in (1, 2, 3)
    ]
    interfaces[1] = [interface("192.168.7.2/24", 500), interface("10.0.0.2/24", 100)]
    assert choose_addresses(HOSTS, interfaces)[0] == "192.168.7.1"


def test_the_fastest_interface_within_one_network() -> None:
    """At home the wireless network and the wired one are often the same."""
    interfaces = [[interface(f"10.0.0.{n + 100}/24", 0, "wlan0"), *WIRED[n - 1]] for n in (1, 2, 3)]
    assert choose_addresses(HOSTS, interfaces) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


def test_link_local_addresses_come_last() -> None:
    interfaces = [
        [interface(f"169.254.3.{n}/16", 10_000, "veth"), *WIRED[n - 1]] for n in (1, 2, 3)
    ]
    assert choose_addresses(HOSTS, interfaces) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert choose_addresses(HOSTS, [own[:1] for own in interfaces])[2] == "169.254.3.3"


def test_hosts_of_one_name_are_not_one_host() -> None:
    """As with boards flashed from the same image."""
    assert choose_addresses(["pi"] * 3, WIRED) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert choose_addresses(["pi", "pi", "pi-03"], WIRED)[1] == "10.0.0.2"


def test_networks_within_hosts_lead_nowhere() -> None:
    inner = interface("172.17.0.1/16", 10_000, "docker0")
    interfaces = [[inner, *own] for own in WIRED]
    assert choose_addresses(HOSTS, interfaces) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    with pytest.raises(CommunicationError, match="no IPv4 network in common"):
        choose_addresses(HOSTS, [[inner]] * 3)


def test_ranks_of_one_host_share_its_address() -> None:
    hosts, interfaces = ["pi-01", "pi-01", "pi-02"], [WIRED[0], WIRED[0], WIRED[1]]
    assert choose_addresses(hosts, interfaces) == ["10.0.0.1", "10.0.0.1", "10.0.0.2"]


def test_one_host_alone_needs_no_network() -> None:
    assert choose_addresses(["pi-01"] * 2, [[], []]) == ["127.0.0.1"] * 2


def test_hosts_without_a_common_network() -> None:
    with pytest.raises(CommunicationError, match="no IPv4 network in common") as caught:
        choose_addresses(HOSTS, [WIRED[0], [interface("10.0.1.2/24")], WIRED[2]])
    assert "--allreduce mpi" in str(caught.value)


def test_cards_that_mpi_may_use() -> None:
    wired, wireless = interface("10.0.0.1/24"), interface("192.168.7.1/24", 0, "wlan0")
    interfaces = [wired, wireless]
    assert allowed_interfaces(interfaces, []) == interfaces
    assert allowed_interfaces(interfaces, ["wlan0"]) == [wireless]
    assert allowed_interfaces(interfaces, ["10.0.0.0/24"]) == [wired]
    assert allowed_interfaces(interfaces, ["10.0.0.1/24", "wlan0"]) == interfaces
    assert allowed_interfaces(interfaces, ["eth7"]) == []
    assert allowed_interfaces(interfaces, ["fd00::/64", "10.0.0/24"]) == []


def test_networks_that_open_mpi_is_restricted_to(tmp_path: Path) -> None:
    assert mpi_networks({}, tmp_path) == []
    defaults = tmp_path / "etc/openmpi-mca-params.conf"
    defaults.parent.mkdir()
    defaults.write_text("# btl_tcp_if_include = no\npml = ob1\nbtl_tcp_if_include = 10.0.0.0/24\n")
    assert mpi_networks({}, tmp_path) == ["10.0.0.0/24"]
    environment = {"OMPI_MCA_btl_tcp_if_include": "eth0, 10.1.0.0/16"}
    assert mpi_networks(environment, tmp_path) == ["eth0", "10.1.0.0/16"]


def test_this_machines_interfaces_have_addresses_of_their_own() -> None:
    for one in own_interfaces():
        assert not one.address.is_loopback and one.mbit >= 0
        with socket.create_server((str(one.address.ip), 0)):
            pass  # one can listen there


@pytest.fixture
def one_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that connect as processes of one host do."""
    monkeypatch.setattr(
        connect, "choose_addresses", lambda hosts, interfaces: ["127.0.0.1"] * len(hosts)
    )


def sum_by_new_ring(communicator: Communicator) -> float:
    ring = connect_ring(communicator)
    array = np.full(100_000, communicator.rank, np.float32)
    ring.sum(array)
    ring.close()
    assert (array == array[0]).all()
    return float(array[0])


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_ring_over_tcp(size: int, one_host: None) -> None:
    assert run_ranks(size, sum_by_new_ring) == [size * (size - 1) / 2] * size


def test_other_connections_are_rejected(one_host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    strangers: list[socket.socket] = []
    listen = connect._listen

    def visited(address: str) -> socket.socket:
        listener = listen(address)
        for token in (b"x" * connect.TOKEN_BYTES, b"short"):
            stranger = socket.create_connection(listener.getsockname())
            stranger.sendall(token)
            stranger.shutdown(socket.SHUT_WR)
            strangers.append(stranger)
        return listener

    monkeypatch.setattr(connect, "_listen", visited)
    assert run_ranks(2, sum_by_new_ring) == [1.0, 1.0]
    for stranger in strangers:
        assert stranger.recv(1) == b""
        stranger.close()


def test_a_missing_neighbour_is_an_error_on_all_ranks(
    one_host: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(connect, "_connect", lambda place, token, name: socket.socket())

    def work(communicator: Communicator) -> str:
        with pytest.raises(EdgeddlError) as caught:
            connect_ring(communicator)
        assert caught.value.on_all_ranks
        return str(caught.value)

    for message in run_ranks(3, work):
        for rank, left in ((0, 2), (1, 0), (2, 1)):
            name = f"rank {left} on thread-{left}"
            assert f"rank {rank} (thread-{rank}): {name} has not connected" in message


def test_a_refused_connection_names_rank_host_and_address(
    one_host: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(
        connect, "choose_addresses", lambda hosts, interfaces: ["127.0.0.1", "127.0.0.2"]
    )
    monkeypatch.setattr(connect, "_listen", lambda address: socket.create_server(("127.0.0.1", 0)))

    def work(communicator: Communicator) -> str:
        with pytest.raises(EdgeddlError) as caught:
            connect_ring(communicator)
        return str(caught.value)

    for message in run_ranks(2, work):
        assert "cannot connect to rank 1 on thread-1, 127.0.0.2 port" in message


def test_a_token_may_come_in_parts() -> None:
    token = b"w" * connect.TOKEN_BYTES
    with socket.create_server(("127.0.0.1", 0)) as listener:
        neighbour = socket.create_connection(listener.getsockname())
        neighbour.sendall(token[:5])
        threading.Timer(0.1, neighbour.sendall, [token[5:]]).start()
        accepted = connect._accept(listener, token, "rank 6")
        assert accepted.getpeername() == neighbour.getsockname()
        for one in (neighbour, accepted):
            one.close()


def test_idle_connections_do_not_keep_the_neighbour_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do those that send nonsense or leave: all are read in parallel, and closed in the end."""
    monkeypatch.setattr(connect, "TIMEOUT_SECONDS", 2.0)
    token = b"w" * connect.TOKEN_BYTES
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = listener.getsockname()
        strangers = [socket.create_connection(place) for _ in range(6)]
        strangers[4].sendall(b"x" * 100)
        strangers[5].sendall(token[:-1])
        socket.create_connection(place).close()
        neighbour = connect._connect(place, token, "rank 7")
        accepted = connect._accept(listener, token, "rank 6")
        assert accepted.getpeername() == neighbour.getsockname()
        for stranger in strangers:
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
            stranger.close()
        neighbour.sendall(b"first bytes")
        accepted.settimeout(5)
        assert accepted.recv(20) == b"first bytes"  # what follows the token is not lost
        for one in (neighbour, accepted):
            one.close()


def test_idle_connections_alone_are_no_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "TIMEOUT_SECONDS", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as stranger,
    ):
        with pytest.raises(CommunicationError, match="rank 6 has not connected"):
            connect._accept(listener, b"w" * connect.TOKEN_BYTES, "rank 6")
        assert stranger.recv(1) == b""


def test_a_wrong_token_is_rejected_before_the_neighbour_comes() -> None:
    token = b"w" * connect.TOKEN_BYTES
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        ThreadPoolExecutor(1) as pool,
        socket.create_connection(listener.getsockname()) as stranger,
    ):
        accepted = pool.submit(connect._accept, listener, token, "rank 6")
        stranger.settimeout(5)
        stranger.sendall(b"x" * connect.TOKEN_BYTES)
        assert stranger.recv(1) == b""
        with connect._connect(listener.getsockname(), token, "rank 7"):
            accepted.result(timeout=20).close()
