"""Writes ``profiles/rtx2080-like.json`` and ``profiles/tx2-like.json``: devices that nobody has measured.

``python -m benchmarks.paper_profiles``. They have the shape that DeepRT (Yang et al., SEC 2021, section 2 and 6.1)
tells of its two devices, an RTX 2080 and a Jetson TX2: batches raise throughput at the cost of a longer execution, and
a frame costs more at a higher resolution. For a model with L convolutional and dense layers and G billion
multiply-adds per frame of 224 x 224, a batch of n frames takes

    E(n, pixels) = base + launch x L + n x G x (pixels / 50176) / rate(family of the model)     [ms]

- ``base + launch x L`` does not depend on the batch: the call itself, and three kernels a layer. It is what a batch
  saves, so deep models gain the most from batching, and small pictures more than large ones.
- ``rate``, in billion multiply-adds per ms, is what a kernel reaches once the device is full: wide 3 x 3 convolutions
  (VGG) come nearest to the peak, separable ones (MobileNet) are bound by memory.

L and G are published properties of the models; base, launch and rate are guesses of their order of magnitude. Planned
times are p99 and the longest; the median is 0.9 of them, as of times that spread evenly over 0.8 to 1.0. The largest
batch is what activations leave room for. Nothing in the files is a measurement; ``device`` and ``engine`` say so.

The formulas were fixed before any policy was run on them, and are not to be fitted to what the policies come to.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from benchmarks.synthetic_profile import text
from gateway.core.profile import ModelEntry, Profile, ProfileEntry

FOLDER = Path(__file__).resolve().parents[1] / "profiles"
#: Times are planned for every one of these that has room in memory.
BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32)
_PIXELS = 224 * 224
_MEDIAN = 0.9
#: Of samples: the formula has no spread, so that as many as are needed agree on it.
_COUNT = 1_000


@dataclass(frozen=True, slots=True)
class Network:
    """What is published about a model.

    Attributes:
        family: Which of a device's rates holds for it.
        layers: Convolutional and dense ones.
        gmac: Billion multiply-adds for a frame of 224 x 224.
        parameters: In millions, 4 bytes each.
    """

    family: str
    layers: int
    gmac: float
    parameters: float


#: The six models of the paper's section 2, and MobileNet-v2 of its section 6.
NETWORKS = {
    "resnet50": Network("residual", 53, 4.1, 25.6),
    "resnet101": Network("residual", 104, 7.8, 44.5),
    "resnet152": Network("residual", 155, 11.5, 60.2),
    "vgg16": Network("vgg", 16, 15.5, 138.0),
    "vgg19": Network("vgg", 19, 19.6, 144.0),
    "inception_v3": Network("residual", 95, 3.2, 23.8),
    "mobilenet_v2": Network("separable", 53, 0.3, 3.5),
}


@dataclass(frozen=True, slots=True)
class Device:
    """The constants of one device.

    Attributes:
        name: Of the file, and of what it is shaped like.
        like: The same for people.
        base_ms, launch_ms: Once a batch, and once a layer of it.
        rates: Billion multiply-adds per ms, by family.
        shapes: The resolutions of the paper's section 6.1.
        frames: How many frames of 224 x 224 the activations of one batch have room for.
        copy_bytes_per_ms: How fast weights come in.
    """

    name: str
    like: str
    base_ms: float
    launch_ms: float
    rates: dict[str, float]
    shapes: tuple[tuple[int, int, int], ...]
    frames: float
    copy_bytes_per_ms: float


RTX2080 = Device(
    name="rtx2080-like",
    like="an RTX 2080",
    base_ms=1.0,
    launch_ms=0.06,
    rates={"vgg": 6.0, "residual": 3.3, "separable": 0.7},
    shapes=((1080, 1920, 3), (480, 854, 3), (240, 352, 3)),
    frames=128,
    copy_bytes_per_ms=6e6,
)
TX2 = Device(
    name="tx2-like",
    like="a Jetson TX2",
    base_ms=3.0,
    launch_ms=0.3,
    rates={"vgg": 0.25, "residual": 0.18, "separable": 0.05},
    shapes=((360, 640, 3), (240, 352, 3), (224, 224, 3)),
    frames=64,
    copy_bytes_per_ms=1.5e6,
)
DEVICES = (RTX2080, TX2)


def execution_ms(device: Device, model: str, batch: int, pixels: int) -> float:
    """Return E of the module's docstring, to the nearest microsecond."""
    network = NETWORKS[model]
    work = batch * network.gmac * pixels / _PIXELS
    return round(device.base_ms + device.launch_ms * network.layers + work / device.rates[network.family], 3)


def profile(device: Device) -> Profile:
    """Return the profile of a device: every model at every shape."""
    return Profile(
        entries=tuple(_entries(device)),
        models=tuple(_model(device, model) for model in NETWORKS),
        device=f"synthetic, shaped like {device.like} by formulas (benchmarks/paper_profiles.py): nothing was measured",
        engine="synthetic",
        created="2026-01-01T00:00:00+00:00",
    )


def variant(profile: Profile, scale: float) -> Profile:
    """Return the profile of a device whose executions take `scale` times as long."""
    entries = tuple(
        replace(e, p50_ms=e.p50_ms * scale, p99_ms=e.p99_ms * scale, max_ms=e.max_ms * scale) for e in profile.entries
    )
    return replace(profile, entries=entries, device=f"{profile.device}; times x {scale:g}")


def _entries(device: Device) -> list[ProfileEntry]:
    return [
        ProfileEntry(model, "1", shape, "UINT8", batch, _COUNT, round(_MEDIAN * ms, 3), ms, ms)
        for model in NETWORKS
        for shape in device.shapes
        for batch in BATCHES
        if batch * prod(shape[:2]) <= device.frames * _PIXELS
        for ms in (execution_ms(device, model, batch, prod(shape[:2])),)
    ]


def _model(device: Device, model: str) -> ModelEntry:
    size = round(NETWORKS[model].parameters * 4e6)
    return ModelEntry(model, "1", load_ms=round(50 + size / device.copy_bytes_per_ms, 3), unload_ms=5.0, bytes=size)


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description="Write the profiles shaped like the paper's devices.")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    folder = parser.parse_args().folder
    for device in DEVICES:
        (folder / f"{device.name}.json").write_text(text(profile(device).to_dict()))


if __name__ == "__main__":
    main()
