"""The policer lets in exactly the arrival curve that admission counts: never more, and all that a contract allows."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.arrival_curve import curves_of
from gateway.core.expected import ints
from gateway.core.policing import Policer
from tests.core.factories import MS, make_profile, make_spec
from tests.core.states import make_state

PERIODS = st.integers(2, 40)
BURSTS = st.sampled_from([1, 1, 2, 3, 7])
JITTERS = st.one_of(st.just(0), st.integers(0, 100))
GAPS = st.lists(st.integers(0, 60), min_size=1, max_size=60)


def admit(policer, arrivals):
    """Offer frames one by one; return those that conform."""
    found = []
    for t in arrivals:
        if policer.conforming(1, t):
            policer.take(1, t)
            found.append(t)
    return found


def times(gaps):
    t, found = 0, []
    for gap in gaps:
        t += gap
        found.append(t)
    return found


def curve_of(period, burst, jitter):
    spec = make_spec(period / MS * MS, 200, burst=burst, jitter_ns=jitter * MS)
    (found,) = curves_of(make_state(make_profile(m=[1]), spec))
    return found


@given(PERIODS, BURSTS, JITTERS, GAPS)
def test_never_more_than_admission_counts(period, burst, jitter, gaps):
    passed = admit(Policer(period, burst, jitter), times(gaps))
    lengths = sorted({later - earlier + 1 for n, earlier in enumerate(passed) for later in passed[n:]})
    # The curve is in ns; one tick is one ms there.
    most = curve_of(period, burst, jitter).within(ints([length * MS for length in lengths]))
    allowed = dict(zip(lengths, most.tolist(), strict=True))
    for n, earlier in enumerate(passed):
        for k, later in enumerate(passed[n:], 1):
            assert k <= allowed[later - earlier + 1]


@given(PERIODS, BURSTS, JITTERS, st.integers(1, 150))
def test_the_curve_is_reached(period, burst, jitter, length):
    """A sender that sends whenever it may gets all of it, in the interval that begins with its best moment."""
    policer = Policer(period, burst, jitter)
    # First one group as late as can be: so the next ones may come early.
    arrivals = [t for t in range(length) for _ in range(burst * (2 + jitter // period))]
    passed = admit(policer, arrivals)
    assert len(passed) == curve_of(period, burst, jitter).within(ints([length * MS]))[0]


@given(PERIODS, BURSTS, JITTERS, st.integers(0, 1000), st.floats(0, 0.6), st.integers(0, 2**32))
def test_all_that_a_contract_allows_conforms(period, burst, jitter, phase, missing, seed):
    """Any phase, every frame late by its own share of the jitter, some missing, groups that overtake one another."""
    rng = Random(seed)
    arrivals = sorted(
        phase + k * period + rng.choice([0, jitter, rng.randint(0, jitter)])
        for k in range(30)
        for _ in range(burst)
        if rng.random() >= missing
    )
    assert admit(Policer(period, burst, jitter), arrivals) == arrivals


@given(PERIODS, BURSTS, JITTERS, GAPS, st.integers(1, 20), st.integers(0, 60))
def test_frames_that_come_together_are_as_many_one_by_one(period, burst, jitter, gaps, count, later):
    policer, other = Policer(period, burst, jitter), Policer(period, burst, jitter)
    for each in (policer, other):
        admit(each, times(gaps))
    now = sum(gaps) + later
    assert policer.conforming(count, now) == len(admit(other, [now] * count))


@given(PERIODS, BURSTS, JITTERS, GAPS, st.integers(1, 20))
def test_the_instant_to_come_back(period, burst, jitter, gaps, count):
    policer = Policer(period, burst, jitter)
    admit(policer, times(gaps))
    retry = policer.retry_ns(count)
    now = sum(gaps)
    if retry is None:
        assert policer.conforming(count, now + 100 * period) < count
    else:
        assert policer.conforming(count, max(now, retry)) == count
        if retry > now:
            assert policer.conforming(count, retry - 1) < count


def test_the_clocks_start_with_the_first_frames():
    policer = Policer(100, 2, 30)
    assert policer.earliest_ns is None
    policer.take(1, 500)
    assert policer.earliest_ns is None, "the second of the group may come whenever it likes"
    policer.take(1, 540)
    assert policer.earliest_ns == 570
    assert policer.conforming(2, 580) == 1
    assert policer.retry_ns(2) == 610


@pytest.mark.parametrize(("jitter", "count", "expected"), [(0, 1, 100), (0, 2, None), (100, 2, 100), (99, 2, None)])
def test_more_than_a_group_at_once_only_with_so_much_jitter(jitter, count, expected):
    policer = Policer(100, 1, jitter)
    policer.take(1, 0)
    assert policer.retry_ns(count) == (expected if expected is None or count > 1 else 100 - jitter)
