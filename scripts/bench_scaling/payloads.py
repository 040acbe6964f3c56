"""Payloads of the all-reduces of one edgeddl step, from its own bucket plan."""

from __future__ import annotations

from functools import cache

from bench_scaling.plan import Case
from edgeddl.comm.bucket import plan_buckets
from edgeddl.comm.make_exchange import bucket_bytes
from edgeddl.comm.policies import find_policy
from edgeddl.data.shapes import CLASSES, generate
from edgeddl.models import build_model
from edgeddl.options import parse_train_options
from edgeddl.training.parameters import observe_parameters


def step_payloads(case: Case) -> tuple[int, ...]:
    """Return the bytes of each gradient all-reduce of a step.

    The last bucket is sent in two parts at the same time and counts as one. The few scalars of each
    step are ignored.
    """
    return _payloads(case.stem, case.compression)


@cache
def _payloads(stem: str, compression: str) -> tuple[int, ...]:
    config = parse_train_options(["--stem", stem, "--compression", compression])
    model = build_model(config.model, stem=config.stem, classes=len(CLASSES), seed=config.seed)
    specs = observe_parameters(model, generate("test", 1).image_shape, len(CLASSES))
    plan = plan_buckets(specs, bucket_bytes(config))
    policy = find_policy(config.compression)(plan, config.compression_rank)
    return tuple(size for bucket in plan.buckets for size in policy.payloads(bucket))
