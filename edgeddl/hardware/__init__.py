"""Reads the sensors of a machine: temperature, clock, throttling, power, links, memory.

All files are read below a root folder, which tests replace by files from another machine. A missing
sensor is None, because 0 would look like a measurement.
"""

from edgeddl.hardware.description import describe
from edgeddl.hardware.memory import Memory, allowed_bytes, read_memory
from edgeddl.hardware.processor import CoreTime, read_core_time
from edgeddl.hardware.sensors import Sensors, read_sensors
from edgeddl.hardware.throttling import Throttling

__all__ = [
    "CoreTime",
    "Memory",
    "Sensors",
    "Throttling",
    "allowed_bytes",
    "describe",
    "read_core_time",
    "read_memory",
    "read_sensors",
]
