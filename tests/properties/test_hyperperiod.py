"""Plans that repeat: five repetitions of the table are what an independent EDF does, and nothing is late."""

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gateway.core.admission import plan, with_candidate
from gateway.core.verdict import Reason
from tests.core.factories import MS
from tests.properties.brute_force import edf
from tests.properties.strategies import NOW, ROUND, SOME_FRAMES, spec_of_any_kind, states

_MAYBE_UNBOUNDED = st.one_of(st.none(), st.none(), SOME_FRAMES)
some_states = states(admission_test="exact", frames=_MAYBE_UNBOUNDED, most=2, periods=ROUND, widths=ROUND)
some_specs = spec_of_any_kind(frames=st.none(), periods=ROUND, widths=ROUND)
_LONGEST = 1_500 * MS  # of what the independent EDF is asked to run


def unrolled(slots, until):
    """Rows of the table and of its repetitions that start before `until`."""
    columns = [column.tolist() for column in (slots.start, slots.release, slots.size, slots.deadline, slots.latest)]
    rows = list(zip(*columns, strict=True))
    shift = 0
    while True:
        for start, release, size, deadline, latest in rows:
            if start + shift >= until:
                return
            yield start + shift, release + shift, size, deadline + shift, latest + shift
        rows, shift = list(zip(*columns, strict=True))[slots.repeat_from :], shift + slots.repeat_ns


@settings(max_examples=1_500)
@given(some_states, some_specs)
def test_five_repetitions_miss_nothing(state, spec):
    found = plan(state, spec, "new")
    verdict = found.verdict
    if verdict.phase < 2:
        event(f"phase {verdict.phase}")
        return
    event(f"{verdict.admitted} {verdict.reason}")
    assert verdict.test == "hyperperiod"
    planned = with_candidate(state, spec, "new")
    if verdict.reason is Reason.DEADLINE_MISS and verdict.first_miss.finish_ns < _LONGEST:
        _, late = edf(planned, NOW + verdict.first_miss.finish_ns + 1)
        assert late is not None
        assert (late.finish - NOW, late.category) == (verdict.first_miss.finish_ns, verdict.first_miss.category)
    if not verdict.admitted:
        return
    slots = found.slots
    assert slots.repeat_ns > 0
    assert (slots.job[slots.repeat_from :] == -1).all()
    until = NOW + min(_LONGEST, verdict.horizon_ns + 5 * slots.repeat_ns)
    done, late = edf(planned, until)
    assert late is None or late.start >= until
    ran = [(job.start, job.release, len(job.frames), job.deadline) for job in done if job.start < until]
    rows = list(unrolled(slots, until))
    assert [row[:4] for row in rows] == ran
    assert all(start <= latest <= deadline for start, _, _, deadline, latest in rows)


@settings(max_examples=300)
@given(some_states, some_specs)
def test_latest_starts_allow_for_all_that_is_to_come(state, spec):
    """By the definition, over ten further copies."""
    slots = plan(state, spec, "new").slots
    if slots is None or not len(slots):
        return
    execution = slots.execution.tolist() + slots.execution[slots.repeat_from :].tolist() * 10
    copies = [slots.deadline[slots.repeat_from :] + k * slots.repeat_ns for k in range(1, 11)]
    deadline = slots.deadline.tolist() + [d for copy in copies for d in copy.tolist()]
    latest = 2**62
    for row in range(len(execution) - 1, -1, -1):
        latest = min(deadline[row], latest) - execution[row]
        if row < len(slots):
            assert slots.latest[row] == latest
