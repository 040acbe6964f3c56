"""Corrupts bytes at random, as disks, networks and attackers do."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

NUMBER = re.compile(rb"-?\d+(\.\d+)?(e[-+]?\d+)?")
VALUE = re.compile(rb"^|[\n:=,\[{(] ?")
NUMBERS = (
    *(b"0", b"-1", b"1e308", b"-1e308", b"1e-308", b"1e999", b"nan", b"inf", b"-inf", b"0.5"),
    *(b"255", b"256", b"65536", b"2147483648", b"9223372036854775808", b"1" + b"0" * 30),
    *(b"9" * 4301, b"0x" + b"f" * 4000, b"true", b'""', b"[]", b"{}", b"1_000"),
)
OPENING = (b"[", b"{", b'{"a":', b"[\n", b"- ")
LONGEST = 100_000


def mutate(random: Random, sample: bytes, tokens: Sequence[bytes]) -> bytes:
    """Apply one to eight mutations to the sample; `tokens` of its format may be inserted."""
    data = bytearray(sample)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        random.choice(MUTATIONS)(random, data, tokens)
    return bytes(data[:LONGEST])


def _span(random: Random, data: bytearray, longest: int = 64) -> slice:
    """Choose a part of the data, usually a short one."""
    start = random.randrange(len(data) + 1)
    return slice(start, start + int(2 ** random.uniform(0, longest.bit_length())))


def _position(random: Random, data: bytearray) -> int:
    """Choose where to insert: half of the time where the format expects a value."""
    places = [match.end() for match in VALUE.finditer(data[:LONGEST])]
    if places and random.random() < 0.5:
        return random.choice(places)
    return random.randrange(len(data) + 1)


def _flip_bit(random: Random, data: bytearray, tokens: Sequence[bytes]) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _set_byte(random: Random, data: bytearray, tokens: Sequence[bytes]) -> None:
    if data:
        data[random.randrange(len(data))] = random.choice((0, 10, 32, 127, 128, 255))


def _delete(random: Random, data: bytearray, tokens: Sequence[bytes]) -> None:
    del data[_span(random, data)]


def _truncate(random: Random, data: bytearray, tokens: Sequence[bytes]) -> None:
    del data[random.randrange(len(data) + 1) :]


def _copy(random: Random, data: bytearray, tokens: Sequence[bytes]) -> None:
    """Overwrite another part, or insert a copy."""
    part, target = data[_span(random, data)], _span(random, data)
    data[target if random.random() < 0.5 else slice(target.start, target.start)] = part


def _insert_token(random: Random, data: bytearray, tokens: Sequence[bytes]) -> None:
    position = _position(random, data)
    data[position:position] = random.choice(tokens)


def _repeat(random: Random, data: bytearray, tokens: Sequence[bytes]) -> None:
    """Insert a token or a part many times, or deep nesting."""
    is_deep = random.random() < 0.1
    is_token = random.random() < 0.7
    part = random.choice(tokens) if is_token else bytes(data[_span(random, data, 8)])
    part = random.choice(OPENING) if is_deep else part
    count = int(2 ** (random.uniform(9, 12) if is_deep else random.uniform(0, 6)))
    position = _position(random, data)
    data[position:position] = (part * count)[:LONGEST]


def _replace_number(random: Random, data: bytearray, tokens: Sequence[bytes]) -> None:
    if found := list(NUMBER.finditer(data[:LONGEST])):
        chosen = random.choice(found)
        data[chosen.start() : chosen.end()] = random.choice(NUMBERS)


Mutation = Callable[[Random, bytearray, Sequence[bytes]], None]
MUTATIONS: tuple[Mutation, ...] = (
    *(_flip_bit, _set_byte, _delete, _truncate, _copy, _insert_token, _insert_token),
    *(_repeat, _replace_number, _replace_number),
)
