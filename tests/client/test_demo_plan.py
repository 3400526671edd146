"""Which cameras the demo takes on machines of different speed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from gateway.core.actions import Admitted
from gateway.core.engine import Engine
from gateway.core.events import RegisterStream
from gateway.core.profile import Profile, ProfileEntry
from gateway.demo.measure import planned_ms
from gateway.demo.plan import (
    BATCHES,
    BIKES_SHAPES,
    BUNNY_SHAPES,
    CARPHONE_SHAPE,
    MODEL,
    PACES,
    TARGET_UTILIZATION,
    cameras,
    carried,
    chosen,
    fifth_cameras,
    to_measure,
    utilization,
)


def decide(ms_of_shape, growth=1.8):
    """Measure until nothing is asked for; return the times and the rounds. Two frames take `growth` times one."""
    times, rounds = {}, []
    while shapes := to_measure(times):
        assert not set(shapes) & set(times)
        rounds.append(shapes)
        times |= {shape: (ms := ms_of_shape(shape), growth * ms) for shape in shapes}
    return times, rounds


def per_pixel(us):
    return lambda shape: shape[0] * shape[1] * us / 1e3


def test_a_quick_machine_gets_the_largest_pictures_in_two_rounds():
    times, rounds = decide(per_pixel(0.25))
    assert rounds == [[CARPHONE_SHAPE], [BIKES_SHAPES[0], BUNNY_SHAPES[0]]]
    assert [plan.fps for plan in chosen(times)] == [10.0, 6.0, 3.0, 3.0]
    assert [plan.shape for plan in chosen(times)] == [CARPHONE_SHAPE] * 2 + [BIKES_SHAPES[0], BUNNY_SHAPES[0]]


def test_a_slower_machine_gets_smaller_ones_that_keep_it_half_busy():
    times, rounds = decide(per_pixel(0.8))
    assert len(rounds) == 2
    assert CARPHONE_SHAPE in times
    plans = chosen(times)
    assert plans[2].shape in BIKES_SHAPES[1:]
    assert utilization(plans, times) <= TARGET_UTILIZATION
    assert [plan.fps for plan in plans] == [10.0, 6.0, 3.0, 3.0]


def test_pictures_are_smaller_where_a_long_job_would_be_in_the_way_of_a_short_deadline():
    """Half of the device is free, but the carphones' windows leave no room for a job of that length."""
    times, _ = decide(lambda shape: 15.0 if shape == CARPHONE_SHAPE else shape[0] * shape[1] / 1_000)
    plans = chosen(times)
    large = [plan.shape for plan in cameras()]
    assert [plan.shape for plan in plans] != large
    guessed = {**times, BIKES_SHAPES[0]: (98.0, 150.0), BUNNY_SHAPES[0]: (130.0, 200.0)}
    assert not carried(cameras(), guessed)
    assert carried(plans, times)


def test_when_larger_pictures_cost_more_than_their_pixels_smaller_ones_are_tried():
    def steep(shape):
        return 6.0 if shape == CARPHONE_SHAPE else (shape[0] * shape[1] / 12_000) ** 2

    times, rounds = decide(steep)
    assert len(rounds) == 3
    assert utilization(chosen(times), times) <= TARGET_UTILIZATION
    assert chosen(times)[2].shape != BIKES_SHAPES[0]


def test_a_slow_machine_gets_the_smallest_pictures_of_slower_cameras():
    times, _ = decide(per_pixel(2))
    plans = chosen(times)
    assert [plan.shape for plan in plans[2:]] == [BIKES_SHAPES[-1], BUNNY_SHAPES[-1]]
    assert carried(plans, times)
    assert plans[0].fps < 10
    assert all(plan.deadline_ms * plan.fps == 2_000 or plan.fps < 10 for plan in plans)


def test_a_machine_that_carries_nothing_is_asked_for_as_little_as_possible():
    times, _ = decide(per_pixel(100))
    plans = chosen(times)
    assert [plan.shape for plan in plans[2:]] == [BIKES_SHAPES[-1], BUNNY_SHAPES[-1]]
    assert not carried(plans, times)
    assert plans[0].fps == 10 * PACES[-1]


def test_deadlines_are_at_most_two_periods_and_two_cameras_share_a_category():
    plans = cameras()
    assert all(plan.deadline_ms <= 2e3 / plan.fps for plan in plans)
    assert [plan.fps for plan in plans if plan.clip == "carphone"] == [10.0, 6.0]
    assert len({plan.frame_shape for plan in plans}) == 3


@pytest.mark.parametrize("us", [0.005, 0.25, 0.8, 1.5])
def test_each_fifth_camera_is_a_sensible_one(us):
    times, _ = decide(per_pixel(us))
    plans = chosen(times)
    for fifth in fifth_cameras(plans, times):
        assert fifth.fps * times[fifth.shape][0] / 1e3 < 1
        assert fifth.deadline_ms <= 2e3 / fifth.fps + 0.1
        assert fifth.name not in {plan.name for plan in plans}


def test_a_batch_that_does_not_pay_is_not_planned_with():
    shape = (*CARPHONE_SHAPE, 3)

    def profile(pair_ms):
        rows = zip(BATCHES, (10.0, pair_ms), strict=True)
        return Profile(entries=tuple(ProfileEntry(MODEL, "1", shape, "UINT8", n, 100, ms, ms, ms) for n, ms in rows))

    assert planned_ms(profile(15.0), CARPHONE_SHAPE) == [10.0, 15.0]
    assert planned_ms(profile(31.0), CARPHONE_SHAPE) == [10.0]
    assert carried(cameras(), {plan.shape: (10.0,) for plan in cameras()})


@pytest.mark.parametrize("seed", range(20))
def test_the_engine_admits_the_four_and_refuses_a_fifth_that_fits_alone_on_any_machine(seed):
    random = Random(seed)
    us = 10 ** random.uniform(-2.5, 0.3)  # a GPU that needs 80 us for the carphone to a core that needs 50 ms
    growth = random.choice([1.0, random.uniform(1.0, 2.0)])

    def milliseconds(shape):
        return shape[0] * shape[1] * us / 1e3 * random.uniform(0.8, 1.5)

    times, _ = decide(milliseconds, growth)
    entries = [
        ProfileEntry(MODEL, "1", (*shape, 3), "UINT8", batch, 120, bound, bound, bound)
        for shape, row in times.items()
        for batch, bound in zip(BATCHES, row, strict=True)
    ]
    engine = Engine(Profile(entries=tuple(entries)))
    plans = chosen(times)
    fifths = fifth_cameras(plans, times)
    alone = [plan for plan in fifths if engine.check(plan.contract("1"), 0).admitted]
    assert alone == fifths, "what is offered fits an empty device"
    for number, plan in enumerate(plans):
        start_ns = round((1000 + plan.phase_ms) * 1e6)
        spec = replace(plan.contract("1"), start_in_ns=start_ns)
        actions = engine.handle(RegisterStream(str(number), spec), number * 3_000_000)
        assert [type(action) for action in actions] == [Admitted]
    verdicts = [engine.check(plan.contract("1"), 20_000_000) for plan in alone]
    assert all(not verdict.admitted and verdict.first_miss is not None for verdict in verdicts)
    assert {verdict.test for verdict in verdicts} == {"sporadic"}
