"""What the cameras of a trace do, as events in the order in which a driver handles them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from gateway.core.events import EVENT_RANK, CloseStream, Event, FramesArrived, RegisterStream
from gateway.sim.trace import TraceEntry, TraceError

_REGISTER = EVENT_RANK[RegisterStream]
_ARRIVE = EVENT_RANK[FramesArrived]
_CLOSE = EVENT_RANK[CloseStream]

#: ``(t_ns, rank, place in the trace, frames so far)``
_Due = tuple[int, int, int, int]


class TraceEvents(Iterator[tuple[int, Event]]):
    """Registrations, arrivals and closes of a trace as ``(t_ns, event)``, lazily, one pending per stream.

    Order: time, then `EVENT_RANK`, then place in the trace. Completions and wake-ups are the driver's. A driver tells
    the iterator of every stream that was not admitted (`refuse`), since its camera then sends nothing.

    Args:
        entries: The trace. In order of time, its ties are broken as an admission plan breaks them: by registration.
        duration_ns: When every stream still there is closed; nothing comes at or after it but the closes. None: the
            trace runs to its end, and every stream must be finite.

    Raises:
        TraceError: An unbounded stream without a duration.
    """

    def __init__(self, entries: Iterable[TraceEntry], duration_ns: int | None = None) -> None:
        self._entries = tuple(entries)
        self._duration_ns = duration_ns
        self._refused: set[int] = set()
        self._place = {entry.stream_id: place for place, entry in enumerate(self._entries)}
        self._arrivals: list[Event] = [FramesArrived(entry.stream_id) for entry in self._entries]
        if duration_ns is None:
            for entry in self._entries:
                if entry.spec.frames is None:
                    raise TraceError(f"{entry.stream_id} is unbounded: a duration is needed")
        self._heap: list[_Due] = [
            (entry.at_ns, _REGISTER, place, 0)
            for place, entry in enumerate(self._entries)
            if duration_ns is None or entry.at_ns < duration_ns
        ]
        heapq.heapify(self._heap)

    def refuse(self, stream_id: str) -> None:
        """Let a stream send nothing more."""
        self._refused.add(self._place[stream_id])

    def next_key(self) -> tuple[int, int] | None:
        """Return ``(t_ns, rank)`` of the next event without taking it; None at the end."""
        heap = self._heap
        while heap and heap[0][1] != _REGISTER and heap[0][2] in self._refused:
            heapq.heappop(heap)
        return heap[0][:2] if heap else None

    def __next__(self) -> tuple[int, Event]:
        if self.next_key() is None:
            raise StopIteration
        t_ns, rank, place, sent = self._heap[0]
        if rank == _ARRIVE:
            self._follow(t_ns + self._entries[place].spec.period_ns, place, sent + 1)
            return t_ns, self._arrivals[place]
        entry = self._entries[place]
        if rank == _REGISTER:
            self._follow(t_ns + entry.spec.start_in_ns, place, 0)
            return t_ns, RegisterStream(entry.stream_id, entry.spec)
        heapq.heappop(self._heap)
        return t_ns, CloseStream(entry.stream_id)

    def _follow(self, t_ns: int, place: int, sent: int) -> None:
        """Replace the head by the stream's next arrival, its close, or nothing."""
        frames = self._entries[place].spec.frames
        if sent == frames:
            heapq.heappop(self._heap)
        elif self._duration_ns is not None and t_ns >= self._duration_ns:
            heapq.heapreplace(self._heap, (self._duration_ns, _CLOSE, place, sent))
        else:
            heapq.heapreplace(self._heap, (t_ns, _ARRIVE, place, sent))


def trace_events(entries: Iterable[TraceEntry], duration_ns: int | None = None) -> TraceEvents:
    """Return the events of a trace; see `TraceEvents`."""
    return TraceEvents(entries, duration_ns)
