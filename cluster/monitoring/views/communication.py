"""Step time by phase, waiting times of ranks, and bandwidth of links."""

from __future__ import annotations

from cluster.monitoring.panels import NODE, RUN, Dashboard, Query, Row, graph, number

STEP_TIME = 'rate(edgeddl_step_seconds_sum{run=~"$run"}[$__rate_interval])'
PHASE_TIME = 'rate(edgeddl_step_phase_seconds_sum{run=~"$run"}[$__rate_interval])'
WAIT_TIME = (
    'rate(edgeddl_step_phase_seconds_sum{run=~"$run", phase="allreduce_wait"}[$__rate_interval])'
)
BUCKETS = (
    'sum by (run, le) (rate(edgeddl_bucket_allreduce_seconds_bucket{run=~"$run"}'
    "[$__rate_interval]))"
)
SENT = 'rate(edgeddl_sent_bytes_total{run=~"$run", host=~"$node"}[$__rate_interval])'
# without interfaces that do not lead to other machines
WIRE = (
    "rate(node_network_transmit_bytes_total"
    '{host=~"$node", device!~"lo|veth.*|br-.*|docker.*"}[$__rate_interval])'
)

TIME = Row(
    "Time",
    (
        graph(
            "Step time by phase",
            "Fraction of the step time by phase, mean over all ranks. allreduce_wait is the exposed"
            " communication time; the rest overlaps with the backward pass. data should be near"
            " zero.",
            "percentunit",
            Query(
                f"sum by (phase) ({PHASE_TIME}) / ignoring (phase) group_left () sum({STEP_TIME})",
                "{{phase}}",
            ),
            stacked=True,
            lowest=0,
            highest=1,
        ),
        graph(
            "All-reduce wait per rank",
            "Fraction of the step time that each rank waits for the all-reduce. The rank that waits"
            " least is the bottleneck.",
            "percentunit",
            Query(
                f"sum by (run, rank, host) ({WAIT_TIME}) / sum by (run, rank, host) ({STEP_TIME})",
                "rank {{rank}} {{host}}",
            ),
            lowest=0,
            highest=1,
        ),
        graph(
            "Straggler wait per rank",
            "Fraction of the time that a rank waits for a slower rank. A faster network does not"
            " help: check the slow board, or train with --balance auto.",
            "percentunit",
            Query(
                "sum by (run, rank, host) (rate("
                'edgeddl_straggler_wait_seconds_total{run=~"$run"}[$__rate_interval]))',
                "rank {{rank}} {{host}}",
            ),
            lowest=0,
            highest=1,
        ),
        graph(
            "Compute time per step and rank",
            "Step time without waiting. The highest line is the slowest board.",
            "s",
            Query('edgeddl_cluster_rank_busy_seconds{run=~"$run"}', "rank {{rank}} {{host}}"),
            width=12,
            lowest=0,
        ),
        graph(
            "All-reduce time per bucket",
            "Time to all-reduce one gradient bucket: median and 95th percentile.",
            "s",
            Query(f"histogram_quantile(0.5, {BUCKETS})", "{{run}} median"),
            Query(f"histogram_quantile(0.95, {BUCKETS})", "{{run}} p95"),
            width=12,
            lowest=0,
        ),
    ),
)

BYTES = Row(
    "Bandwidth",
    (
        graph(
            "Bandwidth against line rate",
            "Bytes per second that each board sends for gradients, that its network interfaces"
            " send in total, and their line rate. Ranks on the same host use shared memory: their"
            " bytes are not on the wire.",
            "Bps",
            Query(f"sum by (host) ({SENT})", "{{host}} gradients"),
            Query(f"sum by (host) ({WIRE})", "{{host}} on the wire"),
            Query(
                'max by (host) (edgeddl_node_link_bytes_per_second{host=~"$node"})',
                "{{host}} line rate",
            ),
            width=16,
            lowest=0,
        ),
        number(
            "Bytes sent per step",
            "Bytes that a rank sends for gradients per step.",
            "bytes",
            Query(
                f"sum by (run) ({SENT}) / sum by (run)"
                ' (rate(edgeddl_steps_total{run=~"$run", host=~"$node"}[$__rate_interval]))',
                "{{run}}",
            ),
            lowest=0,
        ),
        number(
            "Compression ratio",
            "Size of the gradients divided by the size that is sent: 1 without compression, 2 with"
            " --compression fp16.",
            "suffix: x",
            Query('max by (run) (edgeddl_compression_ratio{run=~"$run"})', "{{run}}"),
            lowest=0,
        ),
    ),
)

COMMUNICATION = Dashboard(
    "communication",
    "Communication",
    "Step time by phase, waiting times of ranks, and bandwidth of links.",
    (RUN, NODE),
    (TIME, BYTES),
)
