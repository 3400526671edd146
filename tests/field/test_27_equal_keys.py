"""Report 27: queue entries with equal keys, and an exception in the middle of a dispatch."""

import numpy as np

from gateway.core.actions import DropFrames, StartJob
from gateway.core.events import FramesArrived, JobFailed
from gateway.core.types import Outcome
from tests.api.served import FRAME, Served, problem, wait_until
from tests.core.factories import MS, Drive, deliveries, every, make_profile, make_spec
from tests.runtime_support import admitted, frame, gateway_on_stand_in
from tests.runtime_support import make_profile as runtime_profile

STREAMS, EACH = 50, 20


def names():
    return [f"s{n:02}" for n in range(STREAMS)]


def test_a_thousand_entries_of_one_deadline_and_arrival_go_in_their_order():
    """Of 25 categories, two streams each. No two heap entries can be told apart but by their sequence."""
    profile = make_profile(**{f"m{n}": [1, 1, 1, 1] for n in range(STREAMS // 2)})
    drive = Drive(profile, admit_all=True)
    drive.register(0, **{name: make_spec(1000, 5000, model=f"m{n // 2}", burst=EACH) for n, name in enumerate(names())})
    actions = [action for name in names() for action in drive.at(10, FramesArrived(name, EACH))]
    done, t = [], 10
    while starts := every(actions, StartJob):
        [start] = starts
        assert {f.deadline_ns for f in start.job.frames} == {5010 * MS}
        t += 1
        actions = drive.finish(t, start.job)
        done += deliveries([(t, action) for action in actions])
    frames = [f for d in done for f in d.job.frames]
    assert len(frames) == STREAMS * EACH
    assert len({(f.stream_id, f.seq) for f in frames}) == len(frames)
    jobs = [d.job.id for d in done]
    assert jobs == sorted(jobs), "first come, first served"
    for name in names():
        assert [f.seq for f in frames if f.stream_id == name] == list(range(EACH))
    assert {outcome for d in done for outcome in d.outcomes} == {Outcome.MET}


def test_they_expire_and_are_cancelled_in_their_order_too():
    drive = Drive(make_profile(m=[40, 40, 40, 40]), admit_all=True)  # the first job overruns
    drive.register(0, **{name: make_spec(1000, 50, burst=EACH) for name in names()})
    for name in names():
        drive.at(10, FramesArrived(name, EACH))
    actions = drive.at(60)
    gone = [f for action in every(actions, DropFrames) for f in action.frames]
    assert {f.deadline_ns for f in gone} == {60 * MS}
    running = drive.engine.snapshot().running
    assert len(gone) == STREAMS * EACH - len(running.frames)
    assert drive.at(110, JobFailed(running.id, "broken"))
    assert drive.engine.snapshot().ready == ()


def test_payloads_are_never_compared():
    """Arrays and dictionaries have no order: the gateway keeps them beside the queue, by name."""
    import asyncio

    async def main():
        profile = runtime_profile(execution_ms=0.1)
        async with gateway_on_stand_in(profile) as (gateway, _):
            records = [await admitted(gateway, period_ms=1000, deadline_ms=5000, burst=4) for _ in range(10)]
            bodies = [np.full(4 * 192, n, np.uint8) for n in range(10)]
            tickets = [t for r, body in zip(records, bodies, strict=True) for t in gateway.submit(r.stream_id, body)]
            results = [await ticket.result for ticket in tickets]
            assert [int(r.outputs["echo"][0, 0, 0]) for r in results] == [n // 4 for n in range(40)]
            assert frame(3) == bytes(bodies[3][:192])

    asyncio.run(main())


def test_an_exception_in_a_dispatch_turns_ready_off(caplog):
    """Nothing can be trusted after it: the gateway says so at once, and whoever waits is told."""
    with Served() as served, served.stream() as stream:
        executor = served.gateway._parts.executor
        start, calls = executor.start, []

        def fails(job):
            calls.append(job)
            raise TypeError("'<' not supported between instances of 'dict' and 'dict'")

        served.call(setattr, executor, "start", fails)
        answer = served.http.post(stream["frames_url"], content=FRAME)
        assert answer.status_code == 500
        wait_until(lambda: served.http.get("/v2/health/ready").status_code == 503, "it still says that it is ready")
        problem(served.http.get("/v2/health/live"), 503, "engine_failed")
        served.call(setattr, executor, "start", start)
    assert len(calls) == 1
    assert any("only a restart helps" in record.getMessage() for record in caplog.records)
