import pytest

from gateway.core.config import AdmissionTest, EngineConfig, UtilizationTest
from gateway.core.types import JobDeadline


def test_words_may_be_plain_strings():
    config = EngineConfig(job_deadline="window", utilization_test="deeprt", admission_test="exact")
    assert config.job_deadline is JobDeadline.WINDOW
    assert config.utilization_test is UtilizationTest.DEEPRT
    assert config.admission_test is AdmissionTest.EXACT


@pytest.mark.parametrize(
    "field",
    [
        {"best_effort_window_ns": 0},
        {"max_horizon_frames": 0},
        {"dispatch_overhead_ns": -1},
        {"job_deadline": "never"},
        {"utilization_test": "never"},
        {"admission_test": "never"},
    ],
)
def test_a_value_out_of_bounds_is_an_error(field):
    with pytest.raises(ValueError, match=next(iter(field)) if "never" not in field.values() else "never"):
        EngineConfig(**field)
