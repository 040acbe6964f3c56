"""Connects the ranks of a ring by TCP.

A connection starts with a secret token that the ranks have exchanged over MPI; others are rejected.
A rank listens only until its left neighbour is connected, and only on the chosen address.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import socket
import time

from edgeddl.comm.agreement import together
from edgeddl.comm.communicator import Communicator
from edgeddl.comm.ring import Ring
from edgeddl.comm.ring.addresses import (
    HINT,
    allowed_interfaces,
    choose_addresses,
    mpi_networks,
    own_interfaces,
)
from edgeddl.errors import CommunicationError

TIMEOUT_SECONDS = 10.0
TOKEN_BYTES = 16


def connect_ring(communicator: Communicator) -> Ring:
    """Collective: a ring of new connections; if one fails, every rank raises."""
    rank, size, hosts = communicator.rank, communicator.size, communicator.hosts
    interfaces = communicator.allgather(
        allowed_interfaces(own_interfaces(), mpi_networks(os.environ))
    )
    addresses = together(communicator, lambda: choose_addresses(hosts, interfaces))
    listener = together(communicator, lambda: _listen(addresses[rank]))
    with listener:
        token = secrets.token_bytes(TOKEN_BYTES)
        offers = communicator.allgather((listener.getsockname()[1], token))
        right = (rank + 1) % size
        port, right_token = offers[right]
        name = f"rank {right} on {hosts[right]}, {addresses[right]} port {port}"
        left_name = f"rank {(rank - 1) % size} on {hosts[(rank - 1) % size]}"
        to_right, from_left = together(
            communicator,
            lambda: (
                _connect((addresses[right], port), right_token, name),
                _accept(listener, token, left_name),
            ),
        )
    return Ring(rank, size, from_left, to_right)


def _listen(address: str) -> socket.socket:
    try:
        return socket.create_server((address, 0))
    except OSError as error:
        raise CommunicationError(f"cannot listen on {address}: {error}", hint=HINT) from None


def _connect(address: tuple[str, int], token: bytes, name: str) -> socket.socket:
    try:
        connection = socket.create_connection(address, TIMEOUT_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(token)
    except OSError as error:
        raise CommunicationError(f"cannot connect to {name}: {error}", hint=HINT) from None
    return connection


def _accept(listener: socket.socket, token: bytes, name: str) -> socket.socket:
    """The first connection that sends the token.

    Connections are read concurrently, so that idle ones do not delay the neighbour.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    received: dict[socket.socket, bytes] = {}
    with selectors.DefaultSelector() as selector:
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ)
        try:
            while (remaining := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(remaining):
                    if key.fileobj is listener:
                        with contextlib.suppress(BlockingIOError, ConnectionError):  # already gone
                            connection, _ = listener.accept()
                            connection.setblocking(False)
                            selector.register(connection, selectors.EVENT_READ)
                            received[connection] = b""
                        continue
                    connection = key.fileobj  # type: ignore[assignment]
                    more = _read(connection, len(token) - len(received[connection]))
                    received[connection] += more
                    if secrets.compare_digest(received[connection], token):
                        del received[connection]  # the others are closed below
                        return connection
                    if not more or len(received[connection]) == len(token):
                        selector.unregister(connection)
                        del received[connection]
                        connection.close()
        except OSError as error:
            raise CommunicationError(f"{name} has not connected: {error}", hint=HINT) from None
        finally:
            for connection in received:
                connection.close()
    raise CommunicationError(f"{name} has not connected", hint=HINT)


def _read(connection: socket.socket, count: int) -> bytes:
    """The bytes that have arrived; none if the other side has closed the connection."""
    try:
        return connection.recv(count)
    except OSError:
        return b""
