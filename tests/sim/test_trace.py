import json

import pytest

from gateway.core.profile import Profile, ProfileEntry
from gateway.core.types import MAX_INTERVAL_NS, OnExcess, OnLate, ServiceClass
from gateway.sim.trace import TraceError, read_trace, write_trace
from tests.core.factories import MS, SHAPE, make_profile, make_spec, make_trace

STREAM = {"model": "m", "shape": [8, 8, 3], "period_ms": 100, "deadline_ms": 50}


def line(at_ms=0, drop=(), **fields):
    stream = {name: value for name, value in (STREAM | fields).items() if name not in drop}
    return json.dumps({"at_ms": at_ms, "stream": stream})


def read(*lines):
    return read_trace(lines, make_profile(m=[1]))


def test_fields_are_those_of_a_registration():
    (entry,) = read(line(at_ms=2.5, frames=7, start_in_ms=3, on_late="serve", name="door", dtype="FP16", version="4"))
    assert (entry.stream_id, entry.at_ns) == ("stream-1", 2_500_000)
    assert entry.spec == make_spec(
        100, 50, frames=7, start_in=3, on_late=OnLate.SERVE, name="door", dtype="FP16", version="4"
    )


def test_bursts_jitter_and_service_class():
    (entry,) = read(line(burst=4, jitter_ms=2.5, service_class="best_effort"))
    assert entry.spec == make_spec(100, 50, burst=4, jitter_ns=2_500_000, service_class=ServiceClass.BEST_EFFORT)
    assert read(*write_trace([entry])) == (entry,)


def test_defaults():
    (entry,) = read(line())
    assert entry.spec == make_spec(100, 50)


def test_a_rate_stands_for_a_period():
    (entry,) = read(line(drop=["period_ms"], fps=30))
    assert entry.spec.period_ns == 33_333_333


def test_the_newest_profiled_version_is_meant():
    profile = Profile(tuple(ProfileEntry("m", v, SHAPE, "UINT8", 1, 100, 1, 1, 1) for v in ("9", "10", "2")))
    assert read_trace([line()], profile)[0].spec.version == "10"
    assert read_trace([line(model="other")], profile)[0].spec.version == "1"


def test_empty_lines_are_skipped_and_do_not_number_streams():
    entries = read("", line(), "  ", line())
    assert [entry.stream_id for entry in entries] == ["stream-1", "stream-2"]


def test_lines_may_stand_in_any_order_of_time():
    entries = read(line(at_ms=9), line(at_ms=2, name="first"), line(at_ms=9, name="last"))
    assert [(entry.stream_id, entry.spec.name) for entry in entries] == [
        ("stream-1", "first"),
        ("stream-2", ""),
        ("stream-3", "last"),
    ]


def test_what_is_written_is_read_back():
    first = make_spec(100 / 3, 50, frames=3, on_late=OnLate.NEWEST, on_excess=OnExcess.BEST_EFFORT)
    trace = make_trace([(0, first), (12.345678, make_spec(40, 80, on_late=OnLate.SERVE, swapping=True))])
    assert read(*write_trace(trace)) == trace


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "line 2: Expecting"),
        ("[]", "line 2: expected"),
        ('{"at_ms": 0}', "line 2: expected"),
        ('{"at_ms": 0, "stream": 3}', "line 2: stream must be an object"),
        (line(at_ms=-1), "line 2: at_ms must be a number from 0"),
        (line(at_ms=True), "at_ms"),
        (line(at_ms="0"), "at_ms"),
        (line(bursts=2), "unknown field 'bursts'"),
        (line(burst=0), "burst must lie in"),
        (line(burst=True), "burst must be an integer, not True"),
        (line(jitter_ms=-1), "jitter_ms must be a number from 0"),
        (line(service_class="fast"), "fast"),
        (line(drop=["model"]), "model is missing"),
        (line(drop=["period_ms"]), "exactly one of period_ms and fps"),
        (line(fps=30), "exactly one of period_ms and fps"),
        (line(drop=["period_ms"], fps=0), "fps must be a number from"),
        (line(drop=["period_ms"], fps=float("nan")), "fps"),
        (line(drop=["period_ms"], fps=1e300), "fps"),
        (line(period_ms=float("inf")), "period_ms must be a number from 0"),
        (line(period_ms=1e-9), "period_ns must lie in"),
        (line(deadline_ms=MAX_INTERVAL_NS / MS + 1), "deadline_ms"),
        (line(deadline_ms=10**400), "deadline_ms"),
        (line(model=""), "model must be a non-empty string"),
        (line(version=1), "version must be a non-empty string"),
        (line(shape="8x8"), "shape must be a list of integers"),
        (line(shape=[8, 0, 3]), "shape must have at least one axis"),
        (line(shape=[8.0, 8, 3]), "shape"),
        (line(frames=0), "frames must be at least 1"),
        (line(frames=1.5), "frames must be an integer"),
        (line(frames=10**30), "frames must be an integer of at most"),
        (line(on_late="never"), "never"),
        (line(on_excess="drop"), "drop"),
        (line(swapping="yes"), "swapping must be true or false, not 'yes'"),
        (line(on_late=[]), "line 2"),
    ],
)
def test_errors_name_the_line(text, says):
    with pytest.raises(TraceError, match=says):
        read(line(), text)
