"""What the record says of a stream's frames to come: its grid as observed (times in ms)."""

import pytest

from gateway.core.events import FramesArrived
from gateway.core.types import ServiceClass
from tests.core.factories import MS, Drive, make_profile, make_spec


def drive(**fields):
    gate = Drive(make_profile(m=[1, 1, 1, 1]), admit_all=True)
    gate.register(0, a=make_spec(100, 400, **{"start_in": 50} | fields))
    return gate


def phase(gate, t):
    (found,) = gate.engine.admission_state(round(t * MS)).streams
    return (found.next_ns / MS, found.group_left, found.overdue, found.remaining)


def test_before_its_first_frame_the_registration_counts():
    assert phase(drive(), 0) == (50, 1, 0, None)
    assert phase(drive(), 50) == (50, 1, 0, None)


@pytest.mark.parametrize(
    ("t", "expected"),
    [
        (51, (150, 1, 1)),
        (149, (150, 1, 1)),
        (150, (150, 1, 0)),
        (151, (250, 1, 1)),
        (460, (550, 1, 1)),
    ],
)
def test_what_should_have_come_is_overdue_for_one_period(t, expected):
    assert phase(drive(), t)[:3] == expected


def test_without_jitter_the_grid_follows_each_frame():
    gate = drive()
    gate.frames(53, "a")
    assert phase(gate, 60) == (153, 1, 0, None)
    gate.frames(151, "a")
    assert phase(gate, 160) == (251, 1, 0, None)
    gate.frames(451, "a")
    assert phase(gate, 460) == (551, 1, 0, None)


class TestJitter:
    def gate(self):
        return drive(jitter_ns=20 * MS)

    @pytest.mark.parametrize("t", [50, 57, 70])
    def test_a_frame_within_its_interval_leaves_the_grid(self, t):
        gate = self.gate()
        gate.frames(t, "a")
        assert phase(gate, 80) == (150, 1, 0, None)

    def test_the_interval_may_have_begun(self):
        assert phase(self.gate(), 69) == (50, 1, 0, None)
        assert phase(self.gate(), 70) == (50, 1, 0, None)
        assert phase(self.gate(), 71) == (150, 1, 1, None)

    def test_a_frame_off_its_interval_moves_the_grid_as_little_as_it_can(self):
        gate = self.gate()
        gate.frames(45, "a")
        assert phase(gate, 80)[0] == 145
        gate.frames(170, "a")
        assert phase(gate, 180)[0] == 250, "late by 5"

    def test_missing_frames_do_not_move_it(self):
        gate = self.gate()
        gate.frames(60, "a")
        gate.frames(365, "a")
        assert phase(gate, 380) == (450, 1, 0, None)

    def test_more_jitter_than_a_period(self):
        gate = drive(jitter_ns=250 * MS)
        for t in (50, 160, 600):
            gate.frames(t, "a")
        assert phase(gate, 600)[0] == 450, "on time for the group of 350"


class TestGroups:
    def test_part_of_a_group_may_have_come(self):
        gate = drive(burst=4, jitter_ns=10 * MS)
        gate.at(50, FramesArrived("a", 3))
        assert phase(gate, 55) == (50, 1, 0, None)
        assert phase(gate, 61) == (150, 4, 1, None)
        gate.frames(58, "a")
        assert phase(gate, 61) == (150, 4, 0, None)

    def test_the_rest_of_a_group_may_be_late_or_missing(self):
        gate = drive(burst=4)
        gate.at(50, FramesArrived("a", 3))
        gate.frames(60, "a")
        assert phase(gate, 70) == (160, 4, 0, None)
        gate.at(160, FramesArrived("a", 3))
        gate.frames(290, "a")
        assert phase(gate, 290)[1:3] == (3, 0), "130 late: the first of another group"

    def test_no_more_than_remain(self):
        gate = drive(burst=4, frames=6)
        assert phase(gate, 0) == (50, 4, 0, 6)
        gate.at(50, FramesArrived("a", 4))
        assert phase(gate, 60) == (150, 2, 0, 2)
        assert phase(gate, 160) == (250, 1, 2, 2)


def test_streams_that_take_no_more_and_best_effort_are_left_out():
    gate = drive(frames=1)
    gate.register(0, idle=make_spec(service_class=ServiceClass.BEST_EFFORT))
    gate.frames(50, "a")
    state = gate.engine.admission_state(60 * MS)
    assert state.streams == ()
    assert [category.service_class for category in state.best_effort] == [ServiceClass.BEST_EFFORT]
    assert [window.category.service_class for window in state.windows] == [ServiceClass.REAL_TIME]


def test_the_record_counts_what_was_committed_and_started():
    gate = drive(frames=1)
    assert gate.engine.admission_state(0).generation == 1
    job = gate.frames(50, "a")[-1].job
    assert gate.engine.admission_state(50 * MS).started == 1
    gate.finish(51, job)
    assert gate.engine.admission_state(51 * MS).generation == 2


class TestEarliest:
    """Under the sporadic test any phase is legal, so a group that seems to be missing may just have another phase."""

    def earliest(self, gate, t):
        (found,) = gate.engine.admission_state(round(t * MS)).streams
        return None if found.earliest_ns is None else found.earliest_ns / MS

    def test_a_late_first_frame_does_not_count_as_that_of_a_later_group(self):
        gate = drive(start_in=0, jitter_ns=50 * MS)
        assert self.earliest(gate, 0) is None
        gate.frames(120, "a")
        assert phase(gate, 130)[0] == 200, "the grid takes it for the group of 100"
        assert self.earliest(gate, 130) == 170, "a camera of phase 70 sends its next one from 170 on"

    def test_it_follows_what_comes_early(self):
        gate = drive(start_in=50)
        gate.frames(20, "a")
        assert self.earliest(gate, 30) == 120

    def test_each_frame_of_a_group_has_a_clock_of_its_own(self):
        gate = drive(burst=2)
        gate.frames(50, "a")
        assert self.earliest(gate, 60) is None, "the second one of the group may come at any time"
        gate.frames(70, "a")
        assert self.earliest(gate, 80) == 150
        gate.frames(150, "a")
        assert self.earliest(gate, 160) == 170
