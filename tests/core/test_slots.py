"""Slots, the rows they come from, and reservations (times are bare integers)."""

from random import Random

import numpy as np
import pytest

from gateway.core.batch import NEVER_NS
from gateway.core.imitator import latest_starts
from gateway.core.plan import SlotTable
from gateway.core.plan_state import StreamPhase
from gateway.core.reservation import Journal, Reservations
from gateway.core.slot_rows import SlotRows, reach_ns
from gateway.core.slots import Slot, SlotList
from gateway.core.types import Frame
from tests.core.factories import make_category

TABLE = (0, 4, 6, 7)


def slot(release, deadline, size=1, start=None):
    start = release if start is None else start
    return Slot(TABLE, size=size, release_ns=release, deadline_ns=deadline, start_ns=start, latest_ns=0)


def chain(*slots, end=NEVER_NS):
    """A list with lam computed from scratch."""
    found = SlotList()
    found.end_at(end)
    latest = end
    for each in reversed(slots):
        latest = each.latest_ns = min(each.deadline_ns, latest) - each.execution_ns
    for each in slots:
        found.append(each)
    return found


def lams(slots):
    return [each.latest_ns for each in slots]


def fresh(slots, end=NEVER_NS):
    latest, found = end, []
    for each in reversed(list(slots)):
        latest = min(each.deadline_ns, latest) - each.execution_ns
        found.append(latest)
    return found[::-1]


class TestSlotList:
    def test_lam_is_the_latest_start_that_keeps_every_promise(self):
        slots = chain(slot(0, 30), slot(5, 12), slot(10, 20, size=2))
        assert lams(slots) == [4, 8, 14]
        assert slots.latest_ns == 4
        assert slots.head.deadline_ns == 30
        assert slots.last.size == 2

    def test_an_empty_list_allows_anything_before_the_rows_not_read(self):
        assert (SlotList().head, SlotList().last, SlotList().latest_ns) == (None, None, NEVER_NS)
        assert chain(end=50).latest_ns == 50

    def test_removing_work_raises_lam(self):
        a, b, c = slot(0, 30), slot(5, 12), slot(10, 20)
        slots = chain(a, b, c)
        slots.remove(b)
        assert list(slots) == [a, c]
        assert lams(slots) == [12, 16]

    def test_a_smaller_batch_and_a_later_deadline_raise_lam(self):
        a, b = slot(0, 30), slot(5, 15, size=3)
        slots = chain(a, b)
        assert lams(slots) == [4, 8]
        slots.relax(b, 1, 15)
        assert lams(slots) == [7, 11]
        slots.relax(b, 1, 20)
        assert lams(slots) == [12, 16]

    def test_a_larger_batch_is_taken_only_if_the_invariant_holds(self):
        a, b = slot(0, 30), slot(5, 15)
        slots = chain(a, b)
        assert lams(slots) == [7, 11]
        assert not slots.tighten(b, 3, 15, busy_ns=5)
        assert (b.size, lams(slots)) == (1, [7, 11])
        assert slots.tighten(b, 2, 15, busy_ns=5)
        assert (b.size, b.execution_ns, lams(slots)) == (2, 6, [5, 9])

    def test_a_slot_is_never_due_before_it_can_end(self):
        a = slot(10, 20)
        slots = chain(a)
        assert not slots.tighten(a, 1, 13, busy_ns=0), "released at 10, it takes 4"
        assert slots.tighten(a, 1, 14, busy_ns=0)

    def test_nothing_is_taken_while_the_device_has_overrun(self):
        a, b = slot(0, 5), slot(20, 90)
        slots = chain(a, b)
        assert not slots.tighten(b, 2, 90, busy_ns=2)
        assert not slots.insert(slot(20, 95), busy_ns=2)

    def test_a_slot_is_inserted_where_its_deadline_belongs(self):
        a, b, c = slot(0, 90), slot(10, 40), slot(12, 60, start=14)
        slots = chain(a, b, c)
        new = slot(10, 50)
        assert slots.insert(new, busy_ns=0)
        assert list(slots) == [a, b, new, c]
        assert lams(slots) == fresh(slots)

    def test_a_slot_that_does_not_fit_leaves_no_trace(self):
        a, b = slot(0, 90), slot(10, 15)
        slots = chain(a, b)
        before = lams(slots)
        assert not slots.insert(slot(0, 12), busy_ns=6)
        assert list(slots) == [a, b]
        assert lams(slots) == before

    def test_one_may_ask_what_lam_would_be_without_some_frames(self):
        a, b, c = slot(0, 90), slot(5, 40, size=3), slot(10, 20)
        slots = chain(a, b, c)
        assert slots.latest_ns == 16 - 7 - 4
        assert slots.latest_without(b, 3) == 16 - 4
        assert slots.latest_without(b, 1) == 16 - 6 - 4
        assert slots.latest_without(a, 1) == 16 - 7
        assert slots.latest_without(c, 1) == 40 - 7 - 4

    def test_long_walks_are_cut_short_on_the_safe_side(self):
        each = [slot(4 * n, 5_000) for n in range(300)]
        slots = chain(*each)
        before = slots.latest_ns
        assert not slots.tighten(each[-1], 2, 5_000, busy_ns=0), "it would hold, but to be sure takes too long"
        assert slots.tighten(each[100], 2, 5_000, busy_ns=0)
        assert slots.latest_ns == before - 2
        slots.remove(each[-1])
        assert all(found <= true for found, true in zip(lams(slots), fresh(slots), strict=True))
        assert slots.latest_ns < fresh(slots)[0]
        assert slots.latest_without(each[-2], 1) == slots.latest_ns
        assert not slots.insert(slot(4 * 300, 6_000), busy_ns=0)

    def test_any_sequence_of_changes_keeps_lam_exact(self):
        rng = Random(1)
        for _ in range(300):
            slots = chain(*[slot(6 * n, 6 * n + rng.randint(20, 60), start=6 * n) for n in range(8)])
            for _ in range(12):
                some = list(slots)
                if not some:
                    break
                one = rng.choice(some)
                match rng.randrange(4):
                    case 0:
                        slots.remove(one)
                    case 1:
                        slots.relax(one, rng.randint(1, one.size), one.deadline_ns + rng.randint(0, 5))
                    case 2:
                        size = rng.randint(one.size, 3)
                        slots.tighten(one, size, one.deadline_ns - rng.randint(0, 5), busy_ns=0)
                    case 3:
                        at = rng.randint(0, 50)
                        slots.insert(slot(at, at + rng.randint(4, 60)), busy_ns=0)
                assert lams(slots) == fresh(slots)
                assert slots.latest_ns >= 0
                assert all(each.release_ns <= each.latest_ns for each in slots)


