"""Which cameras the demo takes on machines of different speed."""

from __future__ import annotations

from random import Random

import pytest

from gateway.core.engine import Engine
from gateway.core.events import Admitted, RegisterStream
from gateway.core.profile import Profile, ProfileEntry
from gateway.core.types import StreamSpec
from gateway.demo.plan import (
    BIKES_SHAPES,
    BUNNY_SHAPES,
    CARPHONE_SHAPE,
    MODEL,
    TARGET_UTILIZATION,
    cameras,
    chosen,
    fifth_cameras,
    to_measure,
    utilization,
)


def decide(ms_of_shape):
    """Measure what is asked for with `ms_of_shape` until nothing is; return the times and the rounds."""
    times, rounds = {}, []
    while shapes := to_measure(times):
        assert not set(shapes) & set(times)
        rounds.append(shapes)
        times |= {shape: ms_of_shape(shape) for shape in shapes}
    return times, rounds


def per_pixel(us):
    return lambda shape: shape[0] * shape[1] * us / 1e3


def test_a_quick_machine_gets_the_largest_pictures_in_two_rounds():
    times, rounds = decide(per_pixel(0.25))
    assert rounds == [[CARPHONE_SHAPE], [BIKES_SHAPES[0], BUNNY_SHAPES[0]]]
    assert [plan.shape for plan in chosen(times)] == [CARPHONE_SHAPE] * 2 + [BIKES_SHAPES[0], BUNNY_SHAPES[0]]


def test_a_slower_machine_gets_smaller_ones_that_keep_it_half_busy():
    times, rounds = decide(per_pixel(0.8))
    assert len(rounds) == 2
    assert CARPHONE_SHAPE in times
    plans = chosen(times)
    assert plans[2].shape in BIKES_SHAPES[1:]
    assert utilization(plans, times) <= TARGET_UTILIZATION


def test_when_larger_pictures_cost_more_than_their_pixels_smaller_ones_are_tried():
    def steep(shape):
        return 6.0 if shape == CARPHONE_SHAPE else (shape[0] * shape[1] / 12_000) ** 2

    times, rounds = decide(steep)
    assert len(rounds) == 3
    assert utilization(chosen(times), times) <= TARGET_UTILIZATION
    assert chosen(times)[2].shape != BIKES_SHAPES[0]


def test_a_machine_that_carries_nothing_ends_at_the_smallest():
    times, _ = decide(per_pixel(10))
    assert [plan.shape for plan in chosen(times)[2:]] == [BIKES_SHAPES[-1], BUNNY_SHAPES[-1]]
    assert utilization(chosen(times), times) > TARGET_UTILIZATION


def test_deadlines_are_at_most_two_periods_and_two_cameras_share_a_category():
    plans = cameras()
    assert all(plan.deadline_ms <= 2e3 / plan.fps for plan in plans)
    assert [plan.fps for plan in plans if plan.clip == "carphone"] == [10.0, 6.0]
    assert len({plan.frame_shape for plan in plans}) == 3


@pytest.mark.parametrize("us", [0.25, 0.8, 1.5])
def test_each_fifth_camera_could_have_the_device_alone(us):
    times, _ = decide(per_pixel(us))
    plans = chosen(times)
    found = fifth_cameras(plans, times)
    for fifth in found:
        assert fifth.fps * times[fifth.shape] / 1e3 < 1
        assert fifth.deadline_ms <= 2e3 / fifth.fps + 0.1
        assert fifth.name not in {plan.name for plan in plans}
    # the first is what is left of the device, nearly
    assert 0.85 < utilization([*plans, found[0]], times) < 1
    # the last has no room for anything that runs when its frame comes
    assert times[found[-1].shape] < found[-1].deadline_ms / 2 < 1.2 * times[found[-1].shape]


def contract(plan, start_in_ms=0.0):
    return StreamSpec(
        MODEL,
        "1",
        plan.frame_shape,
        round(1e9 / plan.fps),
        round(plan.deadline_ms * 1e6),
        start_in_ns=round(start_in_ms * 1e6),
        name=plan.name,
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_engine_admits_the_four_and_refuses_a_fifth_that_fits_alone_on_any_machine(seed):
    random = Random(seed)
    us, growth = random.uniform(0.15, 1.0), {}

    def milliseconds(shape):
        growth[shape] = random.uniform(1.2, 2.0)
        return shape[0] * shape[1] * us / 1e3 * random.uniform(0.8, 1.5)

    times, _ = decide(milliseconds)
    entries = [
        ProfileEntry(MODEL, "1", (*shape, 3), "UINT8", batch, 120, bound, bound, bound)
        for shape, ms in times.items()
        for batch, bound in ((1, ms), (2, ms * growth[shape]))
    ]
    engine = Engine(Profile(entries=tuple(entries)))
    plans = chosen(times)
    alone = [plan for plan in fifth_cameras(plans, times) if engine.check(contract(plan), 0).admitted]
    for number, plan in enumerate(plans):
        actions = engine.handle(RegisterStream(str(number), contract(plan, 1000 + plan.phase_ms)), number * 3_000_000)
        assert [type(action) for action in actions] == [Admitted]
    verdicts = [engine.check(contract(plan), 20_000_000) for plan in alone]
    assert any(not verdict.admitted and verdict.first_miss is not None for verdict in verdicts)
