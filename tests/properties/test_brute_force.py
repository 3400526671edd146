"""The imitator against an independent EDF (`tests.properties.brute_force`): verdicts, first misses, whole schedules."""

from dataclasses import replace

import numpy as np
from hypothesis import event, given, settings

from gateway.core.admission import evaluate, plan, widen, with_candidate
from gateway.core.verdict import Reason
from tests.properties.brute_force import edf
from tests.properties.strategies import NOW, spec_of_any_kind, states

many = settings(max_examples=1_500)


@many
@given(states(), spec_of_any_kind())
def test_verdict_and_first_miss_agree(state, spec):
    verdict = evaluate(state, spec, "new")
    if verdict.phase < 2:
        event(str(verdict.reason))
        return
    planned = with_candidate(state, spec, "new")
    done, late = edf(planned)
    event("late" if late else "in time")
    assert verdict.test == "exact"
    assert verdict.admitted is (late is None)
    if late is None:
        mine = [job.finish - arrival for job in done for name, arrival in job.frames if name == "new"]
        assert verdict.worst_latency_ns == max(mine)
        return
    miss = verdict.first_miss
    assert verdict.reason is Reason.DEADLINE_MISS
    assert (miss.category, miss.frames) == (late.category, len(late.frames))
    assert set(miss.streams) == {name for name, _ in late.frames}
    assert miss.release_ns == late.release - NOW
    assert miss.deadline_ns == late.deadline - NOW
    assert miss.finish_ns == late.finish - NOW


@many
@given(states(), spec_of_any_kind())
def test_the_slots_are_the_schedule(state, spec):
    """Row by row, and each latest start by its definition."""
    found = plan(state, spec, "new")
    if not found.verdict.admitted:
        return
    slots = found.slots
    done, _ = edf(with_candidate(state, spec, "new"))
    event(f"{min(len(done), 8)} slots or more")
    rows = zip(
        [found.windows[w].category for w in slots.window.tolist()],
        slots.job.tolist(),
        slots.release.tolist(),
        slots.size.tolist(),
        slots.deadline.tolist(),
        slots.execution.tolist(),
        slots.start.tolist(),
        strict=True,
    )
    assert list(rows) == [
        (job.category, job.id, job.release, len(job.frames), job.deadline, job.execution, job.start) for job in done
    ]
    assert slots.chunk.tolist() == [job.chunk for job in done]
    latest = 2**62
    for row in range(len(slots) - 1, -1, -1):
        latest = min(int(slots.deadline[row]), latest) - int(slots.execution[row])
        assert slots.latest[row] == latest
    assert bool(np.all(slots.start <= slots.latest))


@settings(max_examples=300)
@given(states())
def test_without_streams_the_rest_of_a_run_is_in_time_or_not(state):
    """What waits and what is ready, and nothing to come."""
    bare = replace(state, streams=())
    _, late = edf(bare)
    assert widen(bare).verdict.admitted is (late is None)
