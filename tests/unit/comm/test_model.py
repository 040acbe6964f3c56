"""The alpha-beta model and its calibration."""

from __future__ import annotations

import numpy as np
import pytest

from edgeddl.comm.model import LinkModel, Timing, bus_bandwidth, fit_link

LINK = LinkModel(turn_seconds=0.0004, bytes_per_second=110e6)
SIZES = (2**16, 2**20, 2**22, 44_695_848)


def timings(link: LinkModel, noise: float = 0.0) -> list[Timing]:
    rng = np.random.default_rng(0)
    return [
        Timing(ranks, size, link.allreduce_seconds(size, ranks) * (1 + noise * rng.normal()))
        for ranks in (2, 3, 4)
        for size in SIZES
    ]


def test_a_ring_of_four_at_gigabit() -> None:
    """44.7 MB at 117.5 MB/s: 0.57 s, as 2 x 3 turns of a quarter each."""
    link = LinkModel(turn_seconds=0.0, bytes_per_second=117.5e6)
    assert link.allreduce_seconds(44_695_848, 4) == pytest.approx(0.5706, abs=1e-4)
    assert link.allreduce_seconds(44_695_848, 2) == pytest.approx(0.3804, abs=1e-4)


def test_bus_bandwidth_of_a_perfect_ring_is_the_links() -> None:
    link = LinkModel(turn_seconds=0.0, bytes_per_second=117.5e6)
    for ranks in (2, 4, 64):
        seconds = link.allreduce_seconds(10**7, ranks)
        assert bus_bandwidth(10**7, ranks, seconds) == pytest.approx(117.5e6)


def test_calibration_finds_the_model_that_made_the_figures() -> None:
    found = fit_link(timings(LINK))
    assert found.turn_seconds == pytest.approx(LINK.turn_seconds)
    assert found.bytes_per_second == pytest.approx(LINK.bytes_per_second)


def test_calibration_bears_noise() -> None:
    found = fit_link(timings(LINK, noise=0.05))
    assert found.bytes_per_second == pytest.approx(LINK.bytes_per_second, rel=0.1)
    assert found.allreduce_seconds(2**22, 16) == pytest.approx(
        LINK.allreduce_seconds(2**22, 16), rel=0.1
    )


def test_the_shortest_say_what_a_turn_takes() -> None:
    """Long ones are off by hundredths, which are more than a short one's whole time."""
    off = {(2, 2**12): 1.0, (4, 2**12): 1.0, (2, 44_695_848): 1.01, (4, 44_695_848): 1.02}
    found = fit_link(
        [
            Timing(ranks, size, factor * LINK.allreduce_seconds(size, ranks))
            for (ranks, size), factor in off.items()
        ]
    )
    assert found.turn_seconds == pytest.approx(LINK.turn_seconds, rel=0.005)


def test_what_passes_in_bursts_says_nothing() -> None:
    burst = Timing(4, 2**20, LINK.allreduce_seconds(2**20, 4) / 2)
    found = fit_link([*timings(LINK), burst])
    assert found.turn_seconds == pytest.approx(LINK.turn_seconds)
    assert found.bytes_per_second == pytest.approx(LINK.bytes_per_second)


@pytest.mark.parametrize("seconds", [(0.001, 0.5), (0.5, 0.001), (0.1, 0.1)])
def test_no_figures_make_a_negative_cost(seconds: tuple[float, float]) -> None:
    found = fit_link([Timing(4, 2**16, seconds[0]), Timing(4, 2**22, seconds[1])])
    assert found.turn_seconds >= 0
    assert found.bytes_per_second > 0
