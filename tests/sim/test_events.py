"""Events of a trace in the order in which a driver handles them (times in ms)."""

import pytest

from gateway.core.events import CloseStream, FramesArrived, RegisterStream
from gateway.sim.events import TraceEvents, trace_events
from gateway.sim.trace import TraceError
from tests.core.factories import MS, make_spec, make_trace


def listed(source):
    short = {RegisterStream: "register", FramesArrived: "frame", CloseStream: "close"}
    return [(t_ns / MS, short[type(event)], event.stream_id) for t_ns, event in source]


def test_frames_come_after_the_start_and_every_period():
    trace = make_trace([(5, make_spec(10, 50, start_in=2, frames=3))])
    assert listed(trace_events(trace)) == [
        (5, "register", "stream-1"),
        (7, "frame", "stream-1"),
        (17, "frame", "stream-1"),
        (27, "frame", "stream-1"),
    ]


def test_one_instant_goes_by_rank_then_by_place_in_the_trace():
    trace = make_trace([(10, make_spec(10, 50, frames=2)), (0, make_spec(10, 50, frames=3)), (10, make_spec(frames=1))])
    assert listed(trace_events(trace)) == [
        (0, "register", "stream-2"),
        (0, "frame", "stream-2"),
        (10, "register", "stream-1"),
        (10, "register", "stream-3"),
        (10, "frame", "stream-1"),
        (10, "frame", "stream-2"),
        (10, "frame", "stream-3"),
        (20, "frame", "stream-1"),
        (20, "frame", "stream-2"),
    ]


def test_every_stream_still_there_is_closed_at_the_end():
    trace = make_trace([(0, make_spec(10, 50)), (0, make_spec(10, 50, frames=2)), (25, make_spec(10, 50))])
    assert listed(trace_events(trace, 20 * MS)) == [
        (0, "register", "stream-1"),
        (0, "register", "stream-2"),
        (0, "frame", "stream-1"),
        (0, "frame", "stream-2"),
        (10, "frame", "stream-1"),
        (10, "frame", "stream-2"),
        (20, "close", "stream-1"),
    ]


def test_a_refused_stream_sends_nothing():
    trace = make_trace([(0, make_spec(10, 50, frames=2)), (0, make_spec(10, 50, frames=1))])
    source = TraceEvents(trace)
    taken = [next(source)]
    source.refuse("stream-1")
    assert listed([*taken, *source]) == [
        (0, "register", "stream-1"),
        (0, "register", "stream-2"),
        (0, "frame", "stream-2"),
    ]


def test_the_next_key_is_seen_without_being_taken():
    source = TraceEvents(make_trace([(3, make_spec(10, 50, frames=1))]))
    assert source.next_key() == source.next_key() == (3 * MS, 3)
    assert [source.next_key()[0] for _ in source if source.next_key()] == [3 * MS]
    assert source.next_key() is None


def test_an_unbounded_stream_needs_a_duration():
    with pytest.raises(TraceError, match="stream-2 is unbounded"):
        TraceEvents(make_trace([(0, make_spec(frames=1)), (0, make_spec())]))
