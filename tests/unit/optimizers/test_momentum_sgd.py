"""The flat update rule against float64 and against Chainer's."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from edgeddl.chainer_compat import chainer
from edgeddl.kernels.matrices import Matrices, Products
from edgeddl.optimizers import MomentumSGD, Segment

STEPS = 20


def random(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count, np.float32)


def train(
    segments: list[Segment], count: int = 1000, *, nesterov: bool, rates: list[float]
) -> MomentumSGD:
    gradients = np.empty(count, np.float32)
    optimizer = MomentumSGD(random(count, 0), gradients, segments, momentum=0.9, nesterov=nesterov)
    for step, rate in enumerate(rates):
        gradients[...] = random(count, step + 1)
        optimizer.update(rate)
    return optimizer


@pytest.mark.parametrize("nesterov", [False, True])
def test_equals_float64(nesterov: bool) -> None:
    rates = [0.1 * 0.9**step for step in range(STEPS)]
    decay = np.zeros(1000)
    decay[100:600] = 1e-2
    segments = [Segment(0, 100, 0.0), Segment(100, 600, 1e-2), Segment(600, 1000, 0.0)]
    found = train(segments, nesterov=nesterov, rates=rates)
    p, v = random(1000, 0).astype(np.float64), np.zeros(1000)
    for step, rate in enumerate(rates):
        d = random(1000, step + 1) + decay * p
        v = 0.9 * v + d
        p = p - rate * (d + 0.9 * v if nesterov else v)
    # A few roundings a step, of numbers no larger than the largest velocity; momentum keeps ten.
    limit = 10 * 4 * 2.0**-24 * abs(v).max() * 2
    np.testing.assert_allclose(found.velocity, v, rtol=0, atol=limit)
    np.testing.assert_allclose(found.parameters, p, rtol=0, atol=limit)


def test_equals_chainers_rule_at_a_constant_rate() -> None:
    """Chainer's velocity has the learning rate inside and points downhill: v = -rate * ours."""
    rate = 0.05
    link = chainer.Link()
    with link.init_scope():
        link.p = chainer.Parameter(random(1000, 0))
    chainers = chainer.optimizers.MomentumSGD(lr=rate, momentum=0.9).setup(link)
    chainers.add_hook(chainer.optimizer_hooks.WeightDecay(1e-2))
    for step in range(STEPS):
        link.p.grad = random(1000, step + 1)
        chainers.update()
    ours = train([Segment(0, 1000, 1e-2)], nesterov=False, rates=[rate] * STEPS)
    np.testing.assert_allclose(ours.parameters, link.p.array, rtol=1e-5, atol=1e-5)
    velocity = link.p.update_rule.state["v"]
    np.testing.assert_allclose(-rate * ours.velocity, velocity, rtol=1e-5, atol=1e-5)


def test_nesterov_looks_ahead() -> None:
    """Nesterov's own form takes the gradient at w + momentum * step: that point is our p.

    Not compared with Chainer's NesterovAG, which uses the new velocity where its source (Bengio et
    al., Advances in Optimizing Recurrent Networks, 2012, eq. 7) has the old one.
    """
    rate, momentum, curvature = 0.05, 0.9, np.linspace(0.1, 3, 50)
    gradients = np.empty(50, np.float32)
    ours = MomentumSGD(
        random(50, 0), gradients, [Segment(0, 50, 0.0)], momentum=momentum, nesterov=True
    )
    w, step = random(50, 0).astype(np.float64), np.zeros(50)
    for _ in range(STEPS):
        step = momentum * step - rate * curvature * (w + momentum * step)
        w = w + step
        gradients[...] = curvature * ours.parameters
        ours.update(rate)
    np.testing.assert_allclose(ours.parameters, w + momentum * step, rtol=1e-4, atol=1e-5)


def test_updates_in_place_and_leaves_gradients_and_gaps() -> None:
    parameters, gradients = random(10, 0), random(10, 1)
    before, kept = parameters.copy(), gradients.copy()
    segments = [Segment(6, 10, 0.1), Segment(0, 4, 0.1)]
    optimizer = MomentumSGD(parameters, gradients, segments, momentum=0.9, nesterov=True)
    optimizer.update(0.1)
    np.testing.assert_array_equal(gradients, kept)
    np.testing.assert_array_equal(parameters[4:6], before[4:6])
    assert (parameters[:4] != before[:4]).all() and (parameters[6:] != before[6:]).all()


