"""Schedules that repeat, by example (times in ms)."""

from dataclasses import replace

import pytest

from gateway.core.admission import evaluate, plan, with_candidate
from gateway.core.config import EngineConfig
from gateway.core.hyperperiod import follow, hyperperiod_ns, settled_ns
from gateway.core.verdict import Reason
from tests.core.factories import MS, make_profile, make_spec
from tests.core.states import make_state

EXACT = EngineConfig(admission_test="exact")


def test_it_is_the_common_multiple_of_periods_and_windows():
    profile = make_profile(m=[1], n=[1])
    state = make_state(profile, make_spec(12, 20), make_spec(8, 60, model="n"), make_spec(7, 60, model="n", frames=9))
    # 12, 8, 10 and 30; the finite stream has no part in it.
    assert hyperperiod_ns(state) == 120 * MS


def test_it_settles_when_finite_streams_have_ended_and_others_have_begun():
    profile = make_profile(m=[1], n=[1])
    unbounded = make_spec(10, 20, start_in=35, jitter_ns=2 * MS)
    state = make_state(profile, unbounded, make_spec(10, 60, model="n", frames=4, start_in=5))
    # 35 + 2; 5 + 3 x 10; and the widest window.
    assert settled_ns(state) == 67 * MS
    assert settled_ns(make_state(profile, unbounded, make_spec(10, 60, model="n", frames=9, start_in=5))) == 115 * MS


def test_a_table_of_one_repeating_row():
    found = plan(make_state(make_profile(m=[3]), config=EXACT), make_spec(10, 10, start_in=2))
    verdict, slots = found.verdict, found.slots
    assert (verdict.admitted, verdict.test, verdict.worst_latency_ns) == (True, "hyperperiod", 6 * MS)
    assert slots.repeat_ns == 10 * MS
    again = slots.start[slots.repeat_from :]
    # Arrivals 2, 12, ...; joints 5, 15, ...
    assert len(again) == 1
    assert again[0] % (10 * MS) == 5 * MS
    assert (slots.latest - slots.start == 4 * MS).all()


def test_a_device_that_is_never_idle_has_no_slack():
    # 5 of every 10, and 10 of every 20: exactly 1.
    state = make_state(make_profile(m=[5], n=[10]), make_spec(10, 40), config=EXACT)
    found = plan(state, make_spec(20, 80, model="n"))
    slots = found.slots
    assert found.verdict.admitted
    assert slots.repeat_ns == 40 * MS
    assert int(slots.execution[slots.repeat_from :].sum()) == 40 * MS
    assert (slots.latest[slots.repeat_from :] == slots.start[slots.repeat_from :]).all()
    assert (slots.latest[:2] - slots.start[:2] == 10 * MS).all(), "the first jobs start on an idle device"


def test_exact_use_above_one_is_refused():
    # Phase 1 sees a mean of two frames in W = 11; there are one and three, 9 and 14 long.
    specs = [make_spec(22, 22, start_in=start) for start in (1, 12, 13, 14)]
    state = make_state(make_profile(m=[9, 9, 14]), *specs[:-1], config=EXACT)
    verdict = evaluate(state, specs[-1])
    assert (verdict.admitted, verdict.phase) == (False, 2)
    assert verdict.utilization < 1
    assert follow(with_candidate(state, specs[-1], "")).utilization == pytest.approx(23 / 22)


def test_a_deadline_beyond_the_first_hyperperiods_does_not_hide_too_much_work():
    # 11 of every 10, due after 10 s: no miss in sight. Phase 1 counts on batches of two, which never form.
    specs = [make_spec(40, 10_000, start_in=start) for start in (1, 11, 21, 31)]
    state = make_state(make_profile(m=[11, 12]), *specs[:-1], config=EXACT)
    narrow = replace(state.windows[0], window_ns=10 * MS, narrowest_ns=10 * MS, joint_ns=10 * MS)
    verdict = evaluate(replace(state, windows=(narrow,)), specs[-1])
    assert (verdict.test, verdict.phase, verdict.reason) == ("hyperperiod", 2, Reason.UTILIZATION)
    assert verdict.utilization == pytest.approx(1.1)
    assert verdict.first_miss is None


@pytest.mark.parametrize("start_in", [0, 10_000_000])
def test_what_cannot_be_followed_is_refused(start_in):
    config = EngineConfig(admission_test="exact", max_horizon_frames=300)
    verdict = evaluate(make_state(make_profile(m=[1]), config=config), make_spec(9.973, 20, start_in=start_in))
    assert (verdict.admitted, verdict.reason) == (False, Reason.BEYOND_HORIZON)


def test_finite_streams_come_before_the_repetition():
    state = make_state(make_profile(m=[3], n=[2]), make_spec(10, 10), config=EXACT)
    slots = plan(state, make_spec(10, 40, model="n", frames=3)).slots
    assert slots.window.tolist().count(1) == 3
    assert (slots.window[slots.repeat_from :] == 0).all()
