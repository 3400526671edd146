"""Field report 15: after a network stall a camera delivers its backlog at once, and its delay never recovers."""

import time
from random import Random

import httpx
import pytest

from gateway.core.actions import AcceptFrames, DeliverFrames, DropFrames, RefuseFrames
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import FramesArrived, RegisterStream
from gateway.core.types import Outcome
from tests.api.served import Served
from tests.core.factories import MS, act_out, every, make_profile, make_spec
from tests.field.support import steady

STALL_MS, BACKLOG = 3_000, 30
FRAME = bytes(192)


def backlog(rng, seconds):
    """Arrivals of A in ms, and when its backlog comes: on a grid of 100, each up to 50 late if `rng` says so."""
    begin = 2_000
    late = (lambda: rng.uniform(0, 50)) if rng else (lambda: 0)
    before = [100 * n + late() for n in range(begin // 100)]
    burst = [begin + STALL_MS + n * 50 / BACKLOG for n in range(BACKLOG)]
    after = [begin + STALL_MS + 100 * n + late() for n in range(1, round(10 * seconds))]
    return before, burst, after


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_backlog_is_surplus_and_nobody_notices(seed, length):
    """B and C fill the device so that no other stream would be admitted."""
    rng = seed and Random(seed)
    engine = Engine(make_profile(m=[18, 20, 22, 24]), EngineConfig())
    contract = {"jitter_ns": 50 * MS}
    before, burst, after = backlog(rng, length(3, 60))
    end = max(after)
    happens = [(0, RegisterStream(name, make_spec(100, 200, **contract))) for name in "abc"]
    happens += [(t, FramesArrived("a")) for t in (*before, *burst, *after)]
    for name, phase in (("b", 13), ("c", 61)):
        late = (lambda: rng.uniform(0, 50)) if rng else (lambda: 0)
        happens += [(phase + 100 * n + late(), FramesArrived(name)) for n in range(round(end / 100))]
    log = act_out(engine, happens)
    actions = [action for _, action in log]
    ends = {
        (f.stream_id, f.seq): o
        for d in every(actions, DeliverFrames)
        for f, o in zip(d.job.frames, d.outcomes, strict=True)
    }
    assert not every(actions, DropFrames)
    assert set(ends.values()) == {Outcome.MET}
    refused = [(t / MS, a) for t, a in log if isinstance(a, RefuseFrames)]
    assert {(a.stream_id, a.reason) for _, a in refused} == {("a", "surplus")}
    assert BACKLOG - 2 <= len(refused) <= BACKLOG, "what a grid does not explain"
    assert all(burst[0] <= t <= burst[-1] + 150 for t, _ in refused), "and then the camera is back to normal"
    taken = [t / MS for t, a in log if isinstance(a, AcceptFrames) and a.frames[0].stream_id == "a"]
    assert any(burst[-1] < t <= burst[-1] + 150 for t in taken), "recovered within about a period"


def test_over_http(length):
    """The backlog as fast as the network gives it; the others are cameras of their own threads."""
    with Served(scheduling={"policing": True}) as served, httpx.Client() as client:
        others = {"fps": 10, "deadline_ms": 400}
        with (
            steady(served, FRAME, **others) as b,
            steady(served, FRAME, **others) as c,
            served.stream(period_ms=100, deadline_ms=400, jitter_ms=10) as a,
        ):
            url = served.url + a["frames_url"]

            def post():
                return client.post(url, content=FRAME)

            for _ in range(3):
                assert post().status_code == 200
                time.sleep(0.11)
            time.sleep(length(1.0, 3.0))
            answers = [post() for _ in range(BACKLOG)]
            codes = [answer.status_code for answer in answers]
            assert codes[0] == 200
            assert codes.count(429) >= BACKLOG / 2
            assert all(answer.headers["retry-after"] for answer in answers if answer.status_code == 429)
            time.sleep(0.11)
            [result] = post().json()["results"]
            assert result["outcome"] == "met"
            time.sleep(0.5)
        for other in (b, c):
            assert set(other.outcomes) == {"met"}, other.outcomes
