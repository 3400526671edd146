"""Which cameras the demo shows: decided from measured execution times, by arithmetic alone.

Two carphone cameras share a category; bikes and bunny have one each, at the largest picture that keeps the
device about half busy; a further camera is sought that an empty device carries and this one does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gateway.client.boxes import padded_shape

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

#: A rate whose period (137 ms) shares no short cycle with 100, 167 and 333 ms.
ODD_FPS = 7.3

Shape = tuple[int, int]
#: Execution time of one frame by (height, width), in ms.
Times = Mapping[Shape, float]


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
    def frame_shape(self) -> tuple[int, int, int]:
        """The shape of one frame as it is registered."""
        return (*self.shape, 3)


def cameras(bikes_shape: Shape = BIKES_SHAPES[0], bunny_shape: Shape = BUNNY_SHAPES[0]) -> list[CameraPlan]:
    """Return the four cameras that are to be admitted.

    An idle device takes each frame at once, alone; frames share a batch when they come while it is busy. The
    carphones come together twice a second, just after a frame of the bunny or of the bikes: then they do.
    """
    return [
        CameraPlan("carphone-10", "carphone", CARPHONE_SHAPE, 10.0, 200.0, phase_ms=4.0),
        CameraPlan("carphone-6", "carphone", CARPHONE_SHAPE, 6.0, 300.0, phase_ms=4.0),
        CameraPlan("bikes", "bikes", bikes_shape, 3.0, 600.0, phase_ms=500.0),
        CameraPlan("bunny", "bigbuckbunny", bunny_shape, 3.0, 600.0),
    ]


def utilization(plans: Sequence[CameraPlan], times: Times) -> float:
    """Return the share of the device's time that the cameras take, each frame a job of its own."""
    return sum(plan.fps * times[plan.shape] / 1e3 for plan in plans)


def to_measure(times: Times) -> list[Shape]:
    """Return the shapes to measure next; none once those of `chosen` are known and carried.

    First the carphone's; from it, by pixels, the largest sizes of the other clips that should fit; if they turn
    out not to, smaller ones. When even the smallest do not fit, they are taken: admission has the last word.
    """
    if CARPHONE_SHAPE not in times:
        return [CARPHONE_SHAPE]
    known = _measured(BIKES_SHAPES, times) and _measured(BUNNY_SHAPES, times)
    if known and utilization(chosen(times), times) <= TARGET_UTILIZATION:
        return []
    first = (_place(BIKES_SHAPES, times), _place(BUNNY_SHAPES, times))
    for step in range(max(len(BIKES_SHAPES), len(BUNNY_SHAPES))):
        bikes = BIKES_SHAPES[min(first[0] + step, len(BIKES_SHAPES) - 1)]
        bunny = BUNNY_SHAPES[min(first[1] + step, len(BUNNY_SHAPES) - 1)]
        guessed = {shape: _guess(shape, times) for shape in (CARPHONE_SHAPE, bikes, bunny)}
        if utilization(cameras(bikes, bunny), guessed) <= TARGET_UTILIZATION:
            break
    return [shape for shape in (bikes, bunny) if shape not in times]


def chosen(times: Times) -> list[CameraPlan]:
    """Return the cameras at the smallest shapes that were measured: the last that `to_measure` asked for."""
    return cameras(_measured(BIKES_SHAPES, times)[-1], _measured(BUNNY_SHAPES, times)[-1])


def fifth_cameras(plans: Sequence[CameraPlan], times: Times) -> list[CameraPlan]:
    """Return cameras that fit an empty device and may not fit this one, most natural first.

    They film the bunny. The first ask for about what is left of the device: near its limit it is a *deadline*
    that would be missed, and can be named, while far beyond it is the long-run use. Which of them the exact test
    refuses depends on the phases at which frames happen to come. The last leave nothing to chance: their deadline
    is just enough on an idle device, so that whatever runs when a frame comes is in its way; and their period has
    no common measure with the others', so that sooner or later something does.
    """
    bunny = next(plan for plan in plans if plan.name == "bunny")
    e_ms = times[bunny.shape]
    room = max(0.1, 1.0 - utilization(plans, times))
    found = []
    for share, periods in ((0.95, 2.0), (0.95, 1.0), (1.05, 2.0), (1.05, 1.0), (1.15, 1.0), (0.8, 0.75)):
        fps = _round_rate(share * room / e_ms * 1e3)
        found.append(_fifth(bunny, fps, periods * 1e3 / fps))
    return found + [_fifth(bunny, ODD_FPS, factor * e_ms) for factor in (3.0, 2.5, 2.2)]


def _fifth(bunny: CameraPlan, fps: float, deadline_ms: float) -> CameraPlan:
    return replace(bunny, name="bunny-2", fps=fps, deadline_ms=round(min(deadline_ms, 2e3 / fps), 1))


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


def _guess(shape: Shape, times: Times) -> float:
    """Return the time at `shape`: measured, or by pixels of what the model makes of it from the nearest measured."""
    if shape in times:
        return times[shape]
    nearest = min(times, key=lambda known: abs(_pixels(known) - _pixels(shape)))
    return times[nearest] * _pixels(shape) / _pixels(nearest)


def _pixels(shape: Shape) -> int:
    height, width = padded_shape(shape)
    return height * width
