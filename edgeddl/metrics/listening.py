"""Opens the listening sockets of exporters, on one address only."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket

from edgeddl.errors import ConfigError

HIGHEST_PORT = 65535


def listen(address: str, port: int, *, option: str, who: str) -> socket.socket:
    """A listening socket. If `address` is a network, this machine's address in it is used.

    option: the command-line option of the port; who: the user of the socket, for messages
    """
    if port > HIGHEST_PORT:
        raise ConfigError(
            f"{option}: the port {port} for {who} is above {HIGHEST_PORT}",
            hint=f"use a smaller {option}",
        )
    where = own_address(address)
    family = socket.AF_INET6 if ":" in where else socket.AF_INET
    try:
        return socket.create_server((where, port), family=family, backlog=64)
    except OSError as error:
        raise _cannot_listen(error, where, port, option, who) from None


def own_address(text: str) -> str:
    """This machine's address in a network such as 10.42.0.0/24; other text is returned as is."""
    if "/" not in text:
        return text
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ConfigError(
            f"{text} is not a network", hint="write a network like 10.42.0.0/24"
        ) from None
    family = socket.AF_INET6 if network.version == 6 else socket.AF_INET
    # Connecting a datagram socket sends nothing, but selects the source address.
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(network.network_address + 1), 9))
            address = probe.getsockname()[0]
        except OSError:
            address = ""
    if not address or ipaddress.ip_address(address) not in network:
        raise ConfigError(
            f"this machine, {socket.gethostname()}, has no address in the network {text}",
            hint="list its addresses with: ip -brief address",
        )
    return address


def is_local_host(field: str) -> bool:
    """Whether the Host field of a request, with or without a port, refers to this machine."""
    found = re.fullmatch(r"(?:\[([^]]*)\]|([^:]*))(?::[0-9]*)?", field.strip())
    name = (found[1] or found[2] or "").lower().removesuffix(".") if found else ""
    own = socket.gethostname().lower()
    if name in ("localhost", own, f"{own}.local") or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _cannot_listen(error: OSError, where: str, port: int, option: str, who: str) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"cannot listen on port {port} of {where} for {who}: the port is in use",
            hint=f"another run may use it; choose another {option}, or find the program with"
            f" ss -ltnp 'sport = :{port}'",
        )
    # create_server appends the address to the reason
    reason = (error.strerror or str(error)).partition(" (while attempting")[0]
    return ConfigError(
        f"cannot listen on port {port} of {where} for {who}: {reason}",
        hint="list the addresses of this machine with: ip -brief address",
    )
