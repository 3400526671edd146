"""The live driver without waiting: a clock that jumps, and an executor that knows how long each job takes.

For tests that hold the live driver against the simulator, which has an event queue of its own. Events of one
instant come in the order of `EVENT_RANK`, in both.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.core.actions import Action, LoadModel, UnloadModel
from gateway.core.events import EVENT_RANK, Event, JobFinished, Tick, WidenWindows
from gateway.core.types import Job


@dataclass(order=True, slots=True)
class _Entry:
    t_ns: int
    rank: int
    place: int
    sequence: int
    callback: Callable[[], object] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class VirtualClock:
    """Implements `gateway.clock.Clock`; time passes only in `run`."""

    def __init__(self) -> None:
        self._now_ns = 0
        self._heap: list[_Entry] = []
        self._sequence = 0

    def now_ns(self) -> int:
        """Return the instant of the callback that is running, or of the last one."""
        return self._now_ns

    def call_at(
        self, t_ns: int, callback: Callable[[], object], rank: int = EVENT_RANK[Tick], place: int = 0
    ) -> _Entry:
        """Call `callback` at `t_ns`, or now if that has passed: by rank, then by place, then as they came."""
        self._sequence += 1
        entry = _Entry(max(t_ns, self._now_ns), rank, place, self._sequence, callback)
        heapq.heappush(self._heap, entry)
        return entry

    def run(self) -> None:
        """Call everything in order until nothing is left."""
        while self._heap:
            entry = heapq.heappop(self._heap)
            if not entry.cancelled:
                self._now_ns = entry.t_ns
                entry.callback()


class TimedExecutor:
    """Implements `gateway.runtime.driver.Executor`: a job ends `execution_ns(job)` after its start.

    One that is sent ahead starts when the one before it has ended.
    """

    def __init__(self, clock: VirtualClock, execution_ns: Callable[[Job], int]) -> None:
        self._clock = clock
        self._execution_ns = execution_ns
        self._post: Callable[[Event], object] | None = None
        self._ahead: Job | None = None

    def connect(self, post: Callable[[Event], object]) -> None:
        """Say where ends of jobs go."""
        self._post = post

    def start(self, job: Job) -> None:
        """Let `job` end later."""
        if job.ahead:
            self._ahead = job
        else:
            self._begin(job)

    def _begin(self, job: Job) -> None:
        end_ns = self._clock.now_ns() + self._execution_ns(job)
        self._clock.call_at(end_ns, lambda: self._end(job), EVENT_RANK[JobFinished])

    def _end(self, job: Job) -> None:
        if self._post is None:
            raise RuntimeError("the executor is not connected to a driver")
        if self._ahead is not None:
            following, self._ahead = self._ahead, None
            self._begin(following)
        self._post(JobFinished(job.id))


class TimedModels:
    """Implements `gateway.runtime.driver.ModelControl`: `begin` says how long an operation takes and how it ends."""

    def __init__(self, clock: VirtualClock, begin: Callable[[LoadModel | UnloadModel], tuple[int, Event]]) -> None:
        self._clock = clock
        self._begin = begin
        self._post: Callable[[Event], object] | None = None

    def connect(self, post: Callable[[Event], object]) -> None:
        """Say where ends of loads and unloads go."""
        self._post = post

    def load(self, action: LoadModel) -> None:
        """Let the load end later."""
        self._end_later(action)

    def unload(self, action: UnloadModel) -> None:
        """Let the unload end later."""
        self._end_later(action)

    def _end_later(self, action: LoadModel | UnloadModel) -> None:
        if self._post is None:
            raise RuntimeError("the models are not connected to a driver")
        post = self._post
        takes_ns, end = self._begin(action)
        self._clock.call_at(self._clock.now_ns() + takes_ns, lambda: post(end), EVENT_RANK[type(end)])


class WidenInTurn:
    """`gateway.runtime.driver.Driver.on_can_widen` for virtual time: at this instant, before its registrations."""

    def __init__(self, clock: VirtualClock, post: Callable[[Event], object]) -> None:
        self._clock = clock
        self._post = post
        self._waits = False

    def __call__(self) -> None:
        """Post one `WidenWindows` when its turn comes."""
        if not self._waits:
            self._waits = True
            self._clock.call_at(self._clock.now_ns(), self._widen, EVENT_RANK[WidenWindows], place=-1)

    def _widen(self) -> None:
        self._waits = False
        self._post(WidenWindows())


class NoSink:
    """Implements `gateway.runtime.driver.Sink` where nobody waits for results."""

    def carry_out(self, action: Action, now_ns: int) -> None:
        """Do nothing."""
