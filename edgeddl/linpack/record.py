"""linpack.json: the last result of a machine, in its state folder."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edgeddl import machine
from edgeddl.config import state_folder
from edgeddl.errors import LinpackError
from edgeddl.linpack.figures import NodeFigures, Stream
from edgeddl.linpack.processor import Processor
from edgeddl.linpack.verdict import SICK, Verdict, judge_node

FORMAT = 1
COMMAND = "python -m edgeddl linpack"


@dataclass(frozen=True)
class NodeRecord:
    """A machine, its measured values and the verdict."""

    time: str
    host: str
    cpu: str
    cores: int
    memory_bytes: int
    peak_gflops: float | None
    figures: NodeFigures
    verdict: Verdict

    @property
    def share_of_peak(self) -> float | None:
        return self.figures.gflops / self.peak_gflops if self.peak_gflops else None

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "time": self.time,
            "host": self.host,
            "cpu": self.cpu,
            "cores": self.cores,
            "memory_bytes": self.memory_bytes,
            **asdict(self.figures),
            "peak_gflops": self.peak_gflops,
            "share_of_peak": self.share_of_peak,
            "verdict": self.verdict.rating,
            "causes": list(self.verdict.causes),
        }


def make_record(
    host: str, processor: Processor, memory_bytes: int, figures: NodeFigures
) -> NodeRecord:
    peak = processor.peak_gflops(figures.threads)
    return NodeRecord(
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        host=host,
        cpu=processor.name,
        cores=machine.available_cores(),
        memory_bytes=memory_bytes,
        peak_gflops=peak,
        figures=figures,
        verdict=judge_node(figures, peak, processor.name),
    )


def parse_record(value: Any) -> NodeRecord:
    """A record from its JSON; raises ValueError if it is invalid."""
    try:
        if value["format"] != FORMAT:
            raise ValueError(f"format {value['format']}, not {FORMAT}")
        stream = value["stream"] and Stream(**value["stream"])
        names = [one.name for one in fields(NodeFigures)]
        own = ("time", "host", "cpu", "cores", "memory_bytes", "peak_gflops")
        if not math.isfinite(value["gflops"]):
            raise ValueError(f"{value['gflops']} GFLOPS")
        datetime.fromisoformat(value["time"])
        return NodeRecord(
            **{name: value[name] for name in own},
            figures=NodeFigures(**{name: value[name] for name in names} | {"stream": stream}),
            verdict=Verdict(value["verdict"], tuple(value["causes"])),
        )
    except KeyError as error:
        raise ValueError(f"the record of a LINPACK run lacks {error}") from None
    except TypeError:
        raise ValueError("not a record of a LINPACK run") from None


def record_path() -> Path:
    return state_folder() / "linpack.json"


def read_record(path: Path) -> NodeRecord:
    """Raises OSError or ValueError if there is no valid record."""
    return parse_record(json.loads(path.read_text()))


def check_passed(host: str) -> NodeRecord:
    """The record of this machine; raises LinpackError if it has not passed."""
    path = record_path()
    hint = f"on {host}, run {COMMAND}"
    try:
        record = read_record(path)
    except FileNotFoundError:
        raise LinpackError(
            f"LINPACK has not been run on {host}: {path} is missing", hint=hint
        ) from None
    except (OSError, ValueError) as error:
        raise LinpackError(f"{path} on {host} cannot be read: {error}", hint=hint) from None
    now = (host, machine.cpu_name(), machine.available_cores())
    then = (record.host, record.cpu, record.cores)
    if now != then:
        raise LinpackError(
            f"{path} on {host} is a record of another machine:"
            f" {_machine(*then)}; this machine is {_machine(*now)}",
            hint=hint,
        )
    if record.verdict.rating == SICK or not record.figures.passed:
        causes = "; ".join(record.verdict.causes)
        raise LinpackError(f"LINPACK rated {host} as sick on {record.time}: {causes}", hint=hint)
    return record


def _machine(host: str, cpu: str, cores: int) -> str:
    return f"{host}, {cpu}, {cores} cores"
