import asyncio
import gc
import time

import pytest
import uvloop
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.parser import text_string_to_metric_families

from gateway.clock import MonotonicClock
from gateway.core.types import NS_PER_MS as MS
from gateway.telemetry.durations import BOUNDS_S, Durations
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.stalls import INTERVAL_S, Stalls, WatchedClock

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


def run(new_loop, main):
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


def over(durations, bound_s):
    """Return how many were longer than one of the bounds."""
    return durations.count - dict(durations.buckets())[str(bound_s)]


def test_durations_are_counted_by_bucket():
    durations = Durations()
    for ms in (0, 0.5, 0.500001, 5, 99, 100, 5_000):
        durations.add(round(ms * MS))
    counts = dict(durations.buckets())
    assert list(counts) == [*map(str, BOUNDS_S), "+Inf"]
    assert [counts[bound] for bound in ("0.0005", "0.001", "0.004", "0.005", "0.05", "0.1", "+Inf")] == [
        *(2, 3, 3, 4, 4, 6, 7)
    ]
    assert (durations.count, durations.sum) == (7, pytest.approx(5.205, abs=1e-6))


def test_all_of_it_is_in_the_metrics_from_the_start():
    metrics = Metrics("1")
    metrics.stalls.lag.add(3 * MS)
    metrics.stalls.pauses["1"].add(MS)
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }
    assert samples["framegate_event_loop_lag_seconds_bucket", "0.003"] == 1
    assert samples["framegate_event_loop_lag_seconds_bucket", "0.002"] == 0
    assert samples["framegate_event_loop_lag_seconds_sum",] == pytest.approx(0.003)
    assert samples["framegate_timer_late_seconds_count",] == 0
    assert [samples["framegate_gc_pause_seconds_count", generation] for generation in "012"] == [0, 1, 0]


@pytest.mark.parametrize("new_loop", LOOPS)
def test_what_holds_up_the_loop_is_seen(new_loop):
    stalls = Stalls(CollectorRegistry())

    async def main():
        stalls.start()
        await asyncio.sleep(3.5 * INTERVAL_S)
        seen = stalls.lag.count
        assert 2 <= seen <= 4
        time.sleep(3 * INTERVAL_S)  # longer than its interval: one of the timers is due meanwhile
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        assert over(stalls.lag, 0.05) >= 1
        stalls.stop()
        stalls.stop()
        seen = stalls.lag.count
        await asyncio.sleep(2 * INTERVAL_S)
        assert stalls.lag.count == seen

    run(new_loop, main)


def test_collections_are_timed_by_generation_until_it_stops():
    before = list(gc.callbacks)
    stalls = Stalls(CollectorRegistry())

    async def main():
        stalls.start()
        counts = {generation: pauses.count for generation, pauses in stalls.pauses.items()}
        gc.collect(2)
        gc.collect(1)
        gc.collect(1)
        assert stalls.pauses["2"].count == counts["2"] + 1
        assert stalls.pauses["1"].count >= counts["1"] + 2
        assert 0 < stalls.pauses["2"].sum < 10
        stalls.stop()

    run(asyncio.new_event_loop, main)
    assert gc.callbacks == before


def test_a_collection_in_the_middle_of_another_metric_is_no_deadlock():
    """prometheus_client's own histogram would take a lock that this thread holds already."""
    registry = CollectorRegistry()
    stalls = Stalls(registry)
    other = Histogram("other", "Another one", registry=registry)

    async def main():
        stalls.start()
        with other._sum._lock:
            gc.collect()
        stalls.stop()

    run(asyncio.new_event_loop, main)
    assert stalls.pauses["2"].count == 1


@pytest.mark.parametrize("new_loop", LOOPS)
def test_wake_ups_say_how_late_they_came(new_loop):
    late = Durations()
    clock = WatchedClock(late)

    async def main():
        ended, now_ns = asyncio.Event(), clock.now_ns()
        clock.call_at(now_ns + 5 * MS, lambda: None)
        clock.call_at(now_ns + 10 * MS, lambda: None).cancel()
        time.sleep(0.03)
        clock.call_at(now_ns, ended.set)  # asked for when it was over: that is not the loop's fault
        await ended.wait()
        await asyncio.sleep(0.005)

    run(new_loop, main)
    assert late.count == 2
    assert over(late, 0.015) == 1


def test_a_watched_clock_is_a_clock():
    """The same instants, the same rounding; a callback that raises is the loop's affair as before."""
    clock, times = WatchedClock(Durations()), []

    async def main():
        before = MonotonicClock().now_ns()
        assert before <= clock.now_ns() <= MonotonicClock().now_ns()
        clock.call_at(before + 3 * MS, lambda: times.append(clock.now_ns() - before))
        await asyncio.sleep(0.05)

    run(asyncio.new_event_loop, main)
    assert len(times) == 1
    assert times[0] >= 3 * MS
