"""Tables of aligned text."""

from __future__ import annotations

from edgeddl.table import counted, render_facts, render_table


def test_numbers_with_or_without_sign_to_the_right_names_to_the_left() -> None:
    table = render_table(("host", "img/s"), [["pi-01", "+9.5"], ["pi-002", "120.0"]])
    assert table.splitlines() == [
        "host    img/s",
        "------  -----",
        "pi-01    +9.5",
        "pi-002  120.0",
    ]


def test_addresses_are_not_numbers() -> None:
    table = render_table(("address", "cores"), [["10.0.0.1", "4"], ["192.168.1.101", "-"]])
    assert table.splitlines()[2] == "10.0.0.1           4"


def test_facts_are_aligned() -> None:
    assert render_facts([("a", "1"), ("long", "2")]) == "  a     1\n  long  2"


def test_counted() -> None:
    assert counted(1, "rank") == "1 rank"
    assert counted(1234, "step") == "1,234 steps"
