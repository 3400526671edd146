"""The set that the admission benchmark measures is the one that it says."""

import pytest

from benchmarks import admission


@pytest.mark.parametrize("frames", admission.SIZES)
def test_frames_and_categories(frames):
    specs = list(admission.specs(frames))
    assert sum(spec.frames for spec in specs) == frames
    assert len({spec.shape for spec in specs}) == admission.CATEGORIES
    assert all(spec.deadline_ns == 2 * spec.period_ns for spec in specs)


@pytest.mark.parametrize("frames", [100, 1_000])
def test_every_frame_is_followed_four_to_a_job(monkeypatch, frames):
    monkeypatch.setitem(admission.RUNS, frames, 1)
    found = admission.plan_ms(frames)
    assert found["frames_a_job"] == pytest.approx(4, rel=0.05)
    assert 0.4 < found["utilization_over_horizon"] < 1
