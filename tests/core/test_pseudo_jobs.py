"""Pseudo jobs against the windows of the real batcher, by example (times in ms)."""

from dataclasses import replace

import numpy as np
import pytest

from gateway.core.admission import with_candidate
from gateway.core.config import EngineConfig
from gateway.core.events import FrameCancelled, FramesArrived
from gateway.core.pseudo_jobs import generate
from tests.core.factories import MS, Drive, make_profile, make_spec
from tests.core.states import make_state


def planned(gate, spec, t=0):
    return with_candidate(gate.engine.admission_state(round(t * MS)), spec, "candidate")


def table(jobs):
    """Rows of (release, deadline, frames) in ms, by release."""
    rows = zip(jobs.release.tolist(), jobs.deadline.tolist(), jobs.size.tolist(), strict=True)
    return sorted((release / MS, deadline / MS, size) for release, deadline, size in rows)


def test_arrivals_fall_into_half_open_windows():
    gate = Drive(make_profile(m=[1] * 8))
    jobs = generate(planned(gate, make_spec(10, 40, frames=5)))
    # Windows of 20: frames at 0 and 10; 20 and 30; 40.
    assert table(jobs) == [(20, 40, 2), (40, 60, 2), (60, 80, 1)]
    assert jobs.frames == 5
    assert jobs.horizon_ns == 60 * MS


def test_windows_without_frames_make_no_job():
    gate = Drive(make_profile(m=[1]))
    assert table(generate(planned(gate, make_spec(100, 20, frames=2)))) == [(10, 20, 1), (110, 120, 1)]


def test_an_overfull_window_is_split_and_shares_its_deadline():
    gate = Drive(make_profile(m=[1, 1]))
    gate.register(0, a=make_spec(1000, 100, frames=1, start_in=1))
    jobs = generate(planned(gate, make_spec(10, 60, frames=4, start_in=2)))
    # One window [0, 30): frames at 1, 2, 12, 22; then 32. The earliest deadline is that of the frame at 2.
    assert table(jobs) == [(30, 62, 2), (30, 62, 2), (60, 92, 1)]


def test_waiting_batches_are_filled_up_first():
    gate = Drive(make_profile(m=[1, 1, 1]), early_dispatch=False)
    gate.register(0, a=make_spec(1000, 100, frames=9))
    gate.at(1, FramesArrived("a", 4))
    gate.at(2, FrameCancelled("a", 0))
    # Batches of 2 (a hole) and 1; the last one takes two of the candidate's three frames before the joint 50.
    jobs = generate(planned(gate, make_spec(10, 100, frames=3, start_in=5), t=3))
    sizes = sorted(size for release, _, size in table(jobs) if release == 47)
    assert sizes == [1, 2, 3]
    mine = jobs.frame_stream == 1
    first_two, last = np.flatnonzero(mine)[:2], np.flatnonzero(mine)[2]
    assert len(set(jobs.frame_job[first_two].tolist())) == 1
    assert jobs.size[jobs.frame_job[last]] == 1


def test_a_full_waiting_batch_takes_no_more():
    gate = Drive(make_profile(m=[1, 1]), early_dispatch=False)
    gate.register(0, a=make_spec(1000, 100, frames=9))
    gate.at(1, FramesArrived("a", 2))
    jobs = generate(planned(gate, make_spec(1000, 100, frames=1, start_in=5), t=3))
    assert [size for release, _, size in table(jobs) if release == 47] == [1, 2]


def test_rows_stand_in_the_order_in_which_batches_are_opened():
    gate = Drive(make_profile(m=[1], n=[1], o=[1]), early_dispatch=False)
    gate.register(0, a=make_spec(1000, 100, model="n", frames=2))
    gate.frames(1, "a")
    gate.register(1, b=make_spec(1000, 100, model="o", frames=1, start_in=9))
    state = planned(gate, make_spec(1000, 100, frames=1, start_in=8), t=2)
    jobs = generate(state)
    # The open batch of a; then b and the candidate at 10, b having registered first.
    arrivals = {
        job: arrival / MS for job, arrival in zip(jobs.frame_job.tolist(), jobs.frame_arrival.tolist(), strict=True)
    }
    assert [arrivals[row] for row in range(3)] == [-1, 8, 8]
    assert [state.windows[w].category.model for w in jobs.window[:3].tolist()] == ["n", "o", "m"]


