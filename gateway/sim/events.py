"""What the cameras of a trace do, as events in the order in which a driver handles them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

from gateway.core.events import EVENT_RANK, CloseStream, Event, FramesArrived, HoldModel, RegisterStream
from gateway.sim.cameras import PUNCTUAL, Behaviour
from gateway.sim.trace import TraceEntry, TraceError

_REGISTER = EVENT_RANK[RegisterStream]
_ARRIVE = EVENT_RANK[FramesArrived]
_CLOSE = EVENT_RANK[CloseStream]

#: ``(t_ns, rank, place in the trace, number of the group, frames of it that come)``
_Due = tuple[int, int, int, int, int]


class TraceEvents(Iterator[tuple[int, Event]]):
    """Registrations, arrivals and closes of a trace as ``(t_ns, event)``, lazily, one pending per stream.

    Order: time, then `EVENT_RANK`, then place in the trace. Completions and wake-ups are the driver's. A driver tells
    the iterator of every stream that was not admitted (`refuse`), since its camera then sends nothing.

    A camera whose last frames include missing ones closes its stream one period after its last group was due
    at the latest.

    Attributes:
        must_wait: Whether a stream that is about to register has to wait for its model. `HoldModel` comes then in place
            of its registration, which comes when the driver says so (`resume`); its frames are counted from there.

    Args:
        entries: The trace. In order of time, its ties are broken as an admission plan breaks them: by registration.
        duration_ns: When every stream still there is closed; nothing comes at or after it but the closes. None: the
            trace runs to its end, and every stream must be finite.
        behaviour: Late groups and missing frames.

    Raises:
        TraceError: An unbounded stream without a duration.
    """

    def __init__(
        self, entries: Iterable[TraceEntry], duration_ns: int | None = None, behaviour: Behaviour = PUNCTUAL
    ) -> None:
        self._duration_ns = duration_ns
        self._behaviour = behaviour
        self._punctual = behaviour == PUNCTUAL
        self._entries: list[TraceEntry] = []
        self._arrivals: list[FramesArrived] = []
        self._first_ns: list[int] = []
        self._place: dict[str, int] = {}
        self._refused: set[int] = set()
        self._short: set[int] = set()
        self._resumed: set[int] = set()
        self._heap: list[_Due] = []
        self.must_wait: Callable[[TraceEntry], bool] = _never
        for entry in entries:
            if duration_ns is None and entry.spec.frames is None:
                name = f" ({entry.spec.name})" if entry.spec.name else ""
                raise TraceError(f"{entry.stream_id}{name} is unbounded: say with --duration-ms when to stop")
            self.add(entry)

    def add(self, entry: TraceEntry) -> None:
        """Add a registration; its place is after all others. An unbounded stream without a duration never ends."""
        place = len(self._entries)
        self._entries.append(entry)
        self._arrivals.append(FramesArrived(entry.stream_id, entry.spec.burst))
        self._first_ns.append(entry.at_ns + entry.spec.start_in_ns)
        self._place[entry.stream_id] = place
        if self._duration_ns is None or entry.at_ns < self._duration_ns:
            heapq.heappush(self._heap, (entry.at_ns, _REGISTER, place, 0, 0))

    def refuse(self, stream_id: str) -> None:
        """Let a stream send nothing more."""
        self._refused.add(self._place[stream_id])

    def resume(self, stream_id: str, now_ns: int) -> None:
        """Let a stream that has waited for its model register now, unless the time is over."""
        if self._duration_ns is not None and now_ns >= self._duration_ns:
            return
        place = self._place[stream_id]
        self._first_ns[place] = now_ns + self._entries[place].spec.start_in_ns
        self._resumed.add(place)
        heapq.heappush(self._heap, (now_ns, _REGISTER, place, 0, 0))

    def next_key(self) -> tuple[int, int] | None:
        """Return ``(t_ns, rank)`` of the next event without taking it; None at the end."""
        heap = self._heap
        while heap and heap[0][1] != _REGISTER and heap[0][2] in self._refused:
            heapq.heappop(heap)
        return heap[0][:2] if heap else None

    def __next__(self) -> tuple[int, Event]:
        if self.next_key() is None:
            raise StopIteration
        return self.take()

    def take(self) -> tuple[int, Event]:
        """Return the event that `next_key` has just told of, and go on to the next."""
        t_ns, rank, place, group, count = self._heap[0]
        if rank == _ARRIVE:
            self._follow(place, group + 1, t_ns)
            event = self._arrivals[place]
            return t_ns, event if count == event.count else FramesArrived(event.stream_id, count)
        entry = self._entries[place]
        if rank == _REGISTER:
            if place not in self._resumed and self.must_wait(entry):
                heapq.heappop(self._heap)
                return t_ns, HoldModel(entry.spec.model, entry.stream_id)
            self._follow(place, 0, t_ns)
            return t_ns, RegisterStream(entry.stream_id, entry.spec)
        heapq.heappop(self._heap)
        return t_ns, CloseStream(entry.stream_id)

    def _follow(self, place: int, group: int, since_ns: int) -> None:
        """Replace the head by the stream's next arrival, from `group` on; by its close; or by nothing."""
        spec = self._entries[place].spec
        due_ns = self._first_ns[place] + group * spec.period_ns
        count = spec.burst if spec.frames is None else _frames_of(spec.frames, spec.burst, group)
        if not self._punctual and count:
            group, due_ns, count = self._draw(place, group, since_ns)
        rank = _ARRIVE
        if not count:
            if place not in self._short:
                heapq.heappop(self._heap)
                return
            # The close, after the latest instant of the last group.
            due_ns, rank = self._first_ns[place] + group * spec.period_ns + spec.jitter_ns, _CLOSE
        if self._duration_ns is not None and due_ns >= self._duration_ns:
            due_ns, rank = self._duration_ns, _CLOSE
        heapq.heapreplace(self._heap, (due_ns, rank, place, group, count))

    def _draw(self, place: int, group: int, since_ns: int) -> tuple[int, int, int]:
        """Return the first group from `group` on of which a frame comes, when, and how many; 0 if there is none."""
        spec, behaviour, duration_ns = self._entries[place].spec, self._behaviour, self._duration_ns
        due_ns = self._first_ns[place] + group * spec.period_ns
        while planned := _frames_of(spec.frames, spec.burst, group):
            count = behaviour.sent(place, group, planned)
            if count < planned:
                self._short.add(place)
            if count or (duration_ns is not None and due_ns >= duration_ns):
                return group, max(since_ns, due_ns + behaviour.delay_ns(spec, place, group)), count
            group += 1
            due_ns += spec.period_ns
        return group, due_ns, 0


def _never(_entry: TraceEntry) -> bool:
    return False


def _frames_of(frames: int | None, burst: int, group: int) -> int:
    """Return how many frames belong to a group of a stream."""
    return burst if frames is None else max(0, min(burst, frames - group * burst))


def trace_events(
    entries: Iterable[TraceEntry], duration_ns: int | None = None, behaviour: Behaviour = PUNCTUAL
) -> TraceEvents:
    """Return the events of a trace; see `TraceEvents`."""
    return TraceEvents(entries, duration_ns, behaviour)
