"""All metrics: name, type, labels and meaning.

Names follow the Prometheus conventions: a prefix, base units (seconds, bytes, joules), `_total` for
counters, `_ratio` for fractions, `_info` for a constant 1 whose labels carry the information.
Labels:

    run     name of the run folder, e.g. "resnet18-cifar10-2"
    rank    number of the rank, from 0
    host    name of the machine, on every metric of a rank or a node

Metrics with an unknown value are absent. Counters start at 0 with the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

# Histogram buckets in seconds: from a phase on a fast PC to a whole step on a slow board.
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


# Counters of each rank

SAMPLES = Metric(
    "edgeddl_samples_total", "counter", RANK, "Training images processed by this rank."
)
STEPS = Metric("edgeddl_steps_total", "counter", RANK, "Training steps.")
STEP_SECONDS = Metric("edgeddl_step_seconds", "histogram", RANK, "Wall time of a training step.")
PHASE_SECONDS = Metric(
    "edgeddl_step_phase_seconds",
    "histogram",
    (*RANK, "phase"),
    "Time of a training step by phase: data, forward, backward, allreduce_wait, update.",
)
SENT_BYTES = Metric(
    "edgeddl_sent_bytes_total",
    "counter",
    RANK,
    "Bytes sent for gradients or parameters, assuming bandwidth-optimal all-reduces.",
)
ALLREDUCES = Metric(
    "edgeddl_allreduces_total",
    "counter",
    RANK,
    "All-reduces of gradient buckets (a late bucket counts as two halves).",
)
BUCKET_SECONDS = Metric(
    "edgeddl_bucket_allreduce_seconds",
    "histogram",
    RANK,
    "Time of the all-reduce of a bucket, from its start on this rank; overlaps computation.",
)
STRAGGLER_SECONDS = Metric(
    "edgeddl_straggler_wait_seconds_total",
    "counter",
    RANK,
    "Time spent waiting for slower ranks: the longest busy time of a step minus its own.",
)

# State of each rank

IMAGES_PER_SECOND = Metric(
    "edgeddl_images_per_second", "gauge", RANK, "Throughput of this rank over recent steps."
)
LOSS = Metric(
    "edgeddl_loss",
    "gauge",
    RANK,
    "Training loss of the last step, averaged over the images of all ranks.",
)
ACCURACY = Metric(
    "edgeddl_accuracy_ratio", "gauge", RANK, "Test accuracy in the last evaluation, 0 to 1."
)
TEST_LOSS = Metric("edgeddl_test_loss", "gauge", RANK, "Test loss in the last evaluation.")
LEARNING_RATE = Metric("edgeddl_learning_rate", "gauge", RANK, "Learning rate of the last step.")
EPOCH = Metric(
    "edgeddl_epoch", "gauge", RANK, "Completed epochs, including the fraction of the current one."
)
PLANNED_EPOCHS = Metric(
    "edgeddl_planned_epochs", "gauge", RANK, "Number of epochs of the whole run."
)
STEP = Metric("edgeddl_step", "gauge", RANK, "Completed steps, including those before a resume.")
PLANNED_STEPS = Metric("edgeddl_planned_steps", "gauge", RANK, "Number of steps of the whole run.")
REMAINING_SECONDS = Metric(
    "edgeddl_remaining_seconds",
    "gauge",
    RANK,
    "Estimated remaining time, including evaluations, from the mean speed since the start.",
)
BATCH_IMAGES = Metric(
    "edgeddl_batch_images", "gauge", RANK, "Images of this rank in a full step (see --balance)."
)
COMPRESSION_RATIO = Metric(
    "edgeddl_compression_ratio",
    "gauge",
    RANK,
    "Size of the gradients in float32 divided by the bytes sent for them.",
)
RESIDENT_BYTES = Metric(
    "edgeddl_resident_memory_bytes", "gauge", RANK, "Resident memory of the rank."
)
PEAK_BYTES = Metric("edgeddl_peak_memory_bytes", "gauge", RANK, "Peak resident memory of the rank.")
BUILD = Metric(
    "edgeddl_build_info",
    "gauge",
    (*RANK, "version", "kernels", "blas", "mpi", "python"),
    "Versions of edgeddl, kernels, BLAS, MPI and Python on this rank; always 1.",
)

# Metrics of the whole run, from rank 0

WORLD_SIZE = Metric("edgeddl_world_size", "gauge", RUN, "Number of ranks.")
CLUSTER_IMAGES_PER_SECOND = Metric(
    "edgeddl_cluster_images_per_second",
    "gauge",
    RUN,
    "Throughput of all ranks over recent steps.",
)
CLUSTER_EFFICIENCY = Metric(
    "edgeddl_cluster_scaling_efficiency_ratio",
    "gauge",
    RUN,
    "Throughput of all ranks divided by their throughput without waiting, 0 to 1.",
)
SLOWEST_RANK = Metric(
    "edgeddl_cluster_slowest_rank",
    "gauge",
    RUN,
    "The rank with the longest busy time in recent steps, for which the others wait.",
)
RANK_BUSY_SECONDS = Metric(
    "edgeddl_cluster_rank_busy_seconds",
    "gauge",
    RANK,
    "Time per step that a rank works without waiting, over recent steps.",
)
CHECKPOINT_TIME = Metric(
    "edgeddl_checkpoint_timestamp_seconds",
    "gauge",
    RUN,
    "Unix time of the last checkpoint.",
)
CHECKPOINT_AGE = Metric(
    "edgeddl_checkpoint_age_seconds",
    "gauge",
    RUN,
    "Time since the last checkpoint, or since the start; a failure now would lose this much.",
)

# Metrics of a node, from its own exporter

TEMPERATURE = Metric(
    "edgeddl_node_temperature_celsius",
    "gauge",
    NODE,
    "Temperature of the processor; a Raspberry Pi is throttled from 80 on.",
)
CLOCK = Metric("edgeddl_node_clock_hertz", "gauge", NODE, "Current clock of the fastest core.")
CLOCK_MAX = Metric("edgeddl_node_clock_max_hertz", "gauge", NODE, "Maximum clock of the processor.")
THROTTLING = Metric(
    "edgeddl_node_throttling",
    "gauge",
    (*NODE, "reason", "when"),
    "1 if the board is (when=now) or was (when=since_boot) throttled for this reason:"
    " under_voltage, frequency_capped, throttled, soft_temperature_limit.",
)
POWER = Metric(
    "edgeddl_node_power_watts",
    "gauge",
    (*NODE, "source"),
    "Power by source: measured (file, ina219, rapl for the processor only) or estimated (model).",
)
ENERGY = Metric(
    "edgeddl_node_energy_joules_total",
    "counter",
    (*NODE, "source"),
    "Energy since the start of the exporter, from the same source as the power.",
)
UTILIZATION = Metric(
    "edgeddl_node_cpu_utilization_ratio",
    "gauge",
    NODE,
    "Utilisation of all cores, 0 to 1; used by the power model.",
)
LINK = Metric(
    "edgeddl_node_link_bytes_per_second",
    "gauge",
    (*NODE, "device"),
    "Line rate of a connected wired network card.",
)
MEMORY = Metric("edgeddl_node_memory_bytes", "gauge", NODE, "Total memory of the machine.")
MEMORY_AVAILABLE = Metric(
    "edgeddl_node_memory_available_bytes", "gauge", NODE, "Memory available to programs."
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
    "Last LINPACK result as a fraction of the peak of the processor, 0 to 1.",
)
LINPACK_PASSED = Metric(
    "edgeddl_node_linpack_passed",
    "gauge",
    (*NODE, "engine"),
    "1 if the residual of the last LINPACK run passed, else 0.",
)
LINPACK_VERDICT = Metric(
    "edgeddl_node_linpack_verdict_info",
    "gauge",
    (*NODE, "engine", "verdict"),
    "Verdict of the last LINPACK run: healthy, warn, sick or unknown; always 1.",
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
    "Processor of the machine and version of the exporter; always 1.",
)

ALL = tuple(value for value in tuple(globals().values()) if isinstance(value, Metric))
