"""How differences between the ranks' models are described."""

from __future__ import annotations

from edgeddl.comm.bucket import ParameterSpec
from edgeddl.comm.parameter_agreement import MOST_LINES, differences


def specs(*names: str) -> list[ParameterSpec]:
    return [ParameterSpec(name, (2,), (0,)) for name in names]


def test_an_order_is_described_by_the_first_place_that_differs() -> None:
    by_rank = [specs("a", "b", "c"), specs("a", "c", "b"), specs("a", "b", "c")]
    assert differences(by_rank) == [
        "gradient 2 of 3 in the order of the backward pass: b on ranks 0, 2, c on rank 1"
    ]


def test_many_differences_are_cut_short() -> None:
    names = [f"layer{number}" for number in range(MOST_LINES + 5)]
    lines = differences([specs(*names), specs()])
    assert len(lines) == MOST_LINES + 1
    assert lines[0] == "parameter layer0: (2,) used once on rank 0, absent on rank 1"
    assert lines[-1] == "and 5 more parameters"
