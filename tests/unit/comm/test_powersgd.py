"""PowerSGD against its formulas in plain NumPy, and what it must never do."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pytest

from edgeddl.comm.arena import Arena
from edgeddl.comm.bucket import Bucket, BucketPlan, ParameterSpec, plan_buckets
from edgeddl.comm.communicator import Communicator, optimal_bytes
from edgeddl.comm.local import SingleCommunicator, run_ranks
from edgeddl.comm.policies.powersgd import PowerSGD, matrix_shape, saves_bytes
from edgeddl.kernels import low_rank_product

RANK = 3
SPECS = [
    ParameterSpec("conv", (20, 8, 3, 3), (2, 3, 1, 0)),  # 72 x 20 in memory
    ParameterSpec("bias", (20,), (0,)),
    ParameterSpec("head", (10, 20), (0, 1)),
    ParameterSpec("small", (4, 5), (0, 1)),  # 3 * (4 + 5) > 4 * 5
    ParameterSpec("late", (16, 16), (0, 1)),
]
MATRICES = {"conv": (72, 20), "head": (10, 20), "late": (16, 16)}
PLAN = plan_buckets(SPECS, bucket_bytes=7000)  # conv, bias and head; small and late

# By step and rank: a gradient of the whole plan, as a rank's arena has it.
Gradients = Sequence[Sequence[np.ndarray]]


def random_gradients(steps: int, ranks: int) -> Gradients:
    rng = np.random.default_rng(1)
    return [[make_gradient(rng) for _ in range(ranks)] for _ in range(steps)]


def make_gradient(rng: np.random.Generator) -> np.ndarray:
    """Random in the slots, zero between them."""
    arena = Arena(PLAN)
    for name in arena.names:
        view = arena.gradient(name)
        view[...] = rng.normal(size=view.shape)
    return arena.gradients


def part(flat: np.ndarray, name: str) -> np.ndarray:
    """A parameter as the matrix, or the vector, that lies in memory."""
    slot = next(slot for slot in PLAN.slots if slot.spec.name == name)
    return flat[slot.start : slot.stop].reshape(MATRICES.get(name, -1))


def single_buckets(plan: BucketPlan) -> list[Bucket]:
    """As the naive exchange has it."""
    return [Bucket((slot,), slot.start, slot.stop) for slot in plan.slots]


def run_steps(
    gradients: Gradients,
    buckets: Sequence[Bucket] = PLAN.buckets,
    rank: int = RANK,
    look: bool = False,
) -> list[tuple[list[np.ndarray], PowerSGD, list[int]]]:
    """By rank: what came out of each step, the PowerSGD after the last, and the bytes it sent.

    With `look`, errors are asked for after each step.
    """

    def work(communicator: Communicator) -> tuple[list[np.ndarray], PowerSGD, list[int]]:
        compressor, sent, results = PowerSGD(PLAN, rank), [], []
        for of_step in gradients:
            flat = of_step[communicator.rank].copy()
            step_bytes = [
                compressor.sum(communicator, bucket, flat[bucket.start : bucket.stop])
                for bucket in buckets
            ]
            results.append(flat)
            sent.append(sum(step_bytes))
            if look:
                compressor.errors.sum()
        return results, compressor, sent

    return run_ranks(len(gradients[0]), work)


def plain_powersgd(gradients: Gradients, name: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The results of all steps and the errors of all ranks, by the formulas, in float64."""
    rows, columns = MATRICES[name]
    errors = [np.zeros((rows, columns)) for _ in gradients[0]]
    q = np.random.default_rng(0).standard_normal((RANK, columns), np.float32).T.astype(float)
    results = []
    for of_step in gradients:
        m = [part(flat, name) + error for flat, error in zip(of_step, errors, strict=True)]
        p, _ = np.linalg.qr(sum(one @ q for one in m))
        q = sum(one.T @ p for one in m)
        results.append(p @ q.T)
        errors = [one - p @ (one.T @ p).T for one in m]
    return results, errors


def test_a_matrix_is_what_lies_in_memory() -> None:
    assert {s.name: matrix_shape(s) for s in SPECS if saves_bytes(s, RANK)} == MATRICES


