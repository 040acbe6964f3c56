"""All boards at a glance: one row a board."""

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
            "Boards whose exporter answers. A missing one has no power or no network, or hangs.",
            "none",
            Query('sum(max by (host) (up{job=~"node|machine", host=~"$node"}))', "nodes"),
            lowest=0,
        ),
        number(
            "Throughput",
            "Training images per second of all boards together, over the last minute; evaluations"
            " and checkpoints count as time.",
            "suffix: img/s",
            Query('sum(run:edgeddl_samples:rate1m{run=~"$run"})', "images"),
            lowest=0,
        ),
        number(
            "Efficiency",
            "Throughput over what the boards would do if none ever waited for another. Above 80 %"
            " is good; Communication shows where the rest goes.",
            "percentunit",
            Query('avg(edgeddl_cluster_scaling_efficiency_ratio{run=~"$run"})', "efficiency"),
            lowest=0,
            highest=1,
            colours=((None, "red"), (0.5, "yellow"), (0.8, "green")),
        ),
        number(
            "Power",
            "Of all boards together: measured where there is a meter, else estimated from load and"
            " clock. On PCs of the processor only.",
            "watt",
            Query('sum(edgeddl_node_power_watts{host=~"$node"})', "power"),
            lowest=0,
        ),
        number(
            "Energy per image",
            "Energy of the boards of a run over the images they have trained on, last minute.",
            "joule",
            Query('run:edgeddl_joules_per_image:rate1m{run=~"$run"}', "{{run}}"),
            lowest=0,
        ),
        number(
            "Firing alerts",
            "Number of alerts that fire now. The dashboard LINPACK and health lists them.",
            "none",
            Query('count(ALERTS{alertstate="firing"}) or vector(0)', "alerts"),
            lowest=0,
            colours=((None, "green"), (1, "red")),
        ),
        graph(
            "Throughput by node",
            "Training images per second of each board. All fall together when one holds up the"
            " others; with --balance auto a slow one has fewer.",
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
            "Of the processor. A Raspberry Pi slows down from 80 °C on.",
            "celsius",
            Query('edgeddl_node_temperature_celsius{host=~"$node"}', "{{host}}"),
            colours=TEMPERATURE_COLOURS,
        ),
        number(
            "Clock frequency",
            "At which the processor really runs. Below its maximum while training: too hot, too"
            " little voltage, or another governor than performance.",
            "hertz",
            Query('edgeddl_node_clock_hertz{host=~"$node"}', "{{host}}"),
            lowest=0,
        ),
        number(
            "Throttled in this period",
            "Whether the firmware has slowed the board down at any time in the period shown, if"
            " only for a moment. LINPACK and health shows when and why. Only Raspberry Pis"
            " report it.",
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
            "Part of the memory that programs cannot get any more. When it is full, the kernel ends"
            " a rank, and so the run: take a smaller --batch-size.",
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
            "Of this board, and how it is known: ina219 and file are meters, rapl is the"
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
    "All boards at a glance: throughput, temperature, clock, throttling, memory, power.",
    (RUN, NODE),
    (TOGETHER, ONE_NODE),
)
