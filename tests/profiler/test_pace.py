"""How long the rest of a profile takes: reckoned from what is known, with a clock of the test's own."""

from dataclasses import replace

import pytest

from gateway.core.profile import ProfileEntry
from gateway.core.types import Category
from profiler.pace import Pace
from profiler.plan import Plan, Point
from profiler.show import left, progress

PLAN = Plan(("m",), ((8, 8),), (1, 2, 4), samples=90, point_limit_s=1000.0)


class Time:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def points(model: str = "m", *shapes: tuple[int, ...]) -> list[Point]:
    made = shapes or ((8, 8, 3),)
    return [Point(Category(model, "1", shape), batch, "x") for shape in made for batch in (1, 2, 4)]


def known(batch: int, p50_ms: float) -> ProfileEntry:
    return ProfileEntry("m", "1", (8, 8, 3), "UINT8", batch, 90, p50_ms, p50_ms, p50_ms)


def run(pace: Pace, time: Time, batch: int, seconds: float) -> None:
    pace.begin("m", (8, 8, 3), batch)
    time.now_s += seconds
    pace.end()


def test_nothing_is_said_before_anything_is_known() -> None:
    pace = Pace(PLAN, Time())
    assert (pace.fraction(), pace.total) == (0.0, 0)
    pace.expect(points(), [])
    assert pace.left_s() is None
    assert pace.fraction() == 0.0
    pace.begin("m", (8, 8, 3), 1)
    assert pace.left_s() is None


def test_larger_batches_and_frames_cost_more() -> None:
    time = Time()
    pace = Pace(PLAN, time)
    pace.expect(points("m", (8, 8, 3), (16, 16, 3)), [])
    run(pace, time, 1, 10.0)
    assert pace.left_s() == pytest.approx(10.0 * (2 + 4 + 4 * (1 + 2 + 4)))
    run(pace, time, 2, 15.0)
    assert pace.left_s() == pytest.approx(15.0 / 2 * (4 + 8 + 16) + 15.0 * 2), "from the measured one next to it"


def test_points_of_an_earlier_run_are_no_speed() -> None:
    """They are there at once, and the rest still takes as long as it takes."""
    time = Time()
    pace = Pace(PLAN, time)
    pace.expect(points(), [known(1, 50.0), known(2, 100.0)])
    assert (pace.done, pace.total) == (2, 3)
    assert pace.left_s() == pytest.approx(100 * 0.2)
    assert pace.fraction() == pytest.approx(15 / 35)
    time.now_s += 3600.0
    assert pace.left_s() == pytest.approx(20.0)


def test_it_moves_within_a_point_and_never_stands_at_nothing() -> None:
    time = Time()
    pace = Pace(replace(PLAN, batches=(4,)), time)
    pace.start_s = 2.0
    pace.expect(points()[2:], [])
    pace.begin("m", (8, 8, 3), 4)
    pace.warmed(80.0)
    seen = []
    for _ in range(6):
        seen.append((pace.left_s(), pace.fraction()))
        time.now_s += 2.0
    assert [pytest.approx(s) for s, _ in seen] == [10.0, 8.0, 6.0, 4.0, 2.0, 1.0]
    assert [f for _, f in seen] == sorted(f for _, f in seen)
    assert pace.number == 1
    pace.end()
    assert (pace.left_s(), pace.fraction(), pace.number, pace.done) == (0.0, 1.0, 0, 1)


def test_a_point_takes_no_longer_than_it_may() -> None:
    pace = Pace(replace(PLAN, point_limit_s=30.0), Time())
    pace.expect(points(), [known(1, 1000.0)])
    assert pace.left_s() == 60.0


def test_what_failed_tells_nothing() -> None:
    time = Time()
    pace = Pace(PLAN, time)
    pace.expect(points(), [])
    pace.begin("m", (8, 8, 3), 1)
    time.now_s += 0.01
    pace.end(measured=False)
    assert pace.left_s() is None


def test_swaps_take_their_time_too() -> None:
    plan = replace(PLAN, models=("m", "n"), server_pid=1, swaps=2)
    for loads, expected_s in ((False, 5.0), (True, 5.0 + 2 * 3 * 2.5)):
        time = Time()
        pace = Pace(replace(plan, loads=loads), time)
        pace.expect(points(), [known(1, 10.0), known(2, 20.0), known(4, 40.0)])
        assert pace.left_s() == pytest.approx(expected_s)
        pace.begin("m")
        time.now_s += 3.0
        assert pace.left_s() == pytest.approx(expected_s - 3.0)
        pace.end()
        assert pace.left_s() == 0.0


def test_without_a_terminal_each_point_is_a_line_with_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    time = Time()
    pace = Pace(PLAN, time)
    with progress(pace) as on_progress:
        on_progress("waiting", 0)
        pace.expect(points(), [known(1, 1000.0)])
        pace.begin("m", (8, 8, 3), 2)
        on_progress("m 8x8x3 batch 2", 0)
        on_progress("", 1)
    assert capsys.readouterr().err.splitlines() == ["waiting", "m 8x8x3 batch 2 (2 of 3, about 10 min left)"]


def test_times_are_said_in_words() -> None:
    said = [left(s) for s in (None, 0.0, 89.0, 90.0, 3000.0, 7200.0)]
    assert said[:3] == ["time left not known yet", "about 1 s left", "about 89 s left"]
    assert said[3:] == ["about 2 min left", "about 50 min left", "about 2.0 h left"]
