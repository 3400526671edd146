"""Plan files: what is read, and what is said about what cannot be."""

import json

import pytest

from gateway.capacity.plan_file import MOST_STREAMS, PlanFileError, read_plan
from gateway.core.profile import Profile, ProfileEntry
from gateway.core.types import OnExcess, OnLate
from tests.core.factories import MS, SHAPE, make_profile, make_spec

STREAM = {"model": "m", "shape": [8, 8, 3], "period_ms": 100, "deadline_ms": 50}


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "plan.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_plan(path)

    return read


def test_yaml_with_everything(read):
    (item,) = read(
        """
        streams:
          - name: gate
            model: m
            version: 4        # a number, as people write it
            shape: [8, 8, 3]
            dtype: FP16
            fps: 10
            deadline_ms: 50
            frames: 7
            burst: 2
            jitter_ms: 1.5
            start_in_ms: 3
            on_late: serve
            on_excess: best_effort
            count: 12
            at_ms: 2.5
        """
    )
    assert (item.name, item.count, item.at_ns) == ("gate", 12, 2_500_000)
    assert item.spec == make_spec(
        100,
        50,
        version="4",
        dtype="FP16",
        frames=7,
        burst=2,
        jitter_ns=1_500_000,
        start_in=3,
        on_late=OnLate.SERVE,
        on_excess=OnExcess.BEST_EFFORT,
        name="gate",
    )


def test_json_and_a_bare_list(read):
    assert read(json.dumps([STREAM])) == read(json.dumps({"streams": [STREAM]}))
    assert read("\t" + json.dumps([STREAM | {"deadline_ms": 5e1}], indent="\t"))[0].spec.deadline_ns == 50 * MS


def test_defaults(read):
    first, second = read(json.dumps([STREAM, STREAM | {"count": "max"}]))
    assert first.spec.jitter_ns == 0, "a plan says what is so; the default of the gateway is for cameras that do not"
    assert (first.name, first.count, first.at_ns) == ("stream-1", 1, 0)
    assert (second.name, second.count) == ("stream-2", None)


def test_the_newest_profiled_version_is_meant(read):
    profile = Profile(tuple(ProfileEntry("m", v, SHAPE, "UINT8", 1, 100, 1, 1, 1) for v in ("9", "10", "2")))
    one, given, other = read(json.dumps([STREAM, STREAM | {"version": "2"}, STREAM | {"model": "n"}]))
    assert [item.resolved(profile).version for item in (one, given, other)] == ["10", "2", "1"]
    assert one.resolved(make_profile(m=[1])).version == "1"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"period_ms": -1}, ".period_ms: it must be greater than or equal to 0.1, not -1"),
        ({"period_ms": "soon"}, ".period_ms: it must be a valid number, not 'soon'"),
        ({"period_ms": True}, ".period_ms"),
        ({"fps": 3}, ": give exactly one of period_ms and fps"),
        ({"shape": [8, 0, 3]}, ".shape[1]: it must be greater than or equal to 1, not 0"),
        ({"shape": []}, ".shape"),
        ({"shape": {"h": 8}}, ".shape: expected a number, a text or a list of numbers, not dict"),
        ({"count": 0}, f".count: expected max or an integer from 1 to {MOST_STREAMS}, not 0"),
        ({"count": None}, ".count: expected max or"),
        ({"count": "many"}, ".count: expected max or"),
        ({"count": True}, ".count: expected max or"),
        ({"at_ms": -1}, ".at_ms: it must be greater"),
        ({"fsp": 3}, ".fsp: there is no such field; did you mean fps?"),
        ({"model": "../m"}, ".model"),
        ({"frames": 10**400}, ".frames"),
        ({"burst": 10**6}, ".burst"),
        ({"on_late": "never"}, ".on_late"),
    ],
)
def test_errors_name_file_stream_and_field(read, tmp_path, fields, says):
    with pytest.raises(PlanFileError) as raised:
        read(json.dumps([STREAM, STREAM | fields]))
    assert f"{tmp_path}/plan.yaml: streams[1]{says}" in str(raised.value)


def test_every_error_is_listed_up_to_a_limit(read):
    with pytest.raises(PlanFileError) as raised:
        read(json.dumps([STREAM | {"count": 0}, STREAM | {"deadline_ms": 0, "at_ms": -1}]))
    assert len(str(raised.value).splitlines()) == 3
    with pytest.raises(PlanFileError, match="and 30 more errors"):
        read(json.dumps([{}] * 10 + [STREAM | {"count": 0}] * 20))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected a list of streams"),
        ("streams:", "expected a list of streams"),
        ("[]", "the list is empty"),
        ("streams: 3", "expected a list of streams"),
        ("stream: []", "unknown field 'stream'"),
        ("- 3", r"streams\[0\]: expected the fields of a stream, not 3"),
        ("a: [", "it is not YAML: .* line 1"),
        ("streams: !!python/object/apply:os.system [ls]", "it is not YAML"),
        ("[" * 100_000, "nested too deeply"),
        (bytes(range(128, 256)), "not UTF-8 text"),
        ("- {model: m, at_ms: 2001-01-01}", r"streams\[0\].at_ms: expected a number"),
        ("- {model: m, at_ms: .nan, shape: [1], fps: 1, deadline_ms: .inf}", "at_ms: it must be"),
        (json.dumps([STREAM | {"count": MOST_STREAMS}] * 2), f"{2 * MOST_STREAMS} streams are more than"),
        (b" " * (17 << 20), "over 16 MiB"),
    ],
)
def test_what_is_no_plan(read, text, says):
    with pytest.raises(PlanFileError, match=says):
        read(text)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(PlanFileError, match="No such file"):
        read_plan(tmp_path / "none.yaml")
    with pytest.raises(PlanFileError, match="directory"):
        read_plan(tmp_path)
