from collections import Counter
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.core.actions import AcceptFrames, DeliverFrames, PlanStale
from gateway.core.events import RegisterStream, Tick, WidenWindows
from gateway.core.types import NS_PER_MS, Category, Frame, Job, Outcome, ServiceClass, StreamSpec
from gateway.core.view import CategoryView, EngineView, MemoryView, ModelTotals, StreamView
from gateway.runtime.pages import Pages
from gateway.telemetry.collector import GatewayCollector
from gateway.telemetry.metrics import Metrics

CATEGORY = Category("echo", "1", (4, 4, 3))
SPEC = StreamSpec("echo", "1", (4, 4, 3), period_ns=100 * NS_PER_MS, deadline_ns=200 * NS_PER_MS, name="door")


def frame(seq, arrival_ms, stream_id="s"):
    return Frame(stream_id, seq, arrival_ms * NS_PER_MS, (arrival_ms + 200) * NS_PER_MS, job=1)


def delivery(frames, started_ms, finished_ms, execution_ms=20, early=False, cause="", small=None, ahead=False):
    job = Job(1, CATEGORY, tuple(frames), 0, 10**12, execution_ms * NS_PER_MS, early, small=small, ahead=ahead)
    outcomes = (Outcome.MET,) * len(frames)
    return DeliverFrames(job, outcomes, finished_ms * NS_PER_MS, started_ms * NS_PER_MS, cause)


def samples(metrics):
    text = metrics.render().decode()
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_job_is_recorded_in_seconds():
    metrics = Metrics("1")
    metrics.on_actions(0, Tick(), [delivery([frame(0, 100), frame(1, 110)], started_ms=120, finished_ms=140)])
    seen = samples(metrics)
    assert seen["framegate_job_batch_frames_sum", "echo"] == 2
    assert seen["framegate_job_batch_frames_count", "echo"] == 1
    assert seen["framegate_job_execute_seconds_sum", "echo"] == pytest.approx(0.020)
    assert seen["framegate_frame_latency_seconds_sum", "echo"] == pytest.approx(0.040 + 0.030)
    assert seen["framegate_frame_queue_seconds_sum", "echo"] == pytest.approx(0.020 + 0.010)
    assert seen["framegate_jobs_overrun_total", "echo"] == 0  # just on time is no overrun
    assert seen["framegate_jobs_early_total", "echo"] == 0


def test_overruns_early_jobs_and_those_that_were_sent_ahead_are_counted():
    metrics = Metrics("1")
    late = delivery([frame(0, 0)], 0, 21, early=True, cause="overrun")
    metrics.on_actions(0, Tick(), [late, delivery([frame(1, 0)], 30, 40, ahead=True)])
    seen = samples(metrics)
    assert seen["framegate_jobs_sent_ahead_total", "echo"] == 1
    assert seen["framegate_jobs_overrun_total", "echo"] == 1
    assert seen["framegate_jobs_early_total", "echo"] == 1


def test_overruns_are_shown_by_cause_and_degraded_frames_counted():
    metrics = Metrics("1")
    small = Category("echo", "1", (2, 2, 3))
    deliveries = [
        delivery([frame(0, 0)], 0, 25, cause="overrun"),
        delivery([frame(1, 0)], 30, 90, cause="cold"),
        delivery([frame(2, 0), frame(3, 0)], 100, 110, small=small),
    ]
    metrics.on_actions(0, Tick(), deliveries)
    seen = samples(metrics)
    name = "framegate_overrun_seconds_total"
    assert seen[name, "echo", "overrun"] == pytest.approx(0.005)
    assert seen[name, "cold", "echo"] == pytest.approx(0.040)
    assert seen[name, "echo", "warm_up"] == 0
    assert seen["framegate_jobs_overrun_total", "echo"] == 2
    assert seen["framegate_frames_degraded_total", "echo"] == 2


