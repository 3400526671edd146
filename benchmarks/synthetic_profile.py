"""Writes ``profiles/synthetic-gpu.json``: a device that nobody has measured, for the simulator and for plans.

``python -m benchmarks.synthetic_profile``. Every model takes E(n, pixels) = 2 ms + 6 ms x (pixels / 50176) x n^0.6,
where 50176 = 224 x 224: a fixed cost, and a gain from batching and from smaller pictures such as GPUs show. The names
are those of the zoo, so that traces and plans can be used with it and with measured profiles. Nothing in it is a
measurement; ``device`` and ``engine`` say so.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from gateway.core.profile import Profile, ProfileEntry

PATH = Path(__file__).resolve().parents[1] / "profiles/synthetic-gpu.json"
MODELS = ("centerface", "inception_v3", "mobilenet_v2", "resnet101", "resnet152", "resnet50", "vgg16", "vgg19")
SIDES = (224, 192, 160, 128, 112, 96)
BATCHES = (1, 2, 4, 8, 16, 32)
#: Of samples: the formula has no spread, so that as many as are needed agree on it.
_COUNT = 1_000


def execution_ms(batch: int, pixels: int) -> float:
    """Return E of the module's docstring, to the nearest microsecond."""
    return round(2.0 + 6.0 * (pixels / 224**2) * math.pow(batch, 0.6), 3)


def profile() -> Profile:
    """Return the profile."""
    entries = [
        ProfileEntry(model, "1", (side, side, 3), "UINT8", batch, _COUNT, ms, ms, ms)
        for model in MODELS
        for side in SIDES
        for batch in BATCHES
        for ms in (execution_ms(batch, side * side),)
    ]
    return Profile(
        entries=tuple(entries),
        device="synthetic: 2 ms + 6 ms x (pixels / 50176) x n^0.6, nothing was measured",
        engine="synthetic",
        created="2026-01-01T00:00:00+00:00",
    )


def text(found: dict[str, Any]) -> str:
    """Return the file's text, an entry a line."""
    head = {name: value for name, value in found.items() if name not in {"entries", "models"}}
    entries = ",\n".join("  " + json.dumps(entry) for entry in found["entries"])
    models = json.dumps(found["models"])
    return f'{json.dumps(head)[:-1]}, "models": {models}, "entries": [\n{entries}\n]}}\n'


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description="Write the profile of a synthetic GPU.")
    parser.add_argument("path", nargs="?", type=Path, default=PATH)
    path = parser.parse_args().path
    path.write_text(text(profile().to_dict()))


if __name__ == "__main__":
    main()
