"""Pseudo jobs against the windows of the real batcher, by example (times in ms)."""

import numpy as np

from gateway.core.admission import with_candidate
from gateway.core.events import FrameCancelled, FramesArrived
from gateway.core.pseudo_jobs import generate, horizon
from tests.core.factories import MS, Drive, make_profile, make_spec


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
    assert jobs.complete
    assert jobs.frames == 5


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


def test_the_horizon_is_that_of_the_settings_or_of_the_slowest_stream():
    gate = Drive(make_profile(m=[1]), horizon_ns=500 * MS)
    assert horizon(planned(gate, make_spec(10, 40))) == (500 * MS, False)
    assert horizon(planned(gate, make_spec(10, 400, start_in=300))) == (700 * MS, False)
    assert horizon(planned(gate, make_spec(10, 40, frames=7, start_in=3))) == (63 * MS + 1, True)


def test_only_whole_windows_are_kept_when_the_horizon_cuts():
    gate = Drive(make_profile(m=[1] * 8), horizon_ns=110 * MS)
    jobs = generate(planned(gate, make_spec(10, 60)))
    assert table(jobs) == [(30, 60, 3), (60, 90, 3), (90, 120, 3)]
    assert (jobs.complete, jobs.frames) == (False, 9)
