import json

from gateway.core.events import (
    CloseStream,
    FrameCancelled,
    FramesArrived,
    JobFinished,
    RegisterStream,
)
from gateway.core.log import entry
from tests.core.factories import MS, Drive, make_profile, make_spec


def lines(gate, t, *events):
    return [entry(round(t * MS), action) for action in gate.at(t, *events)]


def test_a_line_for_each_action():
    gate = Drive(make_profile(m=[10, 12]))
    register = [RegisterStream("a", make_spec(100, 40)), RegisterStream("b", make_spec(100, 15))]
    admitted, rejected = lines(gate, 0, *register)
    assert admitted["action"] == "admitted"
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
