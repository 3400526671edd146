"""Events of a trace in the order in which a driver handles them (times in ms)."""

import pytest

from gateway.core.events import CloseStream, FramesArrived, RegisterStream
from gateway.sim.cameras import Behaviour
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


def arrivals(source):
    return [(t_ns / MS, event.count) for t_ns, event in source if isinstance(event, FramesArrived)]


def test_a_group_comes_once_in_a_period_and_the_last_one_may_be_smaller():
    trace = make_trace([(5, make_spec(10, 50, start_in=2, frames=7, burst=3))])
    assert arrivals(trace_events(trace)) == [(7, 3), (17, 3), (27, 1)]
    endless = make_trace([(0, make_spec(10, 50, burst=2))])
    assert arrivals(trace_events(endless, 25 * MS)) == [(0, 2), (10, 2), (20, 2)]


class TestBehaviour:
    def test_groups_are_late_within_their_jitter_and_in_order(self):
        spec = make_spec(10, 50, frames=2000, jitter_ns=25 * MS)
        times = [t for t, _ in arrivals(trace_events(make_trace([(0, spec)]), behaviour=Behaviour(jitter=True)))]
        late = [t - 10 * n for n, t in enumerate(times)]
        assert times == sorted(times)
        assert len(times) == 2000
        assert 0 <= min(late) < 1
        assert 24 < max(late) <= 25

    def test_without_jitter_declared_or_asked_for_nothing_is_late(self):
        behaviour = Behaviour(jitter=True)
        assert behaviour.delay_ns(make_spec(), 0, 3) == 0
        assert Behaviour().delay_ns(make_spec(jitter_ns=MS), 0, 3) == 0
        draws = {behaviour.delay_ns(make_spec(jitter_ns=1), 0, n) for n in range(50)}
        assert draws == {0, 1}

    def test_frames_are_missing_and_the_stream_is_closed_when_all_were_due(self):
        trace = make_trace([(0, make_spec(10, 50, frames=4000, burst=4))])
        found = list(trace_events(trace, behaviour=Behaviour(drop=0.25, seed=7)))
        sent = sum(event.count for _, event in found if isinstance(event, FramesArrived))
        assert sent == pytest.approx(3000, rel=0.05)
        assert found[-1] == (1000 * 10 * MS, CloseStream("stream-1"))
        assert len({t for t, _ in found}) < 1001, "some groups are missing altogether"

    def test_a_stream_that_misses_nothing_is_not_closed(self):
        trace = make_trace([(0, make_spec(10, 50, frames=3))])
        assert listed(trace_events(trace, behaviour=Behaviour(drop=0.01)))[-1] == (20, "frame", "stream-1")

    def test_all_that_remains_may_be_missing(self):
        trace = make_trace([(0, make_spec(10, 50, frames=5)), (0, make_spec(10, 50))])
        found = listed(trace_events(trace, 100 * MS, Behaviour(drop=0.999, seed=3)))
        assert [line[1:] for line in found if line[1] != "register"] == [("close", "stream-1"), ("close", "stream-2")]
        assert [line[0] for line in found] == [0, 0, 50, 100]

    def test_draws_depend_on_the_camera_and_the_group_alone(self):
        behaviour = Behaviour(jitter=True, drop=0.5, seed=3)
        one = make_trace([(0, make_spec(10, 50, frames=50, jitter_ns=MS))])
        two = make_trace([(0, make_spec(10, 50, frames=50, jitter_ns=MS)), (3, make_spec(7, 50, frames=9))])
        mine = [due for due in trace_events(two, behaviour=behaviour) if due[1].stream_id == "stream-1"]
        assert mine == list(trace_events(one, behaviour=behaviour))
        assert mine != list(trace_events(one, behaviour=Behaviour(jitter=True, drop=0.5, seed=4)))

    @pytest.mark.parametrize("drop", [-0.1, 1.0, float("nan")])
    def test_a_share_out_of_range_is_an_error(self, drop):
        with pytest.raises(ValueError, match="drop must lie in"):
            Behaviour(drop=drop)


def test_registrations_can_be_added_on_the_way():
    source = TraceEvents(())
    first, second = make_trace([(0, make_spec(10, 50, frames=2)), (0, make_spec(10, 50, frames=1))])
    source.add(first)
    taken = [next(source)]
    source.add(second)
    assert listed([*taken, *source]) == [
        (0, "register", "stream-1"),
        (0, "register", "stream-2"),
        (0, "frame", "stream-1"),
        (0, "frame", "stream-2"),
        (10, "frame", "stream-1"),
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
