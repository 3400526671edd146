import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.types import Category
from profiler.samples import entry

CATEGORY = Category("m", "1", (8, 8, 3))


def test_figures_are_of_the_samples() -> None:
    made = entry(CATEGORY, 4, [float(ms) for ms in range(1, 201)])
    assert (made.model, made.version, made.shape, made.dtype, made.batch, made.count) == (
        "m",
        "1",
        (8, 8, 3),
        "UINT8",
        4,
        200,
    )
    assert made.p50_ms == 100.5
    assert made.p99_ms == 199.0, "a sample that occurred, at or above the rank"
    assert made.max_ms == 200.0
    assert made.execution_ms == made.p99_ms


def test_under_a_hundred_samples_the_plan_takes_more_than_the_largest() -> None:
    made = entry(CATEGORY, 1, [5.0] * 98 + [9.0])
    assert not made.stable
    assert made.execution_ms == pytest.approx(1.1 * 9.0)


@pytest.mark.parametrize(
    ("samples", "stable"),
    [([10.0] * 100, True), ([10.0] * 50 + [10.9] * 50, True), ([10.0] * 50 + [11.5] * 50, False), ([10.0] * 99, False)],
)
def test_a_measurement_that_drifts_is_not_stable(samples: list[float], stable: bool) -> None:
    assert entry(CATEGORY, 1, samples).stable is stable


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=300))
def test_figures_are_ordered_and_positive(samples: list[float]) -> None:
    made = entry(CATEGORY, 1, samples)
    assert 0 < made.p50_ms <= made.p99_ms <= made.max_ms


def test_no_samples_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        entry(CATEGORY, 1, [])
