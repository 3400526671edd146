"""What refusals of `/v2` calls say: the cause, the figures, and what to do."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.api.served import FRAME, LARGE, SMALL, Served, v2_error
from tests.api.v2_support import binary, infer, tensor
from tests.stand_in import Model

REFERENCE = Path(__file__).parents[2] / "docs/api.md"


def call(rows=1, **parameters):
    return binary([tensor([rows, *SMALL], size=192 * rows)], FRAME * rows, **parameters)


def test_a_deadline_below_one_row_is_explained(served):
    said = v2_error(infer(served, call(deadline_ms=5)), 422, "deadline_infeasible")["error"]
    assert "5 ms" in said
    assert "takes 10.0 ms" in said
    assert "twice that, 20.0 ms" in said
    assert "No counter-offers were searched" in said


def test_a_call_that_does_not_fit_is_a_call_and_its_wait_is_explained(served):
    said = v2_error(infer(served, call(8, deadline_ms=30)), 409, "not_schedulable")["error"]
    assert "this call" in said
    assert "this stream" not in said
    assert "may wait half its deadline" in said
    assert "Half of this call's deadline is 15 ms" in said
    assert "8 rows take 24 ms" in said
    assert "at least 48 ms" in said
    assert "No counter-offers were searched" in said


def test_a_call_that_others_leave_no_room_for(served):
    with served.stream(shape=LARGE):
        said = v2_error(infer(served, call(8, deadline_ms=50)), 409, "not_schedulable")["error"]
    assert "With this call" in said
    assert "No counter-offers were searched" in said


def test_an_unknown_parameter_is_named_as_the_cause(served):
    with served.stream():
        for parameters in ({"threshold": 7}, {"threshold": 7, "deadline_ms": 500}):
            said = v2_error(infer(served, call(**parameters)), 409, "not_profiled")["error"]
            assert "'threshold'" in said
            assert "framegate profile" not in said
        shape = binary([tensor([1, 5, 7, 3], size=105)], bytes(105), threshold=7)
        assert "framegate profile" in v2_error(infer(served, shape), 409, "not_profiled")["error"]


def test_a_time_out_has_a_unit_and_bounds(served):
    said = v2_error(infer(served, call(timeout=7)), 400, "invalid_inference")["error"]
    assert "microseconds" in said
    assert re.search(r"from 100 to 86400000000\b", said)
    assert "milliseconds" in v2_error(infer(served, call(deadline_ms=0)), 400, "invalid_inference")["error"]


@pytest.mark.parametrize("path", ["nothing", "nothing/ready", ".odd", "echo/versions/9", "echo/versions/x/ready"])
def test_where_to_look_for_models_is_said(served, path):
    answers = served.http.get(f"/v2/models/{path}"), infer(served, call(), model="nothing")
    for answer in answers:
        assert "GET /v1/models" in v2_error(answer, 404, "unknown_model")["error"]


def test_the_references_example_works():
    """As it stands, on the profile that the README makes."""
    section = REFERENCE.read_text().split("## Open Inference Protocol")[1].split("\n## ")[0]
    example = next(block for block in re.findall(r"```\n(.*?)```", section, re.DOTALL) if "/infer" in block)
    model = Model("centerface", input_name="image")
    with Served(model, times={(144, 176, 3): {1: 20.0, 2: 30.0, 4: 50.0}}) as served:
        done = subprocess.run(
            ["bash", "-ec", f"F={served.url}; {example}"], capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, done.stderr
        for word in ('"id":"7"', '"outcome":"met"', '"model_name":"centerface"'):
            assert word in done.stdout
        assert served.stand_in.log("infer")[-1].shape == (1, 144, 176, 3)
