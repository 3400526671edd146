"""The imitator's ties, and latest starts by example (times in ms)."""

from dataclasses import replace

import numpy as np
import pytest

from gateway.core.expected import ints
from gateway.core.imitator import Rows, imitate_rows, latest_starts, rows_of
from gateway.core.pseudo_jobs import generate
from gateway.core.types import Frame, Job
from tests.core.factories import MS, make_category, make_profile, make_spec
from tests.core.states import make_state


def run(*jobs, free=0, held=0):
    """Jobs as (release, deadline, execution)."""
    release, deadline, execution = (ints(list(column)) for column in zip(*jobs, strict=True))
    return imitate_rows(Rows(release, deadline, execution, held), free)


def test_edf_waits_for_no_later_job():
    # The first is alone at 0 and holds up the second, which is more urgent.
    found = run((0, 20, 5), (1, 8, 2), (1, 9, 1), (30, 40, 1))
    assert found.order.tolist() == [0, 1, 2, 3]
    assert found.finish.tolist() == [5, 7, 8, 31]
    assert found.missed is None


def test_a_job_released_at_the_instant_of_a_decision_is_part_of_it():
    assert run((0, 20, 5), (5, 30, 1), (5, 29, 1)).order.tolist() == [0, 2, 1]


def test_equal_deadlines_go_by_release_and_then_by_row():
    assert run((0, 9, 1), (0, 9, 1), (1, 9, 1), free=3).order.tolist() == [0, 1, 2]


def test_the_first_miss_ends_it():
    found = run((0, 9, 5), (0, 9, 5), (0, 99, 1))
    assert (found.order.tolist(), found.finish.tolist(), found.missed) == ([0, 1], [5, 10], 1)


def test_ending_at_the_deadline_is_in_time():
    assert run((0, 5, 5)).missed is None


def test_a_busy_device_and_no_jobs():
    assert run((0, 20, 5), free=7).finish.tolist() == [12]
    empty = imitate_rows(Rows(ints([]), ints([]), ints([]), 0), 3)
    assert (len(empty.order), empty.missed) == (0, None)


def test_a_held_job_is_taken_at_its_planned_start():
    # Its deadline is the earliest, but it is planned for 4.
    found = run((4, 20, 2), (0, 30, 1), (3, 40, 5), held=1)
    assert found.order.tolist() == [1, 2, 0]
    assert found.finish.tolist() == [1, 8, 10]


@pytest.mark.parametrize(("planned", "release"), [((), 0), ((-5 * MS,), 0), ((12 * MS,), 12 * MS)])
def test_planned_starts_that_have_passed_are_now(planned, release):
    state = make_state(make_profile(m=[10]), make_spec(frames=1))
    job = Job(0, make_category(), (Frame("r", 0, 0, 90 * MS, 0),), -3 * MS, 90 * MS, 10 * MS)
    state = replace(state, ready=(job,), planned_ns=planned)
    rows = rows_of(state, generate(state))
    assert (rows.release[0], rows.deadline[0], rows.execution[0], rows.held) == (release, 90 * MS, 10 * MS, 1)


class TestLatestStarts:
    def test_the_last_row_has_its_own_slack(self):
        assert latest_starts(ints([30]), ints([4])).tolist() == [26]

    def test_those_before_leave_room_for_all_that_follow(self):
        # 40 - 10; min(25, 30) - 5; min(50, 20) - 3.
        assert latest_starts(ints([50, 25, 40]), ints([3, 5, 10])).tolist() == [17, 20, 30]

    def test_no_rows(self):
        assert latest_starts(ints([]), ints([])).tolist() == []

    def test_rows_that_repeat_leave_room_for_their_next_copy(self):
        # 9 of every 10: what is late in one copy is less so in the next.
        assert latest_starts(ints([12]), ints([9]), 0, 10).tolist() == [3]
        # 6 and 4 of every 10, due 8 and 30, then 18 and 40: the second must be done when the next 6 are due in 6.
        assert latest_starts(ints([8, 30]), ints([6, 4]), 0, 10).tolist() == [2, 8]

    def test_rows_before_the_repetition_come_once(self):
        assert latest_starts(ints([100, 8, 30]), ints([5, 6, 4]), 1, 10).tolist() == [-3, 2, 8]

    def test_long_tables_agree_with_the_definition(self):
        rng = np.random.default_rng(1)
        execution = rng.integers(1, 50, 5_000)
        deadline = np.cumsum(execution) + rng.integers(0, 500, 5_000)
        expected, latest = [], 2**62
        for due, spent in zip(deadline[::-1].tolist(), execution[::-1].tolist(), strict=True):
            latest = min(due, latest) - spent
            expected.append(latest)
        assert latest_starts(deadline, execution).tolist() == expected[::-1]
