"""Plain EDF is not sustainable (theory, section 2): less work can make an admitted set miss. The guard cures it.

Each example is admitted by the exact test and misses under plain EDF (the paper's dispatch), but not with the guard.
Most are the smallest that a random search over integer sets found. Times are in ms.
"""

import pytest

from gateway.core import admission
from gateway.core.actions import Admitted, DeliverFrames, DropFrames, PlanStale, StartJob, WindowWidened
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import CloseStream, FramesArrived, RegisterStream, WidenWindows
from gateway.core.types import Outcome, ServiceClass
from tests.core.factories import MS, Drive, act_out, every, make_profile, make_spec, names, only

BOTH = pytest.mark.parametrize("guard", [False, True])


def late(log):
    """Streams of the frames that were not met, in order."""
    found = []
    for _, action in log:
        if isinstance(action, DeliverFrames):
            pairs = zip(action.job.frames, action.outcomes, strict=True)
            found += [frame.stream_id for frame, outcome in pairs if outcome is not Outcome.MET]
        elif isinstance(action, DropFrames):
            found += [frame.stream_id for frame in action.frames]
    return found


def run(profile, streams, arrivals, execution=lambda job: job.execution_ns, *, more=(), **config):
    """Register `streams` at 0, let their frames come at `arrivals`, and return who was late."""
    engine = Engine(profile, EngineConfig(**{"early_dispatch": False} | config))
    happens = [(0, RegisterStream(name, spec)) for name, spec in streams.items()]
    happens += [(t, FramesArrived(name)) for name, times in arrivals.items() for t in times]
    log = act_out(engine, [*happens, *more], execution)
    assert len(every([action for _, action in log], Admitted)) == len(streams), "the exact test must admit all"
    return late(log)


@BOTH
@pytest.mark.parametrize("early", [False, True])
def test_early_dispatch(guard, early):
    # Planned: the short one from its joint 5 to 7 (due 9), the long one from 7 to 13 (due 16). Sent early, the long one
    # holds the device from 4 to 10.
    streams = {
        "long": make_spec(100, 12, model="long", frames=1, start_in=4),
        "short": make_spec(100, 5, model="short", frames=1, start_in=4),
    }
    got = run(
        make_profile(long=[6], short=[2]),
        streams,
        {"long": [4], "short": [4]},
        early_dispatch=early,
        guard=guard,
    )
    assert got == ([] if guard or not early else ["short"])


@BOTH
def test_best_effort(guard):
    streams = {
        "idle": make_spec(100, 500, model="long", service_class=ServiceClass.BEST_EFFORT),
        "short": make_spec(100, 5, model="short", frames=1, start_in=5),
    }
    more = [(100, CloseStream("idle"))]
    got = run(
        make_profile(long=[9], short=[2]),
        streams,
        {"idle": [4], "short": [5]},
        more=more,
        early_dispatch=True,
        guard=guard,
    )
    assert got == ([] if guard else ["short"])


@BOTH
@pytest.mark.parametrize("shorter", [0, 1])
def test_a_job_that_ends_early(guard, shorter):
    streams = {
        "a": make_spec(37, 26, model="c", frames=1, start_in=11),
        "b": make_spec(20, 21, model="b", frames=1, start_in=19),
        "c": make_spec(15, 11, model="c", frames=2, start_in=20),
    }

    def execution(job):
        return job.execution_ns - (shorter * MS if job.id == 0 else 0)

    got = run(make_profile(c=[6, 7], b=[5]), streams, {"a": [11], "b": [19], "c": [20, 35]}, execution, guard=guard)
    assert bool(got) is (bool(shorter) and not guard)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(("guard", "early"), [(False, False), (True, False), (True, True)])
def test_a_missing_frame_reorders_edf(guard, missing, early):
    # Proven: K@15, U@20, L@21, F@31. If x never comes, K's deadline becomes 33 and L is the EDF head.
    streams = {
        "x": make_spec(100, 30, model="k", frames=1, start_in=1),
        "y": make_spec(100, 30, model="k", frames=1, start_in=3),
        "l": make_spec(100, 30, model="l", frames=1, start_in=2),
        "u": make_spec(100, 4, model="u", frames=1, start_in=18),
        "f": make_spec(100, 60, model="f", frames=1, start_in=0),
    }
    arrivals = {"x": [] if missing else [1], "y": [3], "l": [2], "u": [18], "f": [0]}
    more = [(40, CloseStream("x"))] if missing else []
    got = run(
        make_profile(k=[4, 5], l=[10], u=[1], f=[15]),
        streams,
        arrivals,
        more=more,
        early_dispatch=early,
        guard=guard,
    )
    assert bool(got) is (missing and not guard)


