"""Which cameras the demo shows: decided from measured execution times, by the gateway's own admission test.

Two carphone cameras share a category; bikes and bunny have one each, at the largest picture with which all four are
admitted and the device stays about half busy; a further camera is sought that an empty device carries and this one does
not. Cameras have no end, so it is the sporadic test that decides: its answer does not depend on the instants at which
frames happen to come, here and in the gateway it is the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gateway.client.boxes import padded_shape
from gateway.client.pacing import TOLERANCE
from gateway.core.actions import Rejected
from gateway.core.engine import Engine
from gateway.core.events import RegisterStream
from gateway.core.profile import Profile
from gateway.core.profile_entry import ProfileEntry
from gateway.core.types import NS_PER_MS, NS_PER_S, StreamSpec

MODEL = "centerface"
#: Two carphone streams at the same size, so that they can share batches.
CARPHONE_SHAPE = (144, 176)
#: Sizes of the other clips, largest first; the first that the device carries is taken. Aspect ratios are the clips'.
BIKES_SHAPES = ((204, 480), (136, 320), (102, 240), (68, 160))
BUNNY_SHAPES = ((270, 480), (180, 320), (135, 240), (90, 160))
#: Batch sizes to measure: two cameras of such rates have at most two frames in one window.
BATCHES = (1, 2)
#: The device is to be this busy at most with the four cameras: what is left is for the refusal to be about, and
#: for the other processes of a small machine.
TARGET_UTILIZATION = 0.6

#: A slow machine gets slower cameras, with longer deadlines, if the smallest pictures are still too much for it.
PACES = (1.0, 0.85, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)

#: The highest rate of a fifth camera whose deadline is what matters.
TIGHT_FPS = 7.3
#: What an idle device needs at least, in execution times, under the sporadic test: half the deadline is the window,
#: and in the other half one job may be in the way of this one.
TIGHTEST = 4.05
#: Fifth cameras that are offered to the gateway.
_MOST_FIFTHS = 6
#: Of a profile that is made from bare times.
_VERSION = "1"
_SAMPLES = 100

Shape = tuple[int, int]
#: Execution times by (height, width): of 1, 2, ... frames (`BATCHES`), in ms; larger batches may not be used.
Times = Mapping[Shape, Sequence[float]]


@dataclass(frozen=True)
class CameraPlan:
    """One camera of the demo.

    Attributes:
        name: For people.
        clip: Which clip it films: ``carphone``, ``bikes`` or ``bigbuckbunny``.
        shape: (height, width) it sends.
        fps: Its rate.
        deadline_ms: Relative deadline, at most two periods.
        phase_ms: When its first frame comes, after the cameras' common start.
    """

    name: str
    clip: str
    shape: Shape
    fps: float
    deadline_ms: float
    phase_ms: float = 0.0

    @property
    def jitter_ms(self) -> float:
        """What it declares: by so much its frames may be late and are still sent."""
        return TOLERANCE * 1e3 / self.fps

    @property
    def frame_shape(self) -> tuple[int, int, int]:
        """The shape of one frame as it is registered."""
        return (*self.shape, 3)

    def contract(self, version: str) -> StreamSpec:
        """Return what is registered, but for the start."""
        return StreamSpec(
            MODEL,
            version,
            self.frame_shape,
            round(NS_PER_S / self.fps),
            round(self.deadline_ms * NS_PER_MS),
            jitter_ns=round(self.jitter_ms * NS_PER_MS),
            name=self.name,
        )


def cameras(
    bikes_shape: Shape = BIKES_SHAPES[0], bunny_shape: Shape = BUNNY_SHAPES[0], pace: float = 1.0
) -> list[CameraPlan]:
    """Return the four cameras that are to be admitted; `pace` below 1 makes them all slower.

    An idle device takes each frame at once, alone; frames share a batch when they come while it is busy. The
    carphones come together twice a second, just after a frame of the bunny or of the bikes: then they do.
    """
    plans = [
        CameraPlan("carphone-10", "carphone", CARPHONE_SHAPE, 10.0, 200.0, phase_ms=4.0),
        CameraPlan("carphone-6", "carphone", CARPHONE_SHAPE, 6.0, 300.0, phase_ms=4.0),
        CameraPlan("bikes", "bikes", bikes_shape, 3.0, 600.0, phase_ms=500.0 / pace),
        CameraPlan("bunny", "bigbuckbunny", bunny_shape, 3.0, 600.0),
    ]
    return [replace(plan, fps=plan.fps * pace, deadline_ms=plan.deadline_ms / pace) for plan in plans]


def utilization(plans: Sequence[CameraPlan], times: Times) -> float:
    """Return the share of the device's time that the cameras take, each frame a job of its own."""
    return sum(plan.fps * times[plan.shape][0] / 1e3 for plan in plans)


def carried(plans: Sequence[CameraPlan], times: Times) -> bool:
    """Return whether the gateway would admit these cameras, and they leave the device time for what is to come."""
    return utilization(plans, times) <= TARGET_UTILIZATION and _with(plans, times) is not None


