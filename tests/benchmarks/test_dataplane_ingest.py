"""The part `ingest` of the data-plane benchmark: what its runs come to."""

import pytest

from benchmarks.frame_path.ingest import copy_us, predicted_per_s, summary


@pytest.mark.parametrize(
    ("scheduler", "beside", "cores", "rate"),
    [
        (0.1, 0.2, 2, 5_000),  # one core for the ingest processes
        (0.1, 0.2, 3, 10_000),  # both are busy
        (0.1, 0.2, 16, 10_000),  # the scheduler has one core, whatever there is
        (0.5, 0.1, 8, 2_000),
    ],
)
def test_the_rate_is_that_of_whoever_is_busy_first(scheduler, beside, cores, rate):
    assert predicted_per_s(scheduler, beside, cores) == rate


def row(**fields):
    return {
        "frames_per_s": 1.0,
        "cpu_ms": 0.1,
        "beside_cpu_ms": 0.3,
        "behind_cpu_ms": 1.1,
        "mean_batch": 8,
        "p50_ms": 9,
    } | (fields)


def test_medians_are_of_runs_that_worked():
    rows = [row(cpu_ms=0.1), row(cpu_ms=0.3), {"error": "it did not take the load"}, row(cpu_ms=0.2)]
    found = summary({"copy_us": {}, "runs": {"ingest_http": rows, "alone_http": [{"error": "x"}]}})
    assert "alone_http" not in found
    http = found["ingest_http"]
    assert (http["scheduler_cpu_ms"], http["ingest_cpu_ms"]) == (0.2, 0.3)
    assert http["predicted_per_s_8_cores"] == 5_000
    assert http["predicted_per_s_16_cores_device"] == 5_000


def test_a_copy_of_more_takes_longer():
    assert 0 < copy_us(1 << 10) < copy_us(1 << 20)