def table(starts, *, repeat_from=0, repeat_ns=0, execution=1, job=None):
    """Rows that start at `starts`, released 2 earlier, due 10 later."""
    start = np.array(starts, dtype=np.int64)
    ones = np.ones_like(start)
    return SlotTable(
        window=0 * ones,
        job=-ones if job is None else np.array(job, dtype=np.int64),
        release=start - 2,
        chunk=0 * ones,
        size=ones,
        deadline=start + 10,
        execution=execution * ones,
        start=start,
        latest=latest_starts(start + 10, execution * ones, repeat_from, repeat_ns),
        repeat_from=repeat_from,
        repeat_ns=repeat_ns,
    )


class TestRows:
    def test_they_are_read_in_portions(self):
        rows = SlotRows(table(range(0, 500, 5)))
        assert (rows.next_start_ns, rows.next_latest_ns) == (0, 9)
        first = rows.read()
        assert [row.start_ns for row in first] == list(range(0, 160, 5))
        assert (first[1].release_ns, first[1].deadline_ns, first[1].latest_ns) == (3, 15, 14)
        assert rows.next_start_ns == 160
        for _ in range(3):
            rows.read()
        assert (rows.next_start_ns, rows.next_latest_ns, rows.read()) == (NEVER_NS, NEVER_NS, [])

    def test_repeated_rows_come_again_shifted(self):
        rows = SlotRows(table([0, 10, 20, 30], repeat_from=2, repeat_ns=20, job=[7, -1, -1, -1]))
        starts = [row.start_ns for _ in range(4) for row in rows.read()]
        assert starts == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]
        assert rows.next_start_ns == 100

    def test_a_batch_is_named_in_the_first_copy_only(self):
        rows = SlotRows(table([0, 10], repeat_from=0, repeat_ns=20, job=[7, -1]))
        assert [[row.job for row in rows.read()] for _ in range(2)] == [[7, -1], [-1, -1]]

    @pytest.mark.parametrize("now", [-1, 0, 9, 10, 29, 30, 39, 41, 99, 100, 12_345, 10**12 + 13])
    def test_skipping_ahead_is_reading_ahead(self, now):
        rows = SlotRows(table([0, 10, 20, 30], repeat_from=2, repeat_ns=20))
        rows.skip_past(now)
        expected = 0 if now < 0 else now // 10 * 10 + 10
        assert rows.next_start_ns == expected
        assert rows.next_latest_ns == expected + 9
        assert rows.read()[0].start_ns == expected

    def test_a_table_without_repetition_ends(self):
        rows = SlotRows(table([0, 10]))
        rows.skip_past(50)
        assert rows.next_start_ns == NEVER_NS
        rows = SlotRows(table([0, 10]))
        rows.stop()
        assert rows.next_start_ns == NEVER_NS
        assert rows.read() == []

    def test_how_far_ahead_one_must_read(self):
        assert reach_ns(table([5, 9])) == 2
        assert reach_ns(table([])) == 0


