"""Parses and checks single values of the inventory."""

from __future__ import annotations

import ipaddress

from cluster.errors import shown
from cluster.yaml_lines import Part

LARGEST_NUMBER = 10**9
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_network(part: Part) -> Network:
    text = parse_text(part, "cluster_network")
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        pass
    try:
        hint = f"did you mean {ipaddress.ip_interface(text).network}?"
    except ValueError:
        hint = "the network of the boards, such as 192.168.1.0/24"
    raise part.error(f"cluster_network: {text!r} is not a network", hint=hint)


def parse_address(part: Part, network: Network) -> str:
    text = parse_text(part, "ansible_host")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        hint = "use the board's IP address instead of its name, such as 192.168.1.101"
        raise part.error(f"ansible_host: {text!r} is not an IP address", hint=hint) from None
    if address not in network:
        raise part.error(
            f"ansible_host: {address} is outside cluster_network {network}",
            hint="correct one of them: training uses this network only",
        )
    if network.num_addresses > 2 and address in (network[0], network[-1]):
        raise part.error(
            f"ansible_host: {address} is the network or broadcast address of {network}"
        )
    return str(address)


def parse_text(part: Part, name: str) -> str:
    value = part.value()
    if not isinstance(value, str) or not value:
        raise part.error(f"{name} must be text, not {shown(value)}", hint="put numbers in quotes")
    return value


def parse_number(part: Part, name: str) -> int:
    value = part.value()
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number and value > LARGEST_NUMBER:
        raise part.error(f"{name} must be at most {LARGEST_NUMBER:,}, not {shown(value)}")
    if not is_number or value < 1:
        hint = "write it without quotes and unit, or remove it to have it detected"
        raise part.error(f"{name} must be a whole number above 0, not {shown(value)}", hint=hint)
    return value
