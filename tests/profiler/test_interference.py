"""The study from end to end on stand-ins: what is run at once, what fails and what is kept; and once for real."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.zoo.build import build
from gateway.zoo.files import default_repository
from profiler.interference import study
from profiler.interference_plan import Load, StudyPlan
from profiler.interference_report import StudyReport
from profiler.perf_analyzer import PerfAnalyzerError, Tool, fetch, find
from tests.profiler.interference_support import StudyStandIn, make_perf_analyzer, runs_of
from tests.stand_in import Model


def study_on_stand_in(
    plan: StudyPlan, directory: Path, *models: Model, **script: Any
) -> tuple[StudyReport, StudyStandIn, list[dict[str, Any]]]:
    async def main() -> tuple[StudyReport, StudyStandIn]:
        async with StudyStandIn(*models) as triton:
            for name, value in script.items():
                setattr(triton, name, value)
            triton.perf_analyzer = tool
            seen: list[tuple[str, int, int]] = []
            report = await study(plan, triton.url, Tool(tool), lambda *step: seen.append(step))
            assert [done for _, done, _ in seen] == list(range(len(plan.points()) + 1))
            return report, triton

    tool = make_perf_analyzer(directory)
    report, triton = asyncio.run(main())
    return report, triton, runs_of(tool)


def test_one_model_of_a_pair_is_timed_while_the_other_runs(tmp_path: Path) -> None:
    plan = StudyPlan(("one", "two"), size=(32, 48), instances=3, total=4, seconds=0.5)
    report, triton, runs = study_on_stand_in(plan, tmp_path, Model("one"), Model("two", loaded=False))
    assert report.failures == ()
    assert report.shapes == {"one": (32, 48, 3), "two": (32, 48, 3)}
    assert {(run["model"], *run["beside"]) for run in runs if run["timed"] and run["beside"]} == {
        ("one", "two"),
        ("two", "one"),
    }
    for model in plan.models:
        assert [report.figures(Load(model, n)).p50_ms for n in (1, 2, 3)] == [10, 20, 30]
    assert report.figures(Load("one"), Load("two")).p50_ms == 15
    assert report.figures(Load("two", 2, 2)).frames_per_s == pytest.approx(200, rel=0.02)
    assert triton.served[-1] == {"one": 0}, "not left as it was"
    for pid in [run["pid"] for run in runs]:
        assert not Path("/proc", str(pid)).exists(), "a perf_analyzer is left"


def test_all_runs_take_as_long_and_send_one_shape_through_shared_memory_but_for_the_other_model(tmp_path: Path) -> None:
    plan = StudyPlan(("one", "two"), size=(32, 48), instances=1, total=2, seconds=3.6)
    _, triton, runs = study_on_stand_in(plan, tmp_path, Model("one"), Model("two"))
    for run in runs:
        given = run["arguments"]
        assert given["--shape"] == "frames:32,48,3"
        assert (given.get("--shared-memory") == "system") == run["timed"]
        if run["timed"]:
            assert given["--measurement-interval"] == "1000"
            assert int(given["--output-shared-memory-size"]) == 32 * 48 * 3
    assert max(call.rows for call in triton.log("infer")) == 2, "nothing was tried first"


def test_what_fails_is_named_and_the_rest_is_kept(tmp_path: Path) -> None:
    plan = StudyPlan(("fails", "ends", "absent", "good"), size=(8, 8), instances=1, total=4, seconds=0.5)
    models = [Model("fails"), Model("ends"), Model("good", max_batch_size=2)]
    report, _, _ = study_on_stand_in(plan, tmp_path, *models)
    reasons = {str(failed.point): failed.reason for failed in report.failures}
    assert {str(m.point) for m in report.points} == {
        *("ends 1x1", "ends 2x2", "ends 4x1", "ends 1x4", "ends 1x1 beside good 1x1"),
        *("good 1x1", "good 2x2", "good 4x1"),
    }
    assert "it fails" in reasons["fails 1x1"]
    assert "it fails" in reasons["good 1x1 beside fails 1x1"]
    assert "perf_analyzer" in reasons["good 1x1 beside ends 1x1"]
    assert "failed to load 'absent'" in reasons["good 1x1 beside absent 1x1"]
    assert reasons["good 1x4"] == "good takes at most 2 frames in a batch."


def test_an_empty_file_of_a_run_that_ended_well_is_measured_again(tmp_path: Path) -> None:
    plan = StudyPlan(("empty",), size=(8, 8), instances=1, total=0, seconds=0.5)
    report, _, runs = study_on_stand_in(plan, tmp_path, Model("empty"))
    assert (len(report.points), len(report.failures), len(runs)) == (1, 0, 2)


def test_tritons_own_words_are_the_reason_when_a_model_cannot_run(tmp_path: Path) -> None:
    plan = StudyPlan(("one",), size=(8, 8), instances=2, total=0, seconds=0.5)
    report, _, runs = study_on_stand_in(plan, tmp_path, Model("one"), error=lambda _: "out of memory on device")
    assert [failed.reason for failed in report.failures] == ["out of memory on device"] * 2
    assert runs == [], "perf_analyzer was run all the same"


def test_a_model_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    plan = StudyPlan(("one",), size=(8, 8), instances=1, total=0, seconds=0.5, point_limit_s=0.2)
    report, _, _ = study_on_stand_in(plan, tmp_path, Model("one"), delay_s=lambda _: 5.0)
    assert [failed.reason for failed in report.failures] == ["one did not answer within 0.2 s."]


def has_perf_analyzer() -> bool:
    """Whether there is one, or one can be had: a wheel is downloaded, which not every network lets through."""
    try:
        return (find() or fetch(lambda _: None)) is not None
    except PerfAnalyzerError:
        return False


@pytest.mark.e2e
def test_two_instances_of_a_real_model_take_longer_than_one(tmp_path: Path) -> None:
    if not has_perf_analyzer():
        pytest.skip("no perf_analyzer here, and none can be downloaded")
    build("centerface")
    out = tmp_path / "study.json"
    command = [
        *("profile", "interference", "--model", "centerface", "--shape", "64x96", "--instances", "2", "--total", "2"),
        *("--seconds", "1.5", "--out", str(out), "--plots", str(tmp_path), "--triton-log", str(tmp_path / "log")),
        *("--model-repository", str(default_repository()), "--json"),
    ]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    written = json.loads(out.read_text())
    assert json.loads(done.stdout.splitlines()[-1]) == written | {
        "files": [str(out), *(str(tmp_path / f"interference_{name}.png") for name in ("instances", "totals"))]
    }
    assert [(p["load"]["instances"], p["load"]["batch"]) for p in written["points"]] == [(1, 1), (1, 2), (2, 1)]
    assert all(p["count"] > 20 and 0 < p["p50_ms"] < 500 for p in written["points"])
    assert written["slowdowns"][0]["p50"] > 0
    assert "| rate_limit | OFF |" in " ".join((tmp_path / "log").read_text().split()), "Triton's rate limiter was on"
