"""Adaptation over random sets: the books of the penalty, and that with it no more frames are late than without."""

from random import Random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from benchmarks.synthetic_profile import profile as synthetic
from gateway.core.actions import DeliverFrames, PenaltyChanged, StartJob
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.types import NS_PER_MS as MS
from gateway.core.types import OnLate, StreamSpec
from gateway.sim.driver import simulate
from gateway.sim.execution import delayed, exact, uniform
from gateway.sim.trace import TraceEntry
from tests.core.factories import replay

SEEDS = st.integers(0, 2**32 - 1)
PROFILE = synthetic()
SECONDS = 4
SIDES = ((224,), (224, 160), (224, 128, 96))


def draw_trace(rng, *, on_late):
    """Cameras of two models, periods and deadlines as the paper draws them."""
    mean_ms, sides = rng.choice([40, 60, 100]), rng.choice(SIDES)
    entries = []
    for n in range(rng.choice([4, 8, 20])):
        period_ms = max(20.0, rng.gammavariate(2, mean_ms / 2))
        side, start_ms = rng.choice(sides), rng.uniform(0, period_ms)
        spec = StreamSpec(
            rng.choice(["mobilenet_v2", "resnet50"]),
            "1",
            (side, side, 3),
            period_ns=round(period_ms * MS),
            deadline_ns=round(max(25.0, rng.gammavariate(2, mean_ms / 2)) * MS),
            frames=max(1, int((SECONDS * 1_000 - start_ms) / period_ms)),
            start_in_ns=round(start_ms * MS),
            on_late=on_late,
        )
        entries.append(TraceEntry(f"s{n}", 0, spec))
    return entries


def draw_device(rng, seed, delay_ms, first):
    """Five jobs in a row are delayed."""
    execution = rng.choice([exact, uniform(0.8, seed)])
    return lambda: delayed(execution, first, 5, delay_ms * MS)


def misses(trace, execution, **config):
    report = simulate(trace, PROFILE, EngineConfig(**config), execution=execution)
    return round(report.miss_rate * report.frames)


@settings(max_examples=60)
@given(SEEDS, st.booleans(), st.booleans(), st.sampled_from([20, 50, 100, 200, 500]))
def test_no_more_frames_are_late_than_without(seed, guard, early, delay_ms):
    rng = Random(seed)
    switches = {"guard": guard, "early_dispatch": early}
    trace = draw_trace(rng, on_late=OnLate.SERVE)
    answers = simulate(trace, PROFILE, EngineConfig(**switches))
    admitted = {stream.stream_id for stream in answers.streams if stream.admitted}
    device = draw_device(rng, seed, delay_ms, int(answers.jobs * rng.uniform(0.05, 0.6)))
    trace = [entry for entry in trace if entry.stream_id in admitted]
    without, with_it = (misses(trace, device(), adaptation=on, **switches) for on in (False, True))
    event("fewer" if with_it < without else "as many")
    assert with_it <= without


@settings(max_examples=60)
@given(SEEDS, st.booleans(), st.sampled_from([OnLate.SERVE, OnLate.DROP]), st.sampled_from([0, 20, 100, 300]))
def test_the_penalty_is_what_the_jobs_say(seed, guard, on_late, delay_ms):
    """Recomputed from what was started and delivered; and small jobs run while there is one, no others."""
    rng = Random(seed)
    trace = draw_trace(rng, on_late=on_late)
    device = draw_device(rng, seed, delay_ms, rng.randrange(50))
    engine = Engine(PROFILE, EngineConfig(guard=guard))
    penalty, said, last_end_ns, idle_ns, ran_small = {}, {}, None, {}, 0
    for t_ns, action in replay(engine, trace, execution=device()):
        match action:
            case StartJob(job):
                # The last change of this category was said before its next job starts.
                assert said.get(job.category, 0) == penalty.get(job.category, 0)
                native_ns = PROFILE.execution_ns(job.category, len(job.frames))
                small = next(PROFILE.faster_smaller(job.category), None)
                saves = small is not None and PROFILE.execution_ns(small, len(job.frames)) < native_ns
                assert job.small == (small if penalty.get(job.category) and saves else None)
                ran_small += job.small is not None
                idle_ns[job.id] = None if last_end_ns is None else t_ns - last_end_ns
            case DeliverFrames(job):
                last_end_ns = t_ns
                took_ns = t_ns - action.started_ns
                if idle_ns[job.id] is None or idle_ns[job.id] >= engine.config.cold_after_ns:
                    took_ns = min(took_ns, job.execution_ns)
                native_ns = PROFILE.execution_ns(job.category, len(job.frames))
                change_ns = took_ns - native_ns if job.small else max(0, took_ns - job.execution_ns)
                penalty[job.category] = max(0, penalty.get(job.category, 0) + change_ns)
            case PenaltyChanged():
                said[action.category] = action.penalty_ns
                if action.reason == "ended":
                    penalty[action.category] = 0
                small = next(PROFILE.faster_smaller(action.category), None)
                assert action.shape == (small.shape if small and action.penalty_ns else None)
    if not delay_ms:
        assert not said, "nothing took longer than profiled"
    event("small jobs ran" if ran_small else "none ran")
    # With the last stream of a category its penalty has gone.
    assert all(value == 0 for value in said.values())
