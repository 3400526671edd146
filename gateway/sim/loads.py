"""How long the simulated worker takes to load and to unload a model, and how that ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from gateway.core.actions import LoadModel, UnloadModel
from gateway.core.events import ModelLoaded, ModelLoadFailed, ModelUnloaded, ModelUnloadFailed
from gateway.core.profile import Profile
from gateway.core.types import NS_PER_MS, NS_PER_S
from gateway.sim.draws import share

#: A load or an unload, how many of its kind that model had before, and the answer: how it goes.
Loads = Callable[[LoadModel | UnloadModel, int], "Course"]
#: What a worker says at the end of a load or of an unload.
Ending = ModelLoaded | ModelLoadFailed | ModelUnloaded | ModelUnloadFailed

#: Of models whose loads and unloads were not measured: as Triton's Python backend takes for a small one.
_LOAD_NS = NS_PER_S // 2
_UNLOAD_NS = NS_PER_S // 10
#: Kinds of draws.
_LOAD, _UNLOAD, _FAILS = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Course:
    """How one load or unload goes.

    Attributes:
        takes_ns: Until the worker says how it ended.
        failure: Its words; empty: it succeeds.
    """

    takes_ns: int
    failure: str = ""


def profiled(profile: Profile) -> Loads:
    """Take the longest time that was measured; half a second and a tenth where nothing was."""
    times: dict[str, tuple[int, int]] = {}
    for entry in profile.models:
        load_ms, unload_ms = entry.load_max_ms or entry.load_ms, entry.unload_max_ms or entry.unload_ms
        known = times.get(entry.model, (0, 0))  # of its versions, the slowest
        times[entry.model] = (
            max(known[0], round(load_ms * NS_PER_MS)),
            max(known[1], round(unload_ms * NS_PER_MS)),
        )

    def take(action: LoadModel | UnloadModel, _before: int) -> Course:
        load_ns, unload_ns = times.get(action.model, (_LOAD_NS, _UNLOAD_NS))
        return Course(max(1, load_ns if isinstance(action, LoadModel) else unload_ns))

    return take


def shorter(loads: Loads, low: float, seed: int) -> Loads:
    """Return `loads` with times drawn evenly from ``[low, 1]`` times theirs.

    A draw depends on `seed`, the model and how many of its kind it had before, as in `gateway.sim.execution.uniform`.

    Raises:
        ValueError: `low` is not in [0, 1].
    """
    if not 0 <= low <= 1:
        raise ValueError(f"low must lie in [0, 1], not {low}")

    def take(action: LoadModel | UnloadModel, before: int) -> Course:
        course = loads(action, before)
        kind = _LOAD if isinstance(action, LoadModel) else _UNLOAD
        part = low + (1 - low) * share(seed, kind, _number(action.model), before)
        return Course(max(1, round(part * course.takes_ns)), course.failure)

    return take


def failing(loads: Loads, part: float, seed: int) -> Loads:
    """Return `loads` of which this part fails, in the time that they take; unloads succeed.

    Raises:
        ValueError: `part` is not in [0, 1].
    """
    if not 0 <= part <= 1:
        raise ValueError(f"part must lie in [0, 1], not {part}")

    def take(action: LoadModel | UnloadModel, before: int) -> Course:
        course = loads(action, before)
        fails = isinstance(action, LoadModel) and share(seed, _FAILS, _number(action.model), before) < part
        return Course(course.takes_ns, "simulated failure") if fails else course

    return take


class Loading:
    """Carries out the loads and unloads of one run: says when each ends, and with which event."""

    def __init__(self, loads: Loads) -> None:
        self._loads = loads
        self._before: Counter[tuple[str, str]] = Counter()

    def begin(self, action: LoadModel | UnloadModel) -> tuple[int, Ending]:
        """Return how long the operation takes, in ns, and what the worker says then."""
        kind = (type(action).__name__, action.model)
        course = self._loads(action, self._before[kind])
        self._before[kind] += 1
        return course.takes_ns, _ending(action, course.failure)


def _ending(action: LoadModel | UnloadModel, failure: str) -> Ending:
    if isinstance(action, LoadModel):
        return ModelLoadFailed(action.model, failure) if failure else ModelLoaded(action.model)
    return ModelUnloadFailed(action.model, failure) if failure else ModelUnloaded(action.model)


def _number(model: str) -> int:
    """Return a number for a name, the same in every process."""
    return int.from_bytes(model.encode()[-8:], "big")
