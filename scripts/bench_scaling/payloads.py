"""What edgeddl's ranks sum in one step, by its own plan."""

from __future__ import annotations

from bench_scaling.plan import Case
from edgeddl.comm.bucket import plan_buckets
from edgeddl.comm.compression import COMPRESSIONS
from edgeddl.data.shapes import CLASSES
from edgeddl.models import build_model
from edgeddl.options import parse_train_options
from edgeddl.training.parameters import observe_parameters
from edgeddl.training.startup import IMAGE_SHAPE


def step_payloads(case: Case) -> list[int]:
    """Bytes of each of a step's all-reduces."""
    config = parse_train_options(["--stem", case.stem, "--compression", case.compression])
    model = build_model(config.model, stem=config.stem, classes=len(CLASSES), seed=config.seed)
    plan = plan_buckets(
        observe_parameters(model, IMAGE_SHAPE, len(CLASSES), once=True), config.bucket_bytes
    )
    bucket_sum = COMPRESSIONS[config.compression](plan, config.compression_rank)
    return [size for bucket in plan.buckets for size in bucket_sum.payloads(bucket)]