def to_measure(times: Times) -> list[Shape]:
    """Return the shapes to measure next; none once those of `chosen` are known and carried.

    First the carphone's; from it, by pixels, the largest sizes of the other clips that should fit; if they turn
    out not to, smaller ones. When even the smallest do not fit, they are taken, and the cameras are slower.
    """
    if CARPHONE_SHAPE not in times:
        return [CARPHONE_SHAPE]
    measured = (_measured(BIKES_SHAPES, times), _measured(BUNNY_SHAPES, times))
    if all(measured) and carried(cameras(measured[0][-1], measured[1][-1]), times):
        return []
    first = (_place(BIKES_SHAPES, times), _place(BUNNY_SHAPES, times))
    for step in range(max(len(BIKES_SHAPES), len(BUNNY_SHAPES))):
        bikes = BIKES_SHAPES[min(first[0] + step, len(BIKES_SHAPES) - 1)]
        bunny = BUNNY_SHAPES[min(first[1] + step, len(BUNNY_SHAPES) - 1)]
        guessed = {shape: _guess(shape, times) for shape in (CARPHONE_SHAPE, bikes, bunny)}
        if carried(cameras(bikes, bunny), guessed):
            break
    return [shape for shape in (bikes, bunny) if shape not in times]


def chosen(times: Times) -> list[CameraPlan]:
    """Return the cameras at the smallest shapes that were measured, as fast as the device carries them.

    When it carries none, the slowest: admission has the last word.
    """
    bikes, bunny = _measured(BIKES_SHAPES, times)[-1], _measured(BUNNY_SHAPES, times)[-1]
    found = [cameras(bikes, bunny, pace) for pace in PACES]
    return next((plans for plans in found if carried(plans, times)), found[-1])


def fifth_cameras(plans: Sequence[CameraPlan], times: Times) -> list[CameraPlan]:
    """Return cameras that fit an empty device and not this one, most natural first.

    Only those count of which a *deadline* that would be missed can be named; far beyond its limit it is the device's
    long-run use that forbids a camera. The first ask for about what is left of the device. The last ask for little,
    with a deadline that is just enough on an idle device, where they meet no other camera's frames.
    """
    bunny = next(plan for plan in plans if plan.name == "bunny")
    carphone = next(plan for plan in plans if plan.clip == "carphone")
    room = max(0.1, 1.0 - utilization(plans, times))
    candidates = []
    for share, periods in ((0.95, 2.0), (0.95, 1.0), (0.8, 2.0), (0.8, 1.0), (0.65, 2.0), (0.65, 1.0), (0.5, 2.0)):
        fps = _round_rate(share * room / times[bunny.shape][0] * 1e3)
        candidates.append(_fifth(bunny, "bunny-2", fps, periods * 1e3 / fps))
    for like, name in ((bunny, "bunny-2"), (carphone, "carphone-3")):
        for tightness in (1.5, 1.25, 1.0):
            deadline_ms = TIGHTEST * tightness * times[like.shape][0]
            candidates.append(_fifth(like, name, min(TIGHT_FPS, 2e3 / deadline_ms), deadline_ms))
    engine = _with(plans, times)
    found = [plan for plan in candidates if engine is not None and _fits_alone_only(plan, times, engine)]
    return found[:_MOST_FIFTHS] or candidates


def _fits_alone_only(plan: CameraPlan, times: Times, occupied: Engine) -> bool:
    if _with([plan], times) is None:
        return False
    verdict = occupied.check(plan.contract(_VERSION), 0)
    return not verdict.admitted and verdict.first_miss is not None


def _with(plans: Sequence[CameraPlan], times: Times) -> Engine | None:
    """Return an engine that has admitted the cameras; None if it refuses one."""
    entries = [
        ProfileEntry(MODEL, _VERSION, (*shape, 3), "UINT8", batch, _SAMPLES, ms, ms, ms)
        for shape, row in times.items()
        for batch, ms in zip(BATCHES, row, strict=False)
    ]
    engine = Engine(Profile(entries=tuple(entries)))
    for plan in plans:
        actions = engine.handle(RegisterStream(plan.name, plan.contract(_VERSION)), 0)
        if any(isinstance(action, Rejected) for action in actions):
            return None
    return engine


def _fifth(like: CameraPlan, name: str, fps: float, deadline_ms: float) -> CameraPlan:
    # Rounded up: a tight deadline is to be just enough.
    return replace(like, name=name, fps=fps, deadline_ms=math.ceil(10 * min(deadline_ms, 2e3 / fps)) / 10)


def _round_rate(fps: float) -> float:
    """Round down to a rate that a person would ask for: halves above 2 fps, tenths below."""
    step = 0.5 if fps >= 2 else 0.1
    return max(0.1, round(fps / step - 0.5) * step)


def _measured(ladder: Sequence[Shape], times: Times) -> list[Shape]:
    return [shape for shape in ladder if shape in times]


def _place(ladder: Sequence[Shape], times: Times) -> int:
    """Return where in `ladder` to go on: after the smallest measured shape, at the start without one."""
    measured = _measured(ladder, times)
    return min(ladder.index(measured[-1]) + 1, len(ladder) - 1) if measured else 0


def _guess(shape: Shape, times: Times) -> Sequence[float]:
    """Return the times at `shape`: measured, or by pixels of what the model makes of it from the nearest measured."""
    if shape in times:
        return times[shape]
    nearest = min(times, key=lambda known: abs(_pixels(known) - _pixels(shape)))
    return [ms * _pixels(shape) / _pixels(nearest) for ms in times[nearest]]


def _pixels(shape: Shape) -> int:
    height, width = padded_shape(shape)
    return height * width
