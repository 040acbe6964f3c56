"""Overview of all boards, with one row per board."""

from __future__ import annotations

from cluster.monitoring.panels import NODE, RUN, Dashboard, Query, Row, graph, number

TEMPERATURE_COLOURS = ((None, "green"), (70, "yellow"), (80, "red"))
MEMORY_COLOURS = ((None, "green"), (0.8, "yellow"), (0.95, "red"))
YES_IS_BAD = {0: ("no", "green"), 1: ("yes", "red")}

TOGETHER = Row(
    "All nodes",
    (
        number(
            "Nodes up",
            "Boards whose exporter answers. A missing board has no power, no network, or hangs.",
            "none",
            Query('sum(max by (host) (up{job=~"node|machine", host=~"$node"}))', "nodes"),
            lowest=0,
        ),
        number(
            "Throughput",
            "Training images per second over all boards, in the last minute. Evaluations and"
            " checkpoints are included in the time.",
            "suffix: img/s",
            Query('sum(run:edgeddl_samples:rate1m{run=~"$run"})', "images"),
            lowest=0,
        ),
        number(
            "Efficiency",
            "Throughput relative to boards that never wait for each other. Above 80 % is good. See"
            " the Communication dashboard for the causes of a low value.",
            "percentunit",
            Query('avg(edgeddl_cluster_scaling_efficiency_ratio{run=~"$run"})', "efficiency"),
            lowest=0,
            highest=1,
            colours=((None, "red"), (0.5, "yellow"), (0.8, "green")),
        ),
        number(
            "Power",
            "Total power of all boards: measured if a board has a meter, otherwise estimated from"
            " load and clock. On PCs, of the processor only.",
            "watt",
            Query('sum(edgeddl_node_power_watts{host=~"$node"})', "power"),
            lowest=0,
        ),
        number(
            "Energy per image",
            "Energy used by a run's boards per training image, in the last minute.",
            "joule",
            Query('run:edgeddl_joules_per_image:rate1m{run=~"$run"}', "{{run}}"),
            lowest=0,
        ),
        number(
            "Firing alerts",
            "Number of firing alerts. The LINPACK and health dashboard lists them.",
            "none",
            Query('count(ALERTS{alertstate="firing"}) or vector(0)', "alerts"),
            lowest=0,
            colours=((None, "green"), (1, "red")),
        ),
        graph(
            "Throughput by node",
            "Training images per second of each board. If one board is slow, all slow down. With"
            " --balance auto a slow board processes fewer images.",
            "suffix: img/s",
            Query('host:edgeddl_samples:rate1m{host=~"$node"}', "{{host}}"),
            width=24,
            lowest=0,
        ),
    ),
)

ONE_NODE = Row(
    "$node",
    (
        number(
            "Throughput",
            "Training images per second of this board.",
            "suffix: img/s",
            Query('host:edgeddl_samples:rate1m{host=~"$node"}', "{{host}}"),
            lowest=0,
        ),
        number(
            "Temperature",
            "Temperature of the processor. A Raspberry Pi is throttled at 80 °C.",
            "celsius",
            Query('edgeddl_node_temperature_celsius{host=~"$node"}', "{{host}}"),
            colours=TEMPERATURE_COLOURS,
        ),
        number(
            "Clock frequency",
            "Current clock of the processor. Below its maximum during training: the board is too"
            " hot, the voltage is too low, or the governor is not performance.",
            "hertz",
            Query('edgeddl_node_clock_hertz{host=~"$node"}', "{{host}}"),
            lowest=0,
        ),
        number(
            "Throttled in this period",
            "Whether the firmware throttled the board at any time in the selected period, even"
            " briefly. The LINPACK and health dashboard shows when and why. Reported only by"
            " Raspberry Pis.",
            "none",
            Query(
                'max by (host) (max_over_time(edgeddl_node_throttling{when="now", host=~"$node"}'
                "[$__rate_interval]))",
                "{{host}}",
            ),
            summary="max",
            choices=YES_IS_BAD,
        ),
        number(
            "Memory in use",
            "Fraction of memory that is not available to programs. When memory is full, the kernel"
            " kills a rank and the run ends: use a smaller --batch-size.",
            "percentunit",
            Query(
                '1 - edgeddl_node_memory_available_bytes{host=~"$node"}'
                " / edgeddl_node_memory_bytes",
                "{{host}}",
            ),
            lowest=0,
            highest=1,
            colours=MEMORY_COLOURS,
        ),
        number(
            "Power",
            "Power of this board and its source: ina219 and file are meters, rapl is the"
            " processor's own counter, model is an estimate.",
            "watt",
            Query('edgeddl_node_power_watts{host=~"$node"}', "{{source}}"),
            lowest=0,
        ),
    ),
    repeat="node",
)

CLUSTER = Dashboard(
    "cluster",
    "Cluster",
    "Overview of all boards: throughput, temperature, clock, throttling, memory, power.",
    (RUN, NODE),
    (TOGETHER, ONE_NODE),
)
