import math
import pickle

import pytest

from gateway.core.profile import Profile, ProfileEntry, ProfileError
from gateway.core.types import Category
from tests.core.factories import MS, SHAPE, make_category, make_profile


def measured(batch, p99=10.0, count=1000, top=None, **overrides):
    fields = {"model": "m", "version": "1", "shape": SHAPE, "dtype": "UINT8"} | overrides
    return ProfileEntry(batch=batch, count=count, p50_ms=p99 / 2, p99_ms=p99, max_ms=top or p99, **fields)


def of_sizes(times):
    return Profile(tuple(measured(batch, ms) for batch, ms in times.items()))


def row(**overrides):
    fields = {"model": "m", "version": "1", "shape": [8, 8, 3], "dtype": "UINT8", "batch": 1, "count": 200}
    return fields | {"p50_ms": 1.0, "p99_ms": 2.0, "max_ms": 3.0, "stable": True} | overrides


def test_unmeasured_batches_take_the_next_larger_measured_one():
    profile = Profile((measured(1, 4), measured(4, 10)))
    assert [profile.execution_ns(make_category(), n) // MS for n in (1, 2, 3, 4)] == [4, 10, 10, 10]
    assert profile.max_batch(make_category()) == 4


def test_times_never_fall_with_the_batch():
    # Field report 30: 3 rows measured dearer than 4, 5 missing.
    profile = Profile((measured(4, 8), measured(1, 4), measured(3, 9), measured(6, 12)))
    times = [profile.execution_ns(make_category(), n) // MS for n in range(1, 7)]
    assert times == [4, 9, 9, 9, 12, 12]


def test_few_samples_plan_with_the_largest_and_a_margin():
    few = Profile((measured(1, p99=10, count=99, top=20),))
    enough = Profile((measured(1, p99=10, count=100, top=20),))
    assert few.execution_ns(make_category(), 1) == 22 * MS
    assert enough.execution_ns(make_category(), 1) == 10 * MS


def test_overhead_is_added_to_every_time_and_stays_out_of_the_file():
    profile = make_profile(m=[5, 7]).plus_overhead(MS)
    assert [profile.execution_ns(make_category(), n) for n in (1, 2)] == [6 * MS, 8 * MS]
    assert Profile.from_dict(profile.to_dict()).execution_ns(make_category(), 1) == 5 * MS


def test_windows_beyond_the_largest_batch_are_split():
    profile = make_profile(m=[5, 7, 8])
    assert [profile.split_ns(make_category(), n) // MS for n in (0, 1, 3, 4, 6, 8)] == [0, 5, 8, 13, 16, 23]


def test_a_batch_size_outside_the_table_is_an_error():
    with pytest.raises(ValueError, match="1 to 2 frames, not 3"):
        make_profile(m=[5, 7]).execution_ns(make_category(), 3)
    with pytest.raises(KeyError):
        make_profile(m=[5]).execution_ns(make_category("other"), 1)


def test_lookups_by_model():
    shapes = [(16, 16, 3), (8, 8, 3), (8, 32, 3)]
    profile = Profile((*(measured(1, shape=shape) for shape in shapes), measured(1, version="10")))
    assert profile.shapes("m", "1") == [(8, 8, 3), (8, 32, 3), (16, 16, 3)]
    assert profile.shapes("m", "1", "FP32") == []
    assert profile.versions("m") == ["1", "10"]
    assert profile.has(Category("m", "10", SHAPE))
    assert not profile.has(Category("m", "2", SHAPE))


def test_round_trip_through_the_file_layout_and_pickle():
    data = {
        "schema": 1,
        "device": "cpu",
        "triton_version": "2.51.0",
        "engine": "native",
        "created": "2026-01-01T00:00:00Z",
        "entries": [row(), row(batch=2, p99_ms=3.5)],
        "models": [{"model": "m", "version": "1", "load_ms": 300.0, "unload_ms": 2.0, "bytes": 1000}],
    }
    profile = Profile.from_dict(data)
    assert profile.to_dict() == data
    assert pickle.loads(pickle.dumps(profile)).execution_ns(make_category(), 2) == 3_500_000


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (row(p99_ms=math.nan), r"entries\[1\]\.p99_ms must be a positive number"),
        (row(p99_ms=0), "p99_ms"),
        (row(max_ms=math.inf), "max_ms"),
        (row(p50_ms=True), "p50_ms"),
        (row(p50_ms=10**400), "p50_ms"),
        (row(batch=0), "batch must be an integer from 1 to 1024, not 0"),
        (row(batch=10**9), "batch must be"),
        (row(count=10**30), "count must be"),
        (row(batch=1.0), "batch"),
        (row(shape=[8, -1, 3]), "shape must be a list of 1 to 8 integers"),
        (row(shape=[]), "shape"),
        (row(model=""), "model must be a non-empty string"),
        ({k: v for k, v in row().items() if k != "dtype"}, "dtype"),
        (row(), "is in the profile twice"),
        ([], r"entries\[1\] must be an object"),
    ],
)
def test_a_bad_entry_is_named(entry, says):
    with pytest.raises(ProfileError, match=says):
        Profile.from_dict({"schema": 1, "entries": [row(), entry], "models": []})


@pytest.mark.parametrize("data", [{}, {"schema": 2, "entries": []}, [], {"schema": 1}, {"schema": 1, "entries": {}}])
def test_another_layout_is_refused(data):
    with pytest.raises(ProfileError):
        Profile.from_dict(data)


def test_a_batch_that_takes_longer_than_its_frames_in_smaller_ones_is_not_used():
    # Three frames would be planned as the batch of four, 140; as 2 + 1 they take 82.
    profile = of_sizes({1: 41.2, 2: 30.8, 4: 139.6})
    category = make_category()
    assert profile.max_batch(category) == 2
    assert profile.split_ns(category, 3) == 2 * 41.2 * MS


def test_a_batch_that_costs_no_more_than_half_as_much_again_stays():
    assert of_sizes({1: 10, 2: 30, 4: 80}).max_batch(make_category()) == 4


def test_batches_that_do_not_pay_are_left_out_from_the_largest_down():
    profile = of_sizes({1: 10, 2: 15, 4: 50, 8: 160})
    assert profile.max_batch(make_category()) == 2, "8 is much dearer than 4 + 4, and 4 than 2 + 2"
    assert of_sizes({1: 10, 2: 31, 4: 35}).max_batch(make_category()) == 4, "what pays at the top stays"


def test_the_dispatch_overhead_does_not_change_which_batches_pay():
    # Whoever has the profile without it must come to the same largest batch.
    profile = of_sizes({1: 10, 2: 31})
    assert profile.plus_overhead(5 * MS).max_batch(make_category()) == profile.max_batch(make_category()) == 1


def test_without_batches_one_frame_takes_what_it_took():
    profile = make_profile(m=[5, 7, 9], n=[3, 4]).plus_overhead(MS)
    single = profile.without_batches(make_category())
    assert single.table(make_category()) == (0, 6 * MS)
    assert single.table(make_category("n")) == profile.table(make_category("n"))
    assert profile.max_batch(make_category()) == 3, "the old one stays"
    together = of_sizes({4: 80, 8: 100}).without_batches(make_category())
    assert together.table(make_category()) == (0, 80 * MS), "measured only together: no less is known of one"