@pytest.mark.parametrize("shape", [(), (0,), (7,), (1000,), (0, 5), (5, 0), (1, 1000), (1000, 1)])
def test_what_has_no_two_sides_travels_as_it_is(shape: tuple[int, ...]) -> None:
    assert not saves_bytes(ParameterSpec("p", shape, tuple(range(len(shape)))), 1)


@pytest.mark.parametrize("ranks", [2, 3])
def test_equals_its_formulas(ranks: int) -> None:
    gradients = random_gradients(6, ranks)
    by_rank = run_steps(gradients)
    for name in MATRICES:
        results, errors = plain_powersgd(gradients, name)
        for rank, (found, compressor, _) in enumerate(by_rank):
            for result, expected in zip(found, results, strict=True):
                np.testing.assert_allclose(part(result, name), expected, atol=2e-4)
            error = compressor.rank_state()[f"error/{name}"]
            np.testing.assert_allclose(error, errors[rank], atol=2e-4)


def test_nothing_is_lost_only_late() -> None:
    """What the optimizer was given and the ranks' errors add up to all gradients there were."""
    gradients = random_gradients(20, 3)
    by_rank = run_steps(gradients)
    for name in MATRICES:
        produced = sum(part(flat, name).astype(float) for step in gradients for flat in step)
        given = sum(part(result, name).astype(float) for result in by_rank[0][0])
        kept = sum(c.rank_state()[f"error/{name}"].astype(float) for _, c, _ in by_rank)
        np.testing.assert_allclose(given + kept, produced, atol=1e-3)


def test_what_is_not_compressed_is_summed_exactly() -> None:
    gradients = random_gradients(2, 3)
    for found, _, _ in run_steps(gradients):
        for result, of_step in zip(found, gradients, strict=True):
            for name in ("bias", "small"):
                total = part(of_step[0], name) + part(of_step[1], name) + part(of_step[2], name)
                np.testing.assert_array_equal(part(result, name), total)


def test_a_sum_of_low_rank_arrives_whole() -> None:
    rng = np.random.default_rng(5)
    gradients = random_gradients(1, 3)
    for flat in gradients[0]:
        part(flat, "conv")[...] = np.outer(rng.normal(size=72), rng.normal(size=20))
    expected = sum(part(flat, "conv") for flat in gradients[0])
    for found, _, _ in run_steps(gradients):
        np.testing.assert_allclose(part(found[0], "conv"), expected, atol=1e-5)


def test_steady_gradients_are_learnt_from_step_to_step() -> None:
    """The factors are kept: the approximation of the same matrix gets better."""
    gradient = random_gradients(1, 2)[0]
    found, _, _ = run_steps([gradient] * 30)[0]
    target = sum(part(flat, "conv") for flat in gradient)
    first, last = (np.linalg.norm(np.mean([part(f, "conv") for f in some], axis=0) - target)
                   for some in (found[:1], found))  # fmt: skip
    assert last < 0.3 * first


def test_all_ranks_have_the_same_bits() -> None:
    by_rank = run_steps(random_gradients(5, 3))
    for found, compressor, _ in by_rank[1:]:
        assert [f.tobytes() for f in found] == [f.tobytes() for f in by_rank[0][0]]
        assert compressor.factors.tobytes() == by_rank[0][1].factors.tobytes()


def test_how_gradients_are_cut_into_buckets_does_not_matter() -> None:
    gradients = random_gradients(4, 3)
    bucketed, single = run_steps(gradients)[0], run_steps(gradients, single_buckets(PLAN))[0]
    assert [f.tobytes() for f in bucketed[0]] == [f.tobytes() for f in single[0]]
    assert bucketed[1].errors.tobytes() == single[1].errors.tobytes()


