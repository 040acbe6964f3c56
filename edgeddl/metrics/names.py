"""Every metric once: name, kind, labels and what it means.

Named by Prometheus' rules: a prefix, base units (seconds, bytes, joules), `_total` on counters,
`_ratio` for parts of one, `_info` for a constant 1 whose labels are the news. Labels are few:

    run     the run's folder in runs/, e.g. "resnet18-cifar10-2"
    rank    a number from 0 on
    host    the machine's name, on everything that belongs to a rank or a node

A metric whose value is not known is absent. Counters begin at 0 with the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

# Upper limits in seconds: from a phase on a fast PC to a whole step on a slow board.
SECONDS_LIMITS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0,
)  # fmt: skip

RANK = ("run", "rank", "host")
RUN = ("run",)
NODE = ("host",)


@dataclass(frozen=True)
class Metric:
    """A metric; a histogram adds _bucket, _sum and _count to its name."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


# What each rank counts

SAMPLES = Metric("edgeddl_samples_total", "counter", RANK, "Training images this rank has used.")
STEPS = Metric("edgeddl_steps_total", "counter", RANK, "Steps taken.")
STEP_SECONDS = Metric("edgeddl_step_seconds", "histogram", RANK, "Wall time of a step.")
PHASE_SECONDS = Metric(
    "edgeddl_step_phase_seconds",
    "histogram",
    (*RANK, "phase"),
    "Time of a step by phase: data, forward, backward, allreduce_wait, update.",
)
SENT_BYTES = Metric(
    "edgeddl_sent_bytes_total",
    "counter",
    RANK,
    "Bytes sent for gradients or parameters, counted as those of bandwidth-optimal all-reduces.",
)
ALLREDUCES = Metric(
    "edgeddl_allreduces_total",
    "counter",
    RANK,
    "Buckets, or halves of a late one, summed over all ranks by this rank.",
)
BUCKET_SECONDS = Metric(
    "edgeddl_bucket_allreduce_seconds",
    "histogram",
    RANK,
    "Time of a bucket's all-reduce, from its start on this rank; overlaps with computing.",
)
STRAGGLER_SECONDS = Metric(
    "edgeddl_straggler_wait_seconds_total",
    "counter",
    RANK,
    "Time this rank had to wait for slower ones: the longest busy time of a step less its own.",
)

# Where each rank stands

IMAGES_PER_SECOND = Metric(
    "edgeddl_images_per_second", "gauge", RANK, "This rank's images over the time of recent steps."
)
LOSS = Metric(
    "edgeddl_loss", "gauge", RANK, "Loss of the last step, the mean over all ranks' images."
)
ACCURACY = Metric(
    "edgeddl_accuracy_ratio", "gauge", RANK, "Correct test images in the last evaluation, 0 to 1."
)
TEST_LOSS = Metric("edgeddl_test_loss", "gauge", RANK, "Loss on the test images, last evaluation.")
LEARNING_RATE = Metric("edgeddl_learning_rate", "gauge", RANK, "Learning rate of the last step.")
EPOCH = Metric(
    "edgeddl_epoch", "gauge", RANK, "Epochs behind this run, with the fraction of the present one."
)
PLANNED_EPOCHS = Metric("edgeddl_planned_epochs", "gauge", RANK, "Epochs the run will have.")
STEP = Metric(
    "edgeddl_step", "gauge", RANK, "Steps behind this run, also those before it was resumed."
)
PLANNED_STEPS = Metric("edgeddl_planned_steps", "gauge", RANK, "Steps the run will have.")
REMAINING_SECONDS = Metric(
    "edgeddl_remaining_seconds",
    "gauge",
    RANK,
    "Time the steps that are left will take, at the pace since the start, evaluations included.",
)
BATCH_IMAGES = Metric(
    "edgeddl_batch_images", "gauge", RANK, "This rank's images of a whole step (--balance)."
)
COMPRESSION_RATIO = Metric(
    "edgeddl_compression_ratio",
    "gauge",
    RANK,
    "Bytes of the gradients in float32 over the bytes sent for them.",
)
RESIDENT_BYTES = Metric(
    "edgeddl_resident_memory_bytes", "gauge", RANK, "Memory the rank's process has now."
)
PEAK_BYTES = Metric(
    "edgeddl_peak_memory_bytes", "gauge", RANK, "The most memory the rank's process has had."
)
BUILD = Metric(
    "edgeddl_build_info",
    "gauge",
    (*RANK, "version", "kernels", "blas", "mpi", "python"),
    "What this rank runs: versions of edgeddl, kernels, BLAS, MPI and Python; always 1.",
)

