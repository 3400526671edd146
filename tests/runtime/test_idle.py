"""Streams whose camera has gone, on a clock that only moves when it is told to."""

import asyncio
from types import SimpleNamespace

import pytest

from gateway.core.types import NS_PER_S
from gateway.runtime.idle import IdleWatch
from gateway.runtime.virtual import VirtualClock
from tests.runtime_support import admitted, frame, gateway_on_stand_in, make_spec, until


def record(now_ns=0, seen_ns=None, **fields):
    return SimpleNamespace(spec=make_spec(**fields), admitted_ns=now_ns, seen_ns=seen_ns, state="active")


def closed_at_s(*records, limit_s=10.0, frames=(), until_s=100):
    """Return when each stream is closed in 100 s, None if it is not; `frames` come of the first, in s."""
    clock, closed = VirtualClock(), {}
    clock.call_at(until_s * NS_PER_S, lambda: watch.stop())

    def close(each):
        each.state = "closing"
        closed[id(each)] = clock.now_ns() / NS_PER_S

    watch = IdleWatch(clock, round(limit_s * NS_PER_S), lambda: records, close)
    for at_s in frames:
        clock.call_at(round(at_s * NS_PER_S), lambda: setattr(records[0], "seen_ns", clock.now_ns()))
    watch.start()
    clock.run()
    return [closed.get(id(each)) for each in records]


def test_one_that_never_sent_and_one_that_stopped():
    sends, never = record(), record()
    assert closed_at_s(sends, never, frames=[3.0, 12.5]) == [pytest.approx(23, abs=0.51), 10.0]


def test_one_that_keeps_its_contract_is_never_idle_however_slow():
    slow = record(period_ms=30_000, deadline_ms=1_000)
    assert closed_at_s(slow, frames=[0.0, 30.0, 60.0, 90.0]) == [None]
    late = record(period_ms=30_000, deadline_ms=1_000, jitter_ns=10 * NS_PER_S)
    assert closed_at_s(late, frames=[0.0]) == [pytest.approx(70, abs=1)]


def test_the_first_frame_may_be_announced_for_later():
    later = record(start_in_ns=50 * NS_PER_S)
    assert closed_at_s(later, frames=[50.0]) == [pytest.approx(60, abs=1)]


def test_without_a_limit_nobody_is_closed():
    assert closed_at_s(record(), limit_s=0) == [None]


def test_those_that_are_closing_are_left_alone():
    closing = record()
    closing.state = "closing"
    assert closed_at_s(closing) == [None]


def test_what_an_idle_stream_reserved_is_others_again():
    async def main():
        options = {"limits": {"idle_stream_s": 0.3}}
        async with gateway_on_stand_in(**options) as (gateway, _):
            gone = await admitted(gateway, period_ms=20, deadline_ms=40)
            alive = await admitted(gateway, period_ms=100, deadline_ms=200)
            before = gateway.view().utilization

            while not gone.ended:
                gateway.submit(alive.stream_id, frame(1))
                await asyncio.sleep(0.11)
            assert (gone.state, gone.close_reason) == ("closed", "idle")
            assert gateway.view().utilization < before
            assert [each.stream_id for each in gateway.streams()] == [alive.stream_id]
            assert gateway.totals.streams == {"idle": 1}
            await gateway.close_stream(alive.stream_id)
            await until(lambda: alive.ended)
            assert alive.close_reason == "asked"
            assert gateway.totals.streams == {"idle": 1, "asked": 1}

    asyncio.run(main())