def phase(**fields):
    defaults = {"period_ns": 10, "deadline_ns": 40, "next_ns": 100, "remaining": None}
    return StreamPhase(stream_id="s", category=make_category(), **(defaults | fields))


class TestReservations:
    def test_a_group_is_reserved_in_the_window_in_which_it_may_come(self):
        found = Reservations(phase(), 95)
        assert not found.take(90, 100), "half-open: it comes at the joint"
        assert found.take(100, 105)
        assert not found.take(100, 105), "used up"
        assert found.take(105, 115)

    def test_with_jitter_in_every_window_that_its_interval_touches(self):
        for window in ((95, 101), (100, 104), (104, 110)):
            assert Reservations(phase(jitter_ns=4), 90).take(*window)
        assert not Reservations(phase(jitter_ns=4, period_ns=100), 90).take(105, 200)

    def test_it_is_used_once_wherever_it_is_used(self):
        found = Reservations(phase(jitter_ns=4, period_ns=100), 90)
        assert found.take(95, 102)
        assert not found.take(102, 109)

    def test_missing_frames_are_passed_over(self):
        assert not Reservations(phase(remaining=3), 90).take(121, 140), "100, 110 and 120 were all that was planned"
        found = Reservations(phase(remaining=3), 90)
        assert found.take(115, 130)
        assert not found.take(115, 200), "the third was the last"

    def test_a_group_has_a_place_for_each_of_its_frames(self):
        found = Reservations(phase(burst=3, group_left=2), 90)
        assert [found.take(95, 105) for _ in range(3)] == [True, True, False]
        assert [found.take(105, 115) for _ in range(4)] == [True, True, True, False]

    def test_the_last_group_may_be_smaller(self):
        found = Reservations(phase(burst=3, group_left=3, remaining=4), 90)
        assert [found.take(95, 105) for _ in range(4)] == [True, True, True, False]
        assert [found.take(105, 115) for _ in range(2)] == [True, False]

    def test_overdue_frames_have_places_in_the_first_window_only(self):
        found = Reservations(phase(overdue=1, remaining=5), 97)
        assert [found.take(90, 99), found.take(90, 99)] == [True, False]
        found = Reservations(phase(overdue=1, remaining=2, next_ns=107), 97)
        assert not found.take(98, 106)
        assert [found.take(106, 120), found.take(106, 130)] == [True, False]


class TestJournal:
    def note(self, *arrivals):
        journal = Journal()
        journal.note([Frame("s", n, t, t + 10, 0) for n, t in enumerate(arrivals)])
        return journal

    def test_it_tells_what_came_since(self):
        assert [frame.seq for frame in self.note(1, 5, 5, 9).since(4)] == [1, 2, 3]
        assert self.note(1, 2).since(3) == []
        assert self.note().since(0) == []

    def test_the_same_instant_cannot_be_told_apart(self):
        assert self.note(1, 5, 9).since(5) is None

    def test_it_does_not_reach_back_for_ever(self):
        journal = self.note(*range(0, 40_000, 2))
        assert journal.since(5_001) is None
        assert [frame.arrival_ns for frame in journal.since(39_995)] == [39_996, 39_998]