def test_only_windows_that_end_within_a_limit_are_kept():
    state = make_state(make_profile(m=[1] * 8), make_spec(10, 60))
    jobs = generate(state, 110 * MS)
    assert table(jobs) == [(30, 60, 3), (60, 90, 3), (90, 120, 3)]
    assert (jobs.horizon_ns, jobs.frames) == (110 * MS, 9)
    assert len(generate(state, 29 * MS)) == 0


def test_an_unbounded_stream_needs_a_limit():
    with pytest.raises(ValueError, match="has no end"):
        generate(make_state(make_profile(m=[1]), make_spec(10, 60)))


def test_a_group_comes_together():
    jobs = generate(make_state(make_profile(m=[1, 1]), make_spec(100, 60, frames=7, burst=3)))
    # Groups of 3, 3 and 1 at 0, 100, 200; W = 30.
    assert table(jobs) == [(30, 60, 1), (30, 60, 2), (120, 160, 1), (120, 160, 2), (210, 260, 1)]


def test_what_is_left_of_a_group_comes_first():
    state = make_state(make_profile(m=[1] * 4), make_spec(100, 60, frames=7, burst=3))
    phase = replace(state.streams[0], group_left=1, overdue=2, next_ns=40 * MS, remaining=6)
    # Two that should have come come now, one at 40, three at 140.
    assert table(generate(replace(state, streams=(phase,)))) == [(30, 60, 2), (60, 100, 1), (150, 200, 3)]
    assert table(generate(replace(state, streams=(replace(phase, remaining=2),)))) == [(30, 60, 2)]
    assert table(generate(replace(state, streams=(replace(phase, remaining=4),))))[-1] == (150, 200, 1)


def test_jitter_reserves_every_window_that_it_touches():
    state = make_state(make_profile(m=[1] * 4), make_spec(100, 60, frames=1, jitter_ns=50 * MS, start_in=20))
    # [20, 70] touches [0, 30), [30, 60) and [60, 90): due 60 after it can come there first.
    jobs = generate(state)
    assert table(jobs) == [(30, 80, 1), (60, 90, 1), (90, 120, 1)]
    assert jobs.frames == 3
    assert (jobs.frame_arrival // MS).tolist() == [20, 30, 60]


@pytest.mark.parametrize(("jitter_ns", "windows"), [(9 * MS, 1), (10 * MS - 1, 1), (10 * MS, 2)])
def test_the_interval_is_closed_and_windows_are_half_open(jitter_ns, windows):
    state = make_state(make_profile(m=[1]), make_spec(100, 60, frames=1, jitter_ns=jitter_ns, start_in=20))
    assert generate(state).frames == windows


def test_an_interval_that_has_begun_counts_from_now():
    state = make_state(make_profile(m=[1]), make_spec(100, 60, frames=1, jitter_ns=40 * MS))
    phase = replace(state.streams[0], next_ns=-30 * MS)
    assert table(generate(replace(state, streams=(phase,)))) == [(30, 60, 1)]


def test_a_group_with_jitter_is_reserved_as_one():
    state = make_state(make_profile(m=[1] * 4), make_spec(50, 60, frames=4, burst=2, jitter_ns=15 * MS, start_in=20))
    # [20, 35] and [70, 85], two frames each.
    assert table(generate(state)) == [(30, 80, 2), (60, 90, 2), (90, 130, 2)]


@pytest.mark.parametrize("spec", [make_spec(100, 60, frames=51), make_spec(100, 60, frames=13, jitter_ns=100 * MS)])
def test_too_many_reservations_are_not_followed(spec):
    profile, config = make_profile(m=[1]), EngineConfig(max_horizon_frames=50)
    assert generate(make_state(profile, spec, config=config)) is None
    assert generate(make_state(profile, replace(spec, frames=10), config=config)) is not None


def test_enormous_figures_are_refused_without_being_tried():
    day = 86_400_000
    config = EngineConfig(max_horizon_frames=10**9)
    spec = make_spec(day, day, frames=10**6)
    assert generate(make_state(make_profile(m=[1]), spec, config=config)) is None
    assert generate(make_state(make_profile(m=[1]), make_spec(1, 2, frames=5, jitter_ns=day * MS))) is None
