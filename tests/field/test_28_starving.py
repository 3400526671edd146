"""Field report 28: under a steady load of the high class, the low class waits without bound."""

import time

import pytest

from gateway.core.actions import Admitted, DeliverFrames, DropFrames
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import FramesArrived, RegisterStream
from gateway.core.types import NS_PER_S, Outcome, ServiceClass
from tests.api.served import Served
from tests.core.factories import MS, act_out, make_profile, make_spec
from tests.field.support import steady

TIMEOUT = 2_000
#: A frame of either class takes so long.
EACH = 4


def cameras(engine, share=1.0):
    """Register cameras until one is refused; return those that make up `share` of them, the others not at all."""
    names = []
    while True:
        name = f"camera-{len(names)}"
        spec = make_spec(50, 100, jitter_ns=5 * MS)
        if not any(isinstance(a, Admitted) for a in engine.handle(RegisterStream(name, spec), 0)):
            break
        names.append(name)
    assert len(names) >= 4
    return names[: max(1, round(share * len(names)))]


def run(share, interval, seconds):
    """Cameras at `share` of the admitted limit, and a best-effort frame every `interval` ms."""
    engine = Engine(make_profile(m=[EACH, 2 * EACH, 3 * EACH, 4 * EACH]), EngineConfig(best_effort_window_ns=20 * MS))
    rest = make_spec(1_000, TIMEOUT, service_class=ServiceClass.BEST_EFFORT)
    engine.handle(RegisterStream("rest", rest), 0)
    names = cameras(engine, share)
    happens = [
        (n * 50 + k * 50 / len(names), FramesArrived(name))
        for k, name in enumerate(names)
        for n in range(round(20 * seconds))
    ]
    happens += [(n * interval + 3, FramesArrived("rest")) for n in range(round(seconds * 1e3 / interval))]
    ends, busy = {}, {"rest": 0.0, "cameras": 0.0}
    for t_ns, action in act_out(engine, happens):
        if isinstance(action, DeliverFrames):
            outcomes = action.outcomes
            if t_ns <= seconds * NS_PER_S:
                kind = "rest" if action.job.frames[0].stream_id == "rest" else "cameras"
                busy[kind] += (t_ns - action.started_ns) / NS_PER_S
            frames = action.job.frames
        elif isinstance(action, DropFrames):
            frames, outcomes = action.frames, [action.outcome] * len(action.frames)
        else:
            continue
        for frame, outcome in zip(frames, outcomes, strict=True):
            ends[frame.stream_id, frame.seq] = (outcome, (t_ns - frame.arrival_ns) / MS)
    of_cameras = [outcome for (name, _), (outcome, _) in ends.items() if name != "rest"]
    assert len(of_cameras) == len(names) * round(20 * seconds)
    assert set(of_cameras) == {Outcome.MET}
    return [end for (name, _), end in ends.items() if name == "rest"], busy


def test_each_ends_by_its_limit_beside_a_full_device(length):
    seconds = length(6, 60)
    ends, _ = run(0.95, 1_000, seconds)
    assert len(ends) == seconds
    assert all(took <= TIMEOUT for _, took in ends)
    assert all(outcome in {Outcome.MET, Outcome.EXPIRED} for outcome, _ in ends)


@pytest.mark.parametrize("share", [0.5, 0.95])
def test_it_gets_what_is_left(share, length):
    seconds = length(6, 60)
    _, busy = run(share, EACH / 2, seconds)
    assert busy["rest"] / (seconds - busy["cameras"]) >= 0.95


def test_over_http(length):
    with (
        Served(scheduling={"policing": True}, best_effort={"max_waiting": 8}) as served,
        steady(served, bytes(192)) as camera,
        served.stream(service_class="best_effort", deadline_ms=500) as stream,
    ):
        for _ in range(round(length(10, 300))):
            time.sleep(0.2)
            answer = served.http.post(stream["frames_url"], content=bytes(192))
            assert answer.status_code in {200, 503, 504}
            assert answer.elapsed.total_seconds() < 1
    assert set(camera.outcomes) == {"met"}
