"""Jobs that are sent ahead: the same order, the same instants, no promise broken, and the books balance.

Sets as in ``test_guard``. A job usually takes a part of its profiled time, and is held to have taken any time up to it.
"""

from dataclasses import replace
from random import Random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gateway.core.actions import AcceptFrames, DeliverFrames, DropFrames
from gateway.core.engine import Engine
from gateway.core.profile import Profile
from gateway.core.types import ServiceClass
from tests.core.factories import MS, Unchecked
from tests.properties.rig import Rig
from tests.properties.test_guard import draw_config, draw_profile, draw_stream

SEEDS = st.integers(0, 2**32 - 1)
MOST = st.integers(3, 8)
MISSING = st.sampled_from([0, 0.1, 0.3])
SHORTER = st.sampled_from([0, 0.2, 0.5, 1])
LEADS = st.sampled_from([1, 5, 30])
DELAYS = st.sampled_from([None, 1, 8])


def usually(profile, share):
    """The same profile for a device that usually takes a `share` of the profiled times."""
    return Profile(tuple(replace(entry, p50_ms=entry.p50_ms * share) for entry in profile.entries))


def run(seed, most, lead, *, kind=Engine, at_once=False, best_effort=0, rogues=0, unbounded=0, config=None, **options):
    """Run a set of `most` streams to its end; `at_once`: all join at 0, and none leaves."""
    rng = Random(seed)
    profile = usually(draw_profile(rng), rng.choice([0.3, 0.6, 0.9, 1]))
    engine = kind(profile, draw_config(rng, send_ahead_ns=lead * MS, **(config or {})))
    strays = {f"s{n}" for n in range(most) if rogues and rng.randrange(rogues) == 0}
    rig = Rig(engine, seed, rogues=strays, **options)
    for n in range(most):
        fields = {}
        if unbounded and rng.randrange(unbounded) == 0:
            fields = {"frames": None, "period": rng.choice([20, 30, 40, 60, 120])}
        if n < best_effort:
            fields |= {"service_class": ServiceClass.BEST_EFFORT, "slack": 5}
        spec, join_ns, leave_ns = draw_stream(rng, **fields)
        rig.join(0 if at_once else join_ns, f"s{n}", spec, None if at_once else leave_ns)
    rig.run()
    rig.mirror.check(engine.snapshot())
    assert engine.snapshot().streams == ()
    event(f"ahead: {min(rig.counts['ahead'], 5)}")
    return rig


def course(rig):
    """What was run when, and what was not, in order."""
    return [
        (action.started_ns, action.finished_ns, [frame_name(f) for f in action.job.frames], action.outcomes)
        if isinstance(action, DeliverFrames)
        else (t_ns, [frame_name(f) for f in action.frames])
        for t_ns, action in rig.log
        if isinstance(action, DeliverFrames | DropFrames)
    ]


def frame_name(frame):
    return (frame.stream_id, frame.seq, frame.job)


def differs(seed, most, lead, **options):
    """Whether anything starts or ends otherwise than without sending ahead, at any times up to the profiled ones."""
    with_it, without = (run(seed, most, each, at_once=True, widen=False, **options) for each in (lead, 0))
    assert not without.counts["ahead"]
    taken = [[a for _, a in rig.log if isinstance(a, AcceptFrames)] for rig in (with_it, without)]
    return course(with_it) != course(without) or taken[0] != taken[1]


@settings(max_examples=150)
@given(SEEDS, MOST, LEADS, MISSING, SHORTER, st.integers(0, 2))
def test_plain_edf_runs_the_same_jobs_at_the_same_instants(seed, most, lead, missing, shorter, best_effort):
    """Whatever is asked of it, far too much as well: frames that are given up are the same."""
    options = {"missing": missing, "shorter": shorter, "best_effort": best_effort}
    assert not differs(seed, most, lead, kind=Unchecked, **options)


@settings(max_examples=100)
@given(SEEDS, MOST, LEADS, MISSING, SHORTER, st.integers(0, 2))
def test_under_the_sporadic_test_likewise(seed, most, lead, missing, shorter, best_effort):
    options = {"missing": missing, "shorter": shorter, "best_effort": best_effort, "unbounded": 3}
    assert not differs(seed, most, lead, config={"admission_test": "sporadic"}, **options)


@settings(max_examples=150)
@given(SEEDS, MOST, LEADS, MISSING, SHORTER, st.integers(0, 2))
def test_by_a_plan_likewise(seed, most, lead, missing, shorter, best_effort):
    options = {"missing": missing, "shorter": shorter, "best_effort": best_effort}
    assert not differs(seed, most, lead, **options)


@settings(max_examples=200)
@given(SEEDS, MOST, LEADS, MISSING, SHORTER, DELAYS)
def test_by_a_plan_an_admitted_set_misses_nothing(seed, most, lead, missing, shorter, delay):
    """Joining and leaving, plans of a moment ago, best effort, and streams that break their contracts."""
    rig = run(
        seed, most, lead, missing=missing, shorter=shorter, plan_delay=delay, best_effort=seed % 3, rogues=seed % 2 * 4
    )
    event(f"admitted: {min(rig.counts['admitted'], 5)}, stale: {min(rig.counts['stale'], 2)}")
    assert not rig.bad


@settings(max_examples=300)
@given(SEEDS, MOST, LEADS, MISSING, SHORTER, DELAYS)
def test_under_the_sporadic_test_an_admitted_set_misses_nothing(seed, most, lead, missing, shorter, delay):
    options = {"missing": missing, "shorter": shorter, "plan_delay": delay, "best_effort": seed % 3}
    rig = run(seed, most, lead, unbounded=2, config={"admission_test": "sporadic"}, **options)
    event(f"admitted: {min(rig.counts['admitted'], 5)}, stale: {min(rig.counts['stale'], 2)}")
    assert not rig.bad


@settings(max_examples=100)
@given(SEEDS, MOST, LEADS, MISSING, SHORTER, DELAYS)
def test_plans_may_come_and_go(seed, most, lead, missing, shorter, delay):
    """`auto` goes from the exact test to the sporadic one and back."""
    rig = run(seed, most, lead, missing=missing, shorter=shorter, plan_delay=delay, best_effort=1, unbounded=6)
    assert not rig.bad
