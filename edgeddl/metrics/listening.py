"""Where an exporter listens: as narrowly as it was told, or a clear message why it cannot."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket

from edgeddl.errors import ConfigError

HIGHEST_PORT = 65535


def listen(address: str, port: int, *, option: str, who: str) -> socket.socket:
    """A listening socket. `address` may be a network: then this machine's address in it.

    option: of the command line, by which the port was given; who: for whom it is, in messages
    """
    if port > HIGHEST_PORT:
        raise ConfigError(
            f"{option}: {who} would have port {port}, above {HIGHEST_PORT}",
            hint=f"give a smaller {option}",
        )
    where = own_address(address)
    family = socket.AF_INET6 if ":" in where else socket.AF_INET
    try:
        return socket.create_server((where, port), family=family, backlog=64)
    except OSError as error:
        raise _cannot_listen(error, where, port, option, who) from None


def own_address(text: str) -> str:
    """This machine's address in a network such as 10.42.0.0/24; any other text as it is."""
    if "/" not in text:
        return text
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ConfigError(
            f"{text} is no network", hint="a network looks like 10.42.0.0/24"
        ) from None
    family = socket.AF_INET6 if network.version == 6 else socket.AF_INET
    # Connecting a datagram socket sends nothing, but chooses the address that would send.
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(network.network_address + 1), 9))
            address = probe.getsockname()[0]
        except OSError:
            address = ""
    if not address or ipaddress.ip_address(address) not in network:
        raise ConfigError(
            f"this machine, {socket.gethostname()}, has no address in the network {text}",
            hint="ip -brief address shows those it has",
        )
    return address


def is_local_host(field: str) -> bool:
    """Whether the Host field of a request, with or without a port, names this machine itself."""
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
            f"port {port} of {where} is in use already; it was to be for {who}",
            hint=f"another run may be there: give another {option},"
            f" or see who it is: ss -ltnp 'sport = :{port}'",
        )
    # create_server adds the address a second time
    reason = (error.strerror or str(error)).partition(" (while attempting")[0]
    return ConfigError(
        f"{who} cannot listen on port {port} of {where}: {reason}",
        hint="ip -brief address shows the addresses of this machine",
    )