def test_penalties_are_gauges_of_real_time_categories():
    gateway, metrics = collected()
    best_effort = Category("echo", "1", (4, 4, 3), service_class=ServiceClass.BEST_EFFORT)
    gateway.categories = (
        CategoryView(CATEGORY, 1, 1, 0, ("s",), penalty_ns=250 * NS_PER_MS, small_shape=(2, 2, 3)),
        CategoryView(best_effort, 1, 1, 0, ("b",)),
    )
    seen = samples(metrics)
    assert {key: value for key, value in seen.items() if "4x4x3" in key} == {
        ("framegate_penalty_seconds", "4x4x3", "echo"): 0.25,
        ("framegate_degraded", "4x4x3", "echo"): 1,
    }


def test_execution_times_are_compared_with_the_profile():
    metrics = Metrics("1")
    for number, ended_ms in enumerate((10, 19, 21, 45)):
        metrics.on_actions(0, Tick(), [delivery([frame(number, 0)], 0, ended_ms, execution_ms=20)])
    seen = samples(metrics)
    name = "framegate_job_execution_ratio_bucket"
    assert [seen[name, edge, "echo"] for edge in ("0.5", "0.9", "1.0", "1.1", "2.0", "3.0")] == [1, 1, 2, 3, 3, 4]


def test_plans_that_were_void_are_counted():
    metrics = Metrics("1")
    before = samples(metrics)
    assert (before["framegate_plans_stale_total", "register"], before["framegate_plans_stale_total", "widen"]) == (0, 0)
    metrics.on_actions(0, RegisterStream("s", SPEC), [PlanStale("s")])
    metrics.on_actions(0, WidenWindows(), [PlanStale("")])
    metrics.on_actions(0, WidenWindows(), [PlanStale("")])
    seen = samples(metrics)
    assert (seen["framegate_plans_stale_total", "register"], seen["framegate_plans_stale_total", "widen"]) == (1, 2)


def test_admission_tests_are_timed_by_call_and_test():
    metrics = Metrics("1")
    metrics.tested("register", "sporadic", 0.004)
    metrics.tested("check", "exact", 0.25)
    seen = samples(metrics)
    assert seen["framegate_admission_seconds_sum", "register", "sporadic"] == pytest.approx(0.004)
    assert seen["framegate_admission_seconds_bucket", "0.3", "check", "exact"] == 1


def test_no_series_says_when_another_one_began():
    metrics = Metrics("1")
    metrics.registrations.labels("admitted").inc()
    metrics.tested("check", "exact", 0.1)
    assert b"_created" not in metrics.render()


def test_other_actions_leave_no_trace_here():
    metrics = Metrics("1")
    before = metrics.render().splitlines()
    metrics.on_actions(0, Tick(), [AcceptFrames((frame(0, 0),))])
    assert len(metrics.render().splitlines()) == len(before)


class Gateway:
    """What the collector reads."""

    def __init__(self):
        self.ready = self.triton_ready = True
        self._books = SimpleNamespace(refused=Counter(stream_closed=2), streams=Counter(idle=2, asked=1))
        self.arena = SimpleNamespace(
            region=SimpleNamespace(size=1000, beside_bytes=50, pages=Pages(True, 400)),
            free_bytes=900,
            moves=3,
            overflows=2,
        )
        self.listed = ()
        self.categories = ()
        self.models = {}
        self.by_class = {}
        self.residency = []
        self.memory = MemoryView()

    def books(self, view):
        return self._books

    def model_views(self):
        return self.residency

    def streams(self):
        return self.listed

    def suspect(self, stream_id):
        return any(stream.stream_id == stream_id and stream.suspect for stream in self.listed)

    def view(self, *, streams):
        assert not streams
        return EngineView(
            now_ns=0,
            streams=(),
            categories=self.categories,
            ready=(),
            running=None,
            running_since_ns=None,
            worker_lost=False,
            utilization=0.25,
            models=self.models,
            refused={},
            by_class=self.by_class,
            memory=self.memory,
        )