@pytest.mark.parametrize("cuts", [(0, 100), (0, 40, 100), (0, 40, 70, 100)])
def test_factored_gradients_equal_their_products(cuts: tuple[int, ...]) -> None:
    """Of two buckets, 0..40 and 40..70, in all of an update or in part after part."""
    segments = [Segment(0, 37, 1e-2), Segment(37, 50, 0.0), Segment(50, 100, 1e-3)]
    some, one = Matrices(2, 40, [(1, 3, 4), (20, 2, 7)]), Matrices(3, 30, [(12, 3, 5)])
    products = [
        Products(start, m, random(m.lefts, 1), random(m.rights, 2))
        for start, m in ((0, some), (40, one))
    ]
    gradients = random(100, 3)
    for each in products:
        m = each.matrices
        lefts, rights = m.split_lefts(each.lefts), m.split_rights(each.rights)
        for (start, stop), left, right in zip(each.bounds(), lefts, rights, strict=True):
            gradients[start:stop] = np.einsum("rk,kc->rc", left, right).reshape(-1)
    plain, ours = (
        MomentumSGD(random(100, 0), g, segments, momentum=0.9, nesterov=True, factored=some)
        for g, some in ((gradients, []), (gradients.copy(), products))
    )
    for each in products:  # what is there beside them is not read
        for start, stop in each.bounds():
            ours.gradients[start:stop] = np.nan
    for rate in (0.1, 0.05):
        plain.update(rate)
        for start, stop in pairwise(cuts):
            ours.update(rate, start, stop)
    np.testing.assert_allclose(ours.parameters, plain.parameters, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.velocity, plain.velocity, rtol=1e-5, atol=1e-6)


def test_a_matrix_must_lie_in_one_segment() -> None:
    m = Matrices(1, 20, [(5, 2, 5)])
    products = [Products(0, m, random(m.lefts, 1), random(m.rights, 2))]
    segments = [Segment(0, 10, 0.1), Segment(10, 20, 0.0)]
    with pytest.raises(ValueError, match=r"the matrix at 5\.\.15 is not in one segment"):
        MomentumSGD(
            random(20, 0), random(20, 3), segments, momentum=0.9, nesterov=False, factored=products
        )


def test_restored_velocity_goes_on() -> None:
    segments = [Segment(0, 1000, 1e-2)]
    whole = train(segments, nesterov=False, rates=[0.1] * 4)
    half = train(segments, nesterov=False, rates=[0.1] * 2)
    gradients = np.empty(1000, np.float32)
    resumed = MomentumSGD(half.parameters, gradients, segments, momentum=0.9, nesterov=False)
    resumed.velocity[...] = half.velocity
    for step in (2, 3):
        gradients[...] = random(1000, step + 1)
        resumed.update(0.1)
    assert resumed.parameters.tobytes() == whole.parameters.tobytes()


@pytest.mark.parametrize(
    ("parameters", "gradients", "segments", "message"),
    [
        (np.zeros(4, "f8"), np.zeros(4, "f4"), [], "parameters must be flat float32"),
        (np.zeros(4, "f4"), np.zeros((2, 2), "f4"), [], "gradients must be flat float32"),
        (np.zeros(4, "f4"), np.zeros(3, "f4"), [], "4 parameters, but 3 gradients"),
        (np.zeros(4, "f4"), np.zeros(4, "f4"), [Segment(0, 5, 0.0)], "leaves 0..4"),
        (
            np.zeros(4, "f4"),
            np.zeros(4, "f4"),
            [Segment(0, 3, 0.0), Segment(2, 4, 0.0)],
            "overlaps",
        ),
    ],
)
def test_what_does_not_fit_is_refused(parameters, gradients, segments, message) -> None:
    with pytest.raises(ValueError, match=message):
        MomentumSGD(parameters, gradients, segments, momentum=0.9, nesterov=False)