def test_sums_may_be_left_factored() -> None:
    """The products are the sums; the gradients of matrices stay as they are."""
    gradients = random_gradients(4, 3)
    expected = run_steps(gradients)

    def work(communicator: Communicator) -> tuple[list[np.ndarray], PowerSGD]:
        compressor, results = PowerSGD(PLAN, RANK), []
        factored = compressor.leave_factored()
        for of_step in gradients:
            own = of_step[communicator.rank]
            flat = own.copy()
            for bucket in PLAN.buckets:
                compressor.sum(communicator, bucket, flat[bucket.start : bucket.stop])
            for name in MATRICES:
                np.testing.assert_array_equal(part(flat, name), part(own, name))
            for each in factored:
                matrices = flat[each.start :][: each.matrices.gradients]
                low_rank_product(each.matrices, each.lefts, each.rights, matrices)
            results.append(flat)
        return results, compressor

    for (found, compressor), (plain, plain_compressor, _) in zip(
        run_ranks(3, work), expected, strict=True
    ):
        assert [f.tobytes() for f in found] == [f.tobytes() for f in plain]
        assert compressor.errors.tobytes() == plain_compressor.errors.tobytes()
        assert compressor.factors.tobytes() == plain_compressor.factors.tobytes()


def test_to_look_at_errors_changes_nothing() -> None:
    """They are computed when asked for, else with the next step."""
    gradients = random_gradients(4, 3)
    for (one, at_last, _), (other, always, _) in zip(
        run_steps(gradients), run_steps(gradients, look=True), strict=True
    ):
        assert [f.tobytes() for f in one] == [f.tobytes() for f in other]
        assert at_last.errors.tobytes() == always.errors.tobytes()
        assert at_last.errors.tobytes() == always.errors.tobytes()  # asked for twice


def test_bytes_sent_are_those_of_the_factors() -> None:
    numbers = sum(RANK * (rows + columns) for rows, columns in MATRICES.values()) + 20 + 20
    _, _, sent = run_steps(random_gradients(2, 4))[0]
    # Each message is rounded down to whole bytes.
    assert sent == pytest.approx([optimal_bytes(4 * numbers, 4)] * 2, abs=5)


def test_two_all_reduces_a_bucket_and_one_where_nothing_is_compressed() -> None:
    class Counting(SingleCommunicator):
        size = 2
        calls = 0

        def allreduce(self, array: np.ndarray) -> None:
            self.calls += 1

    counts = []
    for bucket in [*PLAN.buckets, *single_buckets(PLAN)]:
        communicator, flat = Counting(), np.ones(bucket.stop - bucket.start, np.float32)
        PowerSGD(PLAN, RANK).sum(communicator, bucket, flat)
        counts.append(communicator.calls)
    assert counts == [2, 2, 2, 1, 2, 1, 2]


@pytest.mark.parametrize("first", [np.zeros((72, 20)), np.ones((72, 20))])
def test_factors_recover_from_gradients_of_lower_rank(first: np.ndarray) -> None:
    """Zero, or rank 1: the factors that were left over must not stay zero for ever."""
    gradients = random_gradients(4, 2)
    for flat in gradients[0]:
        part(flat, "conv")[...] = first
    found, _, _ = run_steps(gradients)[0]
    assert np.linalg.matrix_rank(part(found[0], "conv").astype(float), tol=1e-3) <= 1
    assert np.linalg.matrix_rank(part(found[-1], "conv").astype(float), tol=1e-3) == RANK


@pytest.mark.parametrize("rank", [1, RANK])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["conv", "bias", "head"])
def test_divergence_of_one_rank_reaches_all(name: str, value: float, rank: int) -> None:
    """Without a warning from NumPy, too: the run ends with a message of its own."""
    gradients = random_gradients(2, 3)
    part(gradients[0][1], name).flat[7] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_rank = run_steps(gradients, rank=rank)
    for found, _, _ in by_rank:
        assert not np.isfinite(part(found[0], name)).all()
        assert name == "bias" or np.isnan(part(found[0], name)).all()


def test_a_rank_without_images_sends_its_error_only() -> None:
    """Its gradient is zero; what it had kept back is told in the steps that follow."""
    gradients = random_gradients(1, 2)
    zeros = [np.zeros_like(flat) for flat in gradients[0]]
    found, _, _ = run_steps([*gradients, *([zeros] * 12)])[0]
    target = sum(part(flat, "conv") for flat in gradients[0])
    np.testing.assert_allclose(sum(part(f, "conv") for f in found), target, atol=1e-3)
