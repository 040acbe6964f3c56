"""python -m edgeddl exporter: a service with the metrics of a node for Prometheus."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from contextlib import closing
from pathlib import Path

from edgeddl import machine
from edgeddl.config import metrics_address
from edgeddl.errors import ConfigError
from edgeddl.linpack.record import record_path
from edgeddl.log import logger
from edgeddl.metrics.instruments import CONTENT_TYPE, Instruments
from edgeddl.metrics.listening import listen
from edgeddl.metrics.node import NodeMetrics
from edgeddl.metrics.power import PowerMeter
from edgeddl.metrics.server import Answer, MetricsServer, Pages

DEFAULT_PORT = 9835
# Short enough to measure the energy of steps, long enough for a Pi, where a sample starts two
# processes.
SAMPLE_EVERY_SECONDS = 2.0


DESCRIPTION = """\
Serve /metrics until SIGTERM or Ctrl-C. Metrics without a sensor on this machine are absent. To
serve the metrics of training, use edgeddl train --metrics-port N."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("--address", metavar="ADDRESS", help=(
        "listen on this address, or on this host's address in a network such as 10.42.0.0/24"
        " (default: $EDGEDDL_METRICS_ADDRESS, or else 127.0.0.1)"
    ))  # fmt: skip
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, metavar="N", help=(
        "listen on this port (default: %(default)s)"
    ))  # fmt: skip
    parser.add_argument("--power-file", type=Path, metavar="FILE", help=(
        "read the power in watts from the start of the last line of this file, which the program of"
        " a USB meter writes at least once a minute; takes precedence over other sources"
    ))  # fmt: skip
    parser.add_argument("--power-model", choices=("auto", "pi4", "none"), default="auto", help=(
        "if power is not measured, estimate it for a Raspberry Pi 4 (pi4), only on such a board"
        " (auto) or never (none) (default: %(default)s)"
    ))  # fmt: skip
    parser.add_argument("--root", type=Path, default=Path("/"), help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Serve metrics until SIGTERM or Ctrl-C."""
    if not 0 <= options.port <= 65535:
        raise ConfigError(f"--port {options.port}: expected a number from 0 to 65535")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # also while a sensor hangs
    meter = PowerMeter(file=options.power_file, model=_uses_model(options))
    metrics = NodeMetrics(options.root, record_path(), meter)
    metrics.sample()
    listener = listen(
        metrics_address(options.address),
        options.port,
        option="--port",
        who="the exporter of this node",
    )
    with closing(MetricsServer(listener, pages(metrics.instruments))) as server:
        logger.info("metrics at http://%s:%d/metrics", server.address, server.port)
        while True:
            time.sleep(SAMPLE_EVERY_SECONDS)
            metrics.sample()


def pages(instruments: Instruments) -> Pages:
    return {
        "/": lambda: Answer(b"edgeddl: the metrics of this machine are at /metrics\n"),
        "/metrics": lambda: Answer(instruments.render(), CONTENT_TYPE),
    }


def _uses_model(options: argparse.Namespace) -> bool:
    if options.power_model == "auto":
        return "Raspberry Pi 4" in machine.cpu_name(options.root)
    return bool(options.power_model == "pi4")
