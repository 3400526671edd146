"""The schedule of a camera: exact, never drifting, never bursting."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.client.pacing import NS_PER_S, Schedule

MS = 1_000_000


def test_ticks_do_not_drift_when_the_period_is_no_whole_number():
    schedule = Schedule(start_ns=7, fps=3)
    assert schedule.at_ns(3_000_000) == 7 + 1_000_000 * NS_PER_S
    assert schedule.at_ns(1) == 7 + 333_333_333


def test_a_slightly_late_tick_is_sent_and_the_next_one_comes_on_time():
    schedule = Schedule(0, 10)
    schedule.use(schedule.upcoming(0))
    assert schedule.upcoming(124 * MS) == 1
    schedule.use(1)
    assert schedule.upcoming(124 * MS) == 2
    assert schedule.at_ns(2) == 200 * MS
    assert schedule.skipped == 0


def test_a_tick_that_is_too_late_is_skipped():
    schedule = Schedule(0, 10)
    schedule.use(0)
    assert schedule.upcoming(126 * MS) == 2
    schedule.use(2)
    assert schedule.skipped == 1


def test_a_long_stall_skips_instead_of_bursting():
    schedule = Schedule(0, 10)
    schedule.use(0)
    now = 5_010 * MS
    sent = []
    while (tick := schedule.upcoming(now)) and schedule.at_ns(tick) <= now:
        schedule.use(tick)
        sent.append(tick)
    assert sent == [50]
    assert schedule.skipped == 49


def test_a_tick_is_used_once():
    schedule = Schedule(0, 10)
    schedule.use(3)
    with pytest.raises(ValueError, match="past"):
        schedule.use(3)


@given(
    fps=st.floats(0.5, 1000),
    start=st.integers(0, 10**15),
    delays=st.lists(st.integers(0, 3 * NS_PER_S), min_size=1, max_size=40),
)
def test_two_frames_are_never_closer_than_three_quarters_of_a_period(fps, start, delays):
    schedule = Schedule(start, fps)
    now, sent = start, []
    for delay in delays:
        now += delay
        tick = schedule.upcoming(now)
        now = max(now, schedule.at_ns(tick))
        schedule.use(tick)
        sent.append(now)
        # never more than a quarter of a period late, and never early
        assert 0 <= now - schedule.at_ns(tick) <= NS_PER_S / fps / 4 + 1
    gaps = [b - a for a, b in itertools.pairwise(sent)]
    assert all(gap >= 0.75 * NS_PER_S / fps - 2 for gap in gaps)
    assert schedule.skipped + len(sent) == tick + 1
