import json
from typing import get_args

from gateway.core import log
from gateway.core.actions import Action
from gateway.core.events import (
    CloseStream,
    FrameCancelled,
    FramesArrived,
    JobFailed,
    JobFinished,
    LimitBatches,
    RegisterStream,
    WidenWindows,
)
from gateway.core.log import entry
from tests.core.factories import MS, Drive, make_category, make_profile, make_spec


def lines(gate, t, *events):
    return [entry(round(t * MS), action) for action in gate.at(t, *events)]


def test_every_kind_of_action_has_its_line():
    assert set(log._DESCRIBE) == set(get_args(Action))


def test_a_line_for_each_action():
    gate = Drive(make_profile(m=[10, 12]))
    register = [RegisterStream("a", make_spec(100, 40, name="door")), RegisterStream("b", make_spec(100, 15))]
    admitted, rejected = lines(gate, 0, *register)
    assert admitted["action"] == "admitted"
    assert admitted["name"] == "door"
    assert admitted["category"] == "m/1[8, 8, 3]UINT8"
    assert (rejected["action"], rejected["stream"], rejected["reason"]) == ("rejected", "b", "deadline_miss")
    assert rejected["first_miss"]["streams"] == ["a", "b"]
    accepted, started = lines(gate, 1, FramesArrived("a"))
    assert accepted == {"t_ns": MS, "action": "accept_frames", "frames": [["a", 0, 0, 41 * MS]]}
    assert started == {
        "t_ns": MS,
        "action": "start_job",
        "job": 0,
        "category": "m/1[8, 8, 3]UINT8",
        "batch": 1,
        "release_ns": MS,
        "deadline_ns": 41 * MS,
        "early": True,
        "frames": [["a", 0]],
    }
    lines(gate, 2, FramesArrived("a", 2))
    (dropped,) = lines(gate, 3, FrameCancelled("a", 1))
    assert dropped["outcome"] == "cancelled"
    assert dropped["moved"] == [[1, 1, 0]]
    delivered, _ = lines(gate, 11, JobFinished(0))
    assert (delivered["action"], delivered["outcomes"], delivered["started_ns"]) == ("deliver_frames", ["met"], MS)
    lines(gate, 12, CloseStream("a"))
    (refused,) = lines(gate, 13, FramesArrived("a", 3))
    assert (refused["batch"], refused["reason"]) == (3, "closed")
    *_, ended = lines(gate, 14, JobFinished(1))
    assert ended == {"t_ns": 14 * MS, "action": "stream_ended", "stream": "a", "reason": "closed"}


def test_lines_are_json():
    gate = Drive(make_profile(m=[10, 12]))
    events = [RegisterStream("a", make_spec(100, 40)), FramesArrived("a", 3), CloseStream("a"), JobFinished(0)]
    found = lines(gate, 0, *events)
    assert json.loads(json.dumps(found)) == found


def test_a_delivery_shows_expected_beside_actual():
    gate = Drive(make_profile(m=[10, 12]))
    lines(gate, 0, RegisterStream("a", make_spec(100, 40, frames=2)), FramesArrived("a"))
    delivered = lines(gate, 9, JobFinished(0))[0]
    assert (delivered["expected_ns"], delivered["actual_ns"], delivered["finished_ns"]) == (10 * MS, 9 * MS, 9 * MS)
    assert delivered["planned_end_ns"] == 30 * MS, "its joint is at 20"


def test_second_tries_and_limits_are_told():
    gate = Drive(make_profile(m=[10, 12]), early_dispatch=False)
    lines(gate, 0, RegisterStream("a", make_spec(100, 100, burst=2)), FramesArrived("a", 2))
    gate.at(50)
    retried, started = lines(gate, 60, JobFailed(0, "NaN", retry=True))
    assert retried == {
        "t_ns": 60 * MS,
        "action": "retry_frames",
        "job": 0,
        "frames": [["a", 0, 1, 100 * MS], ["a", 1, 2, 100 * MS]],
    }
    assert (started["job"], started["batch"]) == (1, 1)
    (limited,) = lines(gate, 61, LimitBatches(make_category(), "told so"))
    assert (limited["action"], limited["batch"], limited["limited_by"]) == ("batch_limited", 1, "told so")
    assert (limited["test"], limited["category"]) == ("sporadic", "m/1[8, 8, 3]UINT8")
    assert json.loads(json.dumps([retried, limited])) == [retried, limited]


def test_changes_of_plans_are_told():
    gate = Drive(make_profile(m=[2]), early_dispatch=False)
    tight, wide = make_spec(50, 20, frames=1, start_in=1), make_spec(50, 60, frames=4, start_in=7)
    admitted = lines(gate, 0, RegisterStream("a", tight), RegisterStream("b", wide))
    assert admitted[0]["worst_latency_ns"] == 11 * MS
    plan = gate.engine.plan(tight, 0, "c")
    lines(gate, 1, CloseStream("a"))
    assert lines(gate, 2, RegisterStream("c", tight, plan)) == [
        {"t_ns": 2 * MS, "action": "plan_stale", "stream": "c"},
    ]
    assert lines(gate, 3, WidenWindows()) == [
        {"t_ns": 3 * MS, "action": "window_widened", "category": "m/1[8, 8, 3]UINT8", "window_ns": 30 * MS},
    ]
