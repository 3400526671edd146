"""What the machine calls itself, for the profile's `device` field."""

from __future__ import annotations

import os
from pathlib import Path

_GPUS = Path("/proc/driver/nvidia/gpus")
_CPUINFO = Path("/proc/cpuinfo")


def device_name() -> str:
    """Return the name of the first NVIDIA GPU, else of the processor, with its number of cores."""
    for information in sorted(_GPUS.glob("*/information")):
        for line in information.read_text().splitlines():
            if line.startswith("Model:"):
                return line.partition(":")[2].strip()
    name = "processor"
    if _CPUINFO.exists():
        for line in _CPUINFO.read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    return f"{name}, {len(os.sched_getaffinity(0))} cores"
