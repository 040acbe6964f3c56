"""Health of the boards: alerts, LINPACK, throttling, temperature, links, disks."""

from __future__ import annotations

from cluster.monitoring.panels import (
    NODE,
    Dashboard,
    Query,
    Row,
    bars,
    graph,
    number,
    states,
    table,
)
from cluster.monitoring.views.cluster import TEMPERATURE_COLOURS, YES_IS_BAD

# A Raspberry Pi 4 has a peak of 24 GFLOPS; 14 or more is healthy, below 8 it is faulty.
PEAK_COLOURS = ((None, "red"), (0.33, "yellow"), (0.58, "green"))

NOW = Row(
    "Now",
    (
        table(
            "Firing alerts",
            "All firing alerts. The monitoring documentation describes what to do about each.",
            Query('ALERTS{alertstate="firing"}'),
            "alertname", "host", "run", "rank", "reason", "severity",
        ),
        table(
            "Nodes",
            "Boards with processor and edgeddl version. All boards should have the same version.",
            Query('edgeddl_node_info{host=~"$node"}'),
            "host", "cpu", "version",
        ),
    ),
)  # fmt: skip

LINPACK = Row(
    "LINPACK",
    (
        bars(
            "LINPACK speed",
            "Result of the last `python -m edgeddl linpack`. Identical boards should be equally"
            " fast. A Raspberry Pi 4 reaches 14 to 16.5 GFLOPS.",
            "flops",
            Query('edgeddl_node_linpack_flops_per_second{host=~"$node"}', "{{host}} {{engine}}"),
            lowest=0,
        ),
        bars(
            "Fraction of peak",
            "LINPACK speed relative to the processor's peak. Below a third, the BLAS library is"
            " wrong or the board is throttled.",
            "percentunit",
            Query('edgeddl_node_linpack_peak_ratio{host=~"$node"}', "{{host}} {{engine}}"),
            lowest=0,
            highest=1,
            colours=PEAK_COLOURS,
        ),
        table(
            "LINPACK verdict",
            "Verdict of the last LINPACK run on each board.",
            Query('edgeddl_node_linpack_verdict_info{host=~"$node"}'),
            "host", "engine", "verdict",
            width=8,
        ),
        number(
            "LINPACK result",
            "Whether the last LINPACK result was correct. If not, memory or processor are faulty:"
            " do not train on this board.",
            "none",
            Query('edgeddl_node_linpack_passed{host=~"$node"}', "{{host}}"),
            width=12,
            choices={0: ("wrong", "red"), 1: ("correct", "green")},
        ),
        number(
            "Time since last LINPACK run",
            "Time since the last LINPACK run on each board.",
            "s",
            Query('time() - edgeddl_node_linpack_timestamp_seconds{host=~"$node"}', "{{host}}"),
            width=12,
            lowest=0,
        ),
    ),
)  # fmt: skip

HARDWARE = Row(
    "Hardware",
    (
        states(
            "Throttled now, by reason",
            "Red while the firmware throttles a board. under_voltage: the power supply or its cable"
            " is too weak. Other reasons: the board is too hot.",
            Query(
                'max_over_time(edgeddl_node_throttling{when="now", host=~"$node"}'
                "[$__rate_interval])",
                "{{host}} {{reason}}",
            ),
            choices=YES_IS_BAD,
        ),
        states(
            "Throttled since boot, by reason",
            "Red if the board was throttled at least once since it booted.",
            Query(
                'edgeddl_node_throttling{when="since_boot", host=~"$node"}', "{{host}} {{reason}}"
            ),
            choices=YES_IS_BAD,
        ),
        graph(
            "Temperature",
            "Temperature of the processors. A Raspberry Pi is throttled at 80 °C.",
            "celsius",
            Query('edgeddl_node_temperature_celsius{host=~"$node"}', "{{host}}"),
            colours=TEMPERATURE_COLOURS,
        ),
        graph(
            "Clock frequency",
            "Current and maximum clock of the processors.",
            "hertz",
            Query('edgeddl_node_clock_hertz{host=~"$node"}', "{{host}}"),
            Query('edgeddl_node_clock_max_hertz{host=~"$node"}', "{{host}} maximum"),
            lowest=0,
        ),
        graph(
            "CPU utilisation",
            "Fraction of the time of all cores that was not idle. Near 100 % during training.",
            "percentunit",
            Query('edgeddl_node_cpu_utilization_ratio{host=~"$node"}', "{{host}}"),
            lowest=0,
            highest=1,
        ),
        bars(
            "Link speed",
            "Line rate of each wired network interface. Gigabit Ethernet is 125 MB/s. If it shows"
            " 12.5 MB/s, check the cable and the switch.",
            "Bps",
            Query('edgeddl_node_link_bytes_per_second{host=~"$node"}', "{{host}} {{device}}"),
            lowest=0,
            colours=((None, "red"), (100e6, "green")),
        ),
        graph(
            "Free disk space",
            "Free fraction of each file system. Checkpoints fail when it is full.",
            "percentunit",
            Query(
                'node_filesystem_avail_bytes{host=~"$node", fstype!~"tmpfs|ramfs|squashfs|iso9660"}'
                " / node_filesystem_size_bytes",
                "{{host}} {{mountpoint}}",
            ),
            lowest=0,
            highest=1,
            colours=((None, "red"), (0.1, "yellow"), (0.2, "green")),
        ),
        graph(
            "Power",
            "Mean power over the last minute, from each board's energy counter.",
            "watt",
            Query('host:edgeddl_node_energy_joules:rate1m{host=~"$node"}', "{{host}}"),
            lowest=0,
        ),
    ),
)

HEALTH = Dashboard(
    "health",
    "LINPACK and health",
    "Health of the boards: alerts, LINPACK, throttling, temperature, links, disks.",
    (NODE,),
    (NOW, LINPACK, HARDWARE),
)
