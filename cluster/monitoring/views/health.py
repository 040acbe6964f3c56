"""Whether the boards are well: alerts, LINPACK, throttling, temperature, links, disks."""

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

# Of a Raspberry Pi 4's peak of 24 GFLOPS: 14 and more is healthy, under 8 is sick.
PEAK_COLOURS = ((None, "red"), (0.33, "yellow"), (0.58, "green"))

NOW = Row(
    "Now",
    (
        table(
            "Firing alerts",
            "What is wrong; docs/monitoring.md says what to do about each. Empty is good.",
            Query('ALERTS{alertstate="firing"}'),
            "alertname", "host", "run", "rank", "reason", "severity",
        ),
        table(
            "Nodes",
            "The boards, their processors and edgeddl's version. All versions should be the same.",
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
            "Speed of the last `python -m edgeddl linpack`. Equal boards should be equally fast; a"
            " Raspberry Pi 4 does 14 to 16.5 GFLOPS.",
            "flops",
            Query('edgeddl_node_linpack_flops_per_second{host=~"$node"}', "{{host}} {{engine}}"),
            lowest=0,
        ),
        bars(
            "Fraction of peak",
            "LINPACK's speed over what the processor could do at best. Under a third: a wrong BLAS,"
            " or throttling.",
            "percentunit",
            Query('edgeddl_node_linpack_peak_ratio{host=~"$node"}', "{{host}} {{engine}}"),
            lowest=0,
            highest=1,
            colours=PEAK_COLOURS,
        ),
        table(
            "LINPACK verdict",
            "What the last LINPACK run says of each board.",
            Query('edgeddl_node_linpack_verdict_info{host=~"$node"}'),
            "host", "engine", "verdict",
            width=8,
        ),
        number(
            "LINPACK result",
            "Whether the last LINPACK result passed its check. If not, memory or processor make"
            " errors: do not train on this board.",
            "none",
            Query('edgeddl_node_linpack_passed{host=~"$node"}', "{{host}}"),
            width=12,
            choices={0: ("wrong", "red"), 1: ("correct", "green")},
        ),
        number(
            "Time since last LINPACK run",
            "Time since LINPACK was run.",
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
            "Red while the firmware slows a board down. under_voltage: the power supply or its"
            " cable is too weak. The other reasons: the board is too hot.",
            Query(
                'max_over_time(edgeddl_node_throttling{when="now", host=~"$node"}'
                "[$__rate_interval])",
                "{{host}} {{reason}}",
            ),
            choices=YES_IS_BAD,
        ),
        states(
            "Throttled since boot, by reason",
            "Red if it has happened at least once since the board booted.",
            Query(
                'edgeddl_node_throttling{when="since_boot", host=~"$node"}', "{{host}} {{reason}}"
            ),
            choices=YES_IS_BAD,
        ),
        graph(
            "Temperature",
            "Of the processors. A Raspberry Pi slows down from 80 °C on.",
            "celsius",
            Query('edgeddl_node_temperature_celsius{host=~"$node"}', "{{host}}"),
            colours=TEMPERATURE_COLOURS,
        ),
        graph(
            "Clock frequency",
            "At which processors run, and the highest they may.",
            "hertz",
            Query('edgeddl_node_clock_hertz{host=~"$node"}', "{{host}}"),
            Query('edgeddl_node_clock_max_hertz{host=~"$node"}', "{{host}} highest"),
            lowest=0,
        ),
        graph(
            "CPU utilisation",
            "Part of all cores' time that was not idle. Near 1 while training.",
            "percentunit",
            Query('edgeddl_node_cpu_utilization_ratio{host=~"$node"}', "{{host}}"),
            lowest=0,
            highest=1,
        ),
        bars(
            "Link speed",
            "Line rate of each wired network card, in bytes. 125 MB/s is gigabit; 12.5 MB/s where"
            " gigabit is expected is a bad cable or switch.",
            "Bps",
            Query('edgeddl_node_link_bytes_per_second{host=~"$node"}', "{{host}} {{device}}"),
            lowest=0,
            colours=((None, "red"), (100e6, "green")),
        ),
        graph(
            "Free disk space",
            "Part of each file system that is free. Checkpoints fail when it is full.",
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
            "Mean over the last minute, from each board's energy counter.",
            "watt",
            Query('host:edgeddl_node_energy_joules:rate1m{host=~"$node"}', "{{host}}"),
            lowest=0,
        ),
    ),
)

HEALTH = Dashboard(
    "health",
    "LINPACK and health",
    "Whether the boards are well: alerts, LINPACK, throttling, temperature, links, disks.",
    (NODE,),
    (NOW, LINPACK, HARDWARE),
)