# What rank 0 knows of all

WORLD_SIZE = Metric("edgeddl_world_size", "gauge", RUN, "Ranks of the run.")
CLUSTER_IMAGES_PER_SECOND = Metric(
    "edgeddl_cluster_images_per_second",
    "gauge",
    RUN,
    "All ranks' images over the time of recent steps.",
)
CLUSTER_EFFICIENCY = Metric(
    "edgeddl_cluster_scaling_efficiency_ratio",
    "gauge",
    RUN,
    "Throughput of all ranks over what they would do without waiting for each other, 0 to 1.",
)
SLOWEST_RANK = Metric(
    "edgeddl_cluster_slowest_rank",
    "gauge",
    RUN,
    "Number of the rank that was busy longest in recent steps: the others wait for it.",
)
RANK_BUSY_SECONDS = Metric(
    "edgeddl_cluster_rank_busy_seconds",
    "gauge",
    RANK,
    "Time of a step that a rank works without waiting, in recent steps, as rank 0 hears it.",
)
CHECKPOINT_TIME = Metric(
    "edgeddl_checkpoint_timestamp_seconds",
    "gauge",
    RUN,
    "When the last checkpoint was written, in Unix time.",
)
CHECKPOINT_AGE = Metric(
    "edgeddl_checkpoint_age_seconds",
    "gauge",
    RUN,
    "Training that would be lost now: time since the last checkpoint, or since the start.",
)

# What a node's own exporter tells

TEMPERATURE = Metric(
    "edgeddl_node_temperature_celsius",
    "gauge",
    NODE,
    "Temperature of the processor; a Raspberry Pi slows down from 80 on.",
)
CLOCK = Metric(
    "edgeddl_node_clock_hertz", "gauge", NODE, "Clock the processor runs at, its fastest core."
)
CLOCK_MAX = Metric(
    "edgeddl_node_clock_max_hertz", "gauge", NODE, "Clock the processor is allowed to run at."
)
THROTTLING = Metric(
    "edgeddl_node_throttling",
    "gauge",
    (*NODE, "reason", "when"),
    "1 while the firmware holds the board back for this reason (when=now), or has (since_boot):"
    " under_voltage, frequency_capped, throttled, soft_temperature_limit.",
)
POWER = Metric(
    "edgeddl_node_power_watts",
    "gauge",
    (*NODE, "source"),
    "Power: measured (ina219, file, rapl: the processor only), or estimated (model).",
)
ENERGY = Metric(
    "edgeddl_node_energy_joules_total",
    "counter",
    (*NODE, "source"),
    "Energy since the exporter was started, from the same source as the power.",
)
UTILIZATION = Metric(
    "edgeddl_node_cpu_utilization_ratio",
    "gauge",
    NODE,
    "Part of all cores' time that was not idle, 0 to 1; the power model's input.",
)
LINK = Metric(
    "edgeddl_node_link_bytes_per_second",
    "gauge",
    (*NODE, "device"),
    "Line rate of a wired network card that is connected.",
)
MEMORY = Metric("edgeddl_node_memory_bytes", "gauge", NODE, "Memory of the machine.")
MEMORY_AVAILABLE = Metric(
    "edgeddl_node_memory_available_bytes", "gauge", NODE, "Memory programs can still get."
)
LINPACK = Metric(
    "edgeddl_node_linpack_flops_per_second",
    "gauge",
    (*NODE, "engine"),
    "Floating-point operations per second in the last LINPACK run.",
)
LINPACK_PEAK = Metric(
    "edgeddl_node_linpack_peak_ratio",
    "gauge",
    (*NODE, "engine"),
    "The last LINPACK result over the processor's peak, 0 to 1.",
)
LINPACK_PASSED = Metric(
    "edgeddl_node_linpack_passed",
    "gauge",
    (*NODE, "engine"),
    "1 if the last LINPACK result was correct, by its residual.",
)
LINPACK_VERDICT = Metric(
    "edgeddl_node_linpack_verdict_info",
    "gauge",
    (*NODE, "engine", "verdict"),
    "What the last LINPACK run says of the board: healthy, warn, sick or unknown; always 1.",
)
LINPACK_TIME = Metric(
    "edgeddl_node_linpack_timestamp_seconds",
    "gauge",
    (*NODE, "engine"),
    "When LINPACK was run last, in Unix time.",
)
NODE_BUILD = Metric(
    "edgeddl_node_info",
    "gauge",
    (*NODE, "version", "cpu"),
    "The machine and the exporter's version; always 1.",
)

ALL = tuple(value for value in tuple(globals().values()) if isinstance(value, Metric))
