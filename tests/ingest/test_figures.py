"""What a process says of itself is added to the scheduler's counters, as far as it is what a process counts."""

import json

import pytest

from gateway.ingest.figures import Figures
from gateway.telemetry.metrics import Metrics

FRAMES = "/v1/streams/{stream_id}/frames"
GOOD = [
    ["refused", "arena_full", 3],
    ["responses", "POST", FRAMES, "200", 7],
    ["responses", "other", FRAMES, "405", 1],
    ["responses", "GET", "/v1/streams/{stream_id}/ws", "101", 2],
    ["responses", "GET", "unmatched", "499", 2],
    ["undelivered", "slow_reader", 4],
]


def hear(figures, metrics, *counts):
    figures.hear(json.dumps({"bytes": [0, 0, 0], "cpu_s": 0.0, "sockets": 0, "counts": counts}).encode(), metrics)


def series(metrics):
    found = {tuple(s.labels.values()): s.value for f in metrics.responses.collect() for s in f.samples}
    return {labels: value for labels, value in found.items() if labels}, dict(metrics.refused)


def test_what_is_new_is_added():
    figures, metrics = Figures(), Metrics("test")
    for _ in range(2):
        hear(figures, metrics, *GOOD)
    assert metrics.refused == {"arena_full": 3}
    assert series(metrics)[0]["POST", FRAMES, "200"] == 7
    figures.end(metrics)
    hear(figures, metrics, *GOOD)
    assert series(metrics)[0]["POST", FRAMES, "200"] == 14


@pytest.mark.parametrize(
    "key",
    [
        ["refused", "made up"],
        ["refused"],
        ["responses", "BREW", FRAMES, "200"],
        ["responses", "POST", "/v1/streams/one/frames", "200"],
        ["responses", "POST", FRAMES, "1000"],
        ["responses", "POST", FRAMES],
        ["undelivered", "made up"],
        ["anything"],
    ],
    ids=str,
)
def test_strangers_can_make_no_series_through_a_process(key):
    figures, metrics = Figures(), Metrics("test")
    before = series(metrics)
    hear(figures, metrics, [*key, 5])
    assert series(metrics) == before