def stream(stream_id, **outcomes):
    counts = {Outcome(name): count for name, count in outcomes.items()}
    ended = sum(counts.values())
    return StreamView(stream_id, SPEC, CATEGORY, "active", 0, ended + 1, counts, 1, 0, {}, None)


def collected():
    gateway, metrics = Gateway(), Metrics("1")
    metrics.registry.register(GatewayCollector(gateway, metrics))
    return gateway, metrics


def test_the_books_balance():
    gateway, metrics = collected()
    gateway.models = {"echo": ModelTotals(10, {Outcome.MET: 6, Outcome.EXPIRED: 3}, 1)}
    seen = samples(metrics)
    ended = sum(value for key, value in seen.items() if key[0] == "framegate_frames_total")
    assert seen["framegate_frames_accepted_total", "echo"] == ended + seen["framegate_frames_in_flight", "echo"] == 10
    assert seen["framegate_frames_total", "echo", "failed"] == 0  # absent is not zero to a query


def test_ended_frames_are_told_apart_by_what_was_promised():
    gateway, metrics = collected()
    gateway.by_class = {ServiceClass.REAL_TIME: {Outcome.MET: 6}, ServiceClass.BEST_EFFORT: {Outcome.MISSED: 3}}
    seen = samples(metrics)
    name = "framegate_frames_by_class_total"
    assert seen[name, "met", "real_time"] == 6
    assert seen[name, "missed", "real_time"] == 0  # absent is not zero to a query
    assert seen[name, "best_effort", "missed"] == 3


def test_refusals_of_gateway_and_api_are_one_book():
    _gateway, metrics = collected()
    metrics.refused.update(stream_closed=1, body_too_large=4)
    seen = samples(metrics)
    assert seen["framegate_refused_total", "stream_closed"] == 3
    assert seen["framegate_refused_total", "body_too_large"] == 4


def test_series_of_a_stream_end_with_it():
    gateway, metrics = collected()
    base = len(metrics.render().splitlines())
    for number in range(1_000):
        gateway.listed = (stream(f"id{number}", met=number),)
        text = metrics.render().decode()
        assert f'stream_id="id{number}"' in text
        assert f'stream_id="id{number - 1}"' not in text
    gateway.listed = ()
    assert len(metrics.render().splitlines()) == base


def test_odd_names_are_escaped_and_cut():
    gateway, metrics = collected()
    spec = StreamSpec("echo", "1", (4, 4, 3), 10**8, 10**8, name='a"b\\c\n' + "x" * 4096)
    view = stream("s")
    gateway.listed = (StreamView("s", spec, CATEGORY, "active", 0, 0, {}, 0, 0, {}, None), view)
    names = [key for key in samples(metrics) if key[0] == "framegate_stream_info"]
    assert any('a"b\\c\n' in value for key in names for value in key)
    assert max(len(value) for key in names for value in key) <= 64


def test_gauges():
    gateway, metrics = collected()
    gateway.triton_ready = False
    seen = samples(metrics)
    assert seen["framegate_triton_up",] == 0
    assert seen["framegate_ready",] == 1
    assert seen["framegate_utilization_ratio",] == 0.25
    assert seen["framegate_arena_bytes",] == 1000
    assert seen["framegate_arena_free_bytes",] == 900
    assert seen["framegate_arena_moves_total",] == 3
    assert seen["framegate_arena_overflows_total",] == 2
    assert seen["framegate_shm_free_bytes",] == 50
    assert seen["framegate_streams_ended_total", "idle"] == 2
    assert seen["framegate_build_info", "1"] == 1


def test_two_gateways_in_one_process_do_not_share_series():
    first, second = Metrics("1"), Metrics("1")
    first.registrations.labels("admitted").inc()
    assert ("framegate_registrations_total", "admitted") not in samples(second)
