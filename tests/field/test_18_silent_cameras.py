"""Field report 18: the batcher waits for cameras that send nothing."""

import pytest

from gateway.core.actions import DeliverFrames, StartJob, StreamEnded
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import CloseStream, FramesArrived, RegisterStream
from gateway.core.types import Outcome
from tests.core.factories import MS, act_out, every, make_profile, make_spec

PERIOD, DEADLINE = 1000 / 30, 60
WINDOW_NS = round(DEADLINE * MS) // 2


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("test", ["auto", "exact"])
def test_a_window_ends_by_time_whoever_is_silent(early, test, length):
    """B is silent, sends once in a second, then leaves with a frame waiting."""
    engine = Engine(make_profile(m=[3, 4, 5, 6]), EngineConfig(early_dispatch=early, admission_test=test))
    seconds = length(6, 60)
    spec = make_spec(PERIOD, DEADLINE, jitter_ns=5 * MS, frames=round(40 * seconds) if test == "exact" else None)
    happens = [(0, RegisterStream("a", spec)), (0, RegisterStream("b", spec))]
    happens += [(n * PERIOD, FramesArrived("a")) for n in range(round(30 * seconds))]
    rare = [1_000.0 * n + 7 for n in range(2, round(seconds))]
    last = 1_000 * seconds
    happens += [(t, FramesArrived("b")) for t in (*rare, last)]
    happens += [(last + 1, CloseStream("b"))]
    log = act_out(engine, happens)
    for t_ns, action in log:
        if isinstance(action, StartJob):
            # The window's end, and a job that may be in the way of this one.
            assert all(t_ns - f.arrival_ns <= WINDOW_NS + 6 * MS for f in action.job.frames)
    done = [
        (t, f, o) for t, a in log if isinstance(a, DeliverFrames) for f, o in zip(a.job.frames, a.outcomes, strict=True)
    ]
    assert {o for _, _, o in done} == {Outcome.MET}
    assert sum(f.stream_id == "a" for _, f, _ in done) == round(30 * seconds)
    of_b = [(t, f) for t, f, _ in done if f.stream_id == "b"]
    assert len(of_b) == len(rare) + 1, "the last frame of a stream that has gone is answered too"
    assert of_b[-1][0] <= round((last + DEADLINE) * MS)
    assert [action.stream_id for action in every([a for _, a in log], StreamEnded)][-1:] == ["b"] or test == "exact"