@BOTH
def test_the_device_waits_on_purpose_and_a_stream_joins(guard):
    # Planned: V@65, Y@75, X@85, Z@102. V's frame is missing; at 73 X would hold the device until 90, too late for Y.
    streams = {
        "v": make_spec(500, 130, model="v", frames=1, start_in=60),
        "x": make_spec(500, 146, model="x", frames=1, start_in=53),
        "y": make_spec(500, 30, model="y", frames=1, start_in=69),
        "z": make_spec(500, 60, model="z", frames=1, start_in=64),
    }
    profile = make_profile(v=[10], x=[17], y=[10], z=[20], w=[1])
    engine = Engine(profile, EngineConfig(early_dispatch=False, guard=guard))
    happens = [(0, RegisterStream(name, spec)) for name, spec in streams.items()]
    happens += [(53, FramesArrived("x")), (64, FramesArrived("z")), (69, FramesArrived("y")), (90, CloseStream("v"))]
    if guard:
        # An imitator that thinks the device would take X now refuses the very set that is running.
        happens += [(73, RegisterStream("w", make_spec(500, 400, model="w", frames=1, start_in=200)))]
        happens += [(273, FramesArrived("w"))]
    log = act_out(engine, happens)
    assert len(every([action for _, action in log], Admitted)) == len(streams) + guard
    starts = {names(action.job)[0]: t_ns // MS for t_ns, action in log if isinstance(action, StartJob)}
    if guard:
        assert late(log) == []
        assert (starts["y"], starts["x"], starts["z"]) == (75, 85, 102)
    else:
        assert late(log) == ["y"]
        assert starts["x"] == 73


@BOTH
def test_jitter_within_the_contract(guard):
    streams = {
        "a": make_spec(14, 35, model="a", frames=1, start_in=1, jitter_ns=5 * MS),
        "b": make_spec(8, 20, model="b", frames=1, start_in=8, jitter_ns=5 * MS),
        "c": make_spec(8, 25, model="c", frames=1, start_in=8, jitter_ns=5 * MS),
    }
    got = run(make_profile(a=[5], b=[10], c=[1, 4]), streams, {"a": [3], "b": [11], "c": [13]}, guard=guard)
    assert got == ([] if guard else ["b"])


def test_a_frame_may_come_on_either_side_of_a_joint():
    # Joints of a at 10, 20. Its frame may come in [8, 12], so it has a place in both windows, and is due at 28 and 30.
    profile = make_profile(a=[4], b=[9])
    streams = {
        "a": make_spec(100, 20, model="a", frames=1, start_in=8, jitter_ns=4 * MS),
        "b": make_spec(100, 60, model="b", frames=1, start_in=5),
    }
    for t in (8, 9.999999, 10, 12):
        assert run(profile, streams, {"a": [t], "b": [5]}, early_dispatch=True) == []


@BOTH
def test_a_larger_batch_that_was_measured_faster(guard):
    # Two frames of model a were measured at 3, one at 8. E is made monotone, so the job of two ends early.
    raw = {"a": [8, 3], "b": [4], "c": [9, 2]}
    streams = {
        "s": make_spec(23, 35, model="a", frames=2, start_in=9),
        "t": make_spec(14, 24, model="a", frames=1, start_in=7),
        "u": make_spec(29, 34, model="c", frames=1, start_in=8),
        "v": make_spec(9, 13, model="b", frames=2, start_in=6),
    }

    def execution(job):
        return raw[job.category.model][len(job.frames) - 1] * MS

    arrivals = {"s": [9, 32], "t": [7], "u": [8], "v": [6, 15]}
    assert run(make_profile(**raw), streams, arrivals, execution, guard=guard) == ([] if guard else ["v"])


def test_jobs_of_a_split_window_share_the_deadline():
    # Sorted by a deadline of its own, the second chunk (due 40) would let another job (due 25) come between.
    gate = Drive(make_profile(m=[2, 3], n=[2]), early_dispatch=False)
    gate.register(
        0,
        a=make_spec(100, 20, frames=1, start_in=1),
        b=make_spec(100, 20, frames=1, start_in=2),
        c=make_spec(100, 40, frames=1, start_in=3),
        d=make_spec(100, 20, frames=1, start_in=4, model="n"),
    )
    gate.frames(1, "a")
    gate.frames(2, "b")
    gate.frames(3, "c")
    gate.frames(4, "d")
    started = []
    actions = gate.at(10)
    t = 10
    while jobs := every(actions, StartJob):
        started.append((names(jobs[0].job), jobs[0].job.deadline_ns // MS))
        t += 3
        actions = gate.finish(t, jobs[0].job)
    assert started == [(["a", "b"], 21), (["c"], 21), (["d"], 24)]


class TestGrowth:
    """W grows when the tightest stream leaves. Grown at once, the frames that are left may miss."""

    streams = (
        ("stays", make_spec(13, 12, frames=4, start_in=7)),
        ("leaves", make_spec(10, 10, frames=1, start_in=3)),
    )
    arrivals = ((3, "leaves"), (7, "stays"), (20, "stays"), (33, "stays"), (46, "stays"))

    def test_a_plan_that_does_not_hold_leaves_it(self):
        engine = Engine(make_profile(m=[7]), EngineConfig(early_dispatch=False))
        happens = [(0, RegisterStream(name, spec)) for name, spec in self.streams]
        happens += [(t, FramesArrived(name)) for t, name in self.arrivals]
        log = act_out(engine, [*happens, (19, WidenWindows())])
        assert not every([action for _, action in log], WindowWidened)
        assert late(log) == []

    def test_without_a_plan_it_would_miss(self):
        engine = Engine(make_profile(m=[7]), EngineConfig(early_dispatch=False, guard=False))
        for name, spec in self.streams:
            engine.handle(RegisterStream(name, spec), 0)
        log = act_out(engine, [(3, FramesArrived("leaves")), (7, FramesArrived("stays"))])
        now_ns = log[-1][0]
        (batcher,) = engine._waiting.batchers.values()
        assert batcher.widest_ns == 6 * MS > batcher.window_ns == 5 * MS
        engine._waiting.rule(batcher, batcher.widest_ns, batcher.next_joint_ns(now_ns), now_ns)
        rest = [(t, FramesArrived(name)) for t, name in self.arrivals if t * MS > now_ns]
        assert late(act_out(engine, rest)) == ["stays"]


class TestAdmissionRace:
    """Two plans from one record: after the first is installed the second does not hold any more."""

    def test_the_second_is_refused(self):
        profile = make_profile(m=[10], n=[10])
        engine = Engine(profile, EngineConfig(early_dispatch=False))
        specs = {name: make_spec(40, 24, frames=3, model=name, start_in=10) for name in ("m", "n")}
        plans = {name: engine.plan(spec, 0, name) for name, spec in specs.items()}
        assert all(plan.verdict.admitted for plan in plans.values())
        first = engine.handle(RegisterStream("m", specs["m"], plans["m"]), 1 * MS)
        assert only(first, Admitted).stream_id == "m"
        before = engine.snapshot()
        assert engine.handle(RegisterStream("n", specs["n"], plans["n"]), 1 * MS) == [PlanStale("n")]
        assert engine.snapshot() == before
        assert not engine.plan(specs["n"], 1 * MS, "n").verdict.admitted

    def test_a_refusal_of_a_moment_ago_is_stale_too(self):
        engine = Engine(make_profile(m=[10]), EngineConfig(early_dispatch=False))
        spec = make_spec(20, 24, frames=3, start_in=10)
        engine.handle(RegisterStream("a", spec), 0)
        refused = engine.plan(make_spec(11, 24, frames=3), 0, "b")
        assert not refused.verdict.admitted
        engine.handle(CloseStream("a"), 0)
        assert engine.handle(RegisterStream("b", make_spec(11, 24, frames=3), refused), 1 * MS) == [PlanStale("b")]


def test_admission_is_asked_through_the_engine():
    # The plan that `check` and `RegisterStream` go by is the one that another process would make from the record.
    engine = Engine(make_profile(m=[10]))
    spec = make_spec(20, 24, frames=3)
    assert engine.plan(spec, 0, "a").verdict == admission.plan(engine.admission_state(0), spec, "a").verdict
