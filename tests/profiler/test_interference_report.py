"""Slow-downs, the report's file, tables and pictures, from figures that are known."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from profiler.interference_plan import Load, Point, StudyPlan
from profiler.interference_plots import write_plots
from profiler.interference_report import FailedPoint, StudyReport
from profiler.interference_tables import conclusions, describe_failures, tables
from tests.profiler.interference_support import make_report

PLAN = StudyPlan(("one", "two"), instances=3, total=4)


def printed(report: StudyReport, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(tables(report))
    return out.getvalue()


def test_slow_downs_are_against_one_instance_alone() -> None:
    found = {(s.model, s.beside, s.concurrent): s for s in make_report(PLAN).slowdowns()}
    assert set(found) == {
        *((model, "", n) for model in PLAN.models for n in (2, 3)),
        *(("one", "two", 2), ("two", "one", 2)),
    }
    for (_, beside, n), slowdown in found.items():
        assert slowdown.p50 == slowdown.p99 == (1.5 if beside else n)
        assert slowdown.throughput == pytest.approx(1 / 1.5 if beside else 1, abs=1e-3)


def test_what_is_missing_is_left_out_and_nothing_else() -> None:
    without = (Point(Load("one")), Point(Load("two"), Load("one")), Point(Load("two", 2)))
    report = make_report(PLAN, without)
    assert [(s.model, s.beside, s.concurrent) for s in report.slowdowns()] == [("two", "", 3)]
    text = printed(report)
    assert "Instances of one model" in text
    assert "Beside another model" not in text
    assert printed(make_report(PLAN, PLAN.points())).count("\n") < 5, "an empty table"


def test_the_file_has_every_point_once_and_who_measured_what_with_which_command() -> None:
    failed = Point(Load("two", 3))
    report = make_report(PLAN, (failed,))
    written = json.loads(json.dumps(report.to_dict()))
    assert written["schema"] == 1
    assert (written["device"], written["triton_version"]) == ("a test", "2.51.0")
    assert written["created"].startswith("2026")
    assert written["command"].startswith("framegate profile interference")
    assert written["models"] == [{"model": "one", "shape": [64, 96, 3]}, {"model": "two", "shape": [64, 96, 3]}]
    assert len(written["points"]) == len(PLAN.points()) - 1
    assert written["points"][0] == {
        "load": {"model": "one", "instances": 1, "batch": 1},
        "beside": {"model": "two", "instances": 1, "batch": 1},
        "count": 200,
        "p50_ms": 15.0,
        "p99_ms": 30.0,
        "max_ms": 45.0,
        "stable": True,
        "frames_per_s": pytest.approx(66.7, abs=0.1),
    }
    assert written["failed"] == [
        {"load": {"model": "two", "instances": 3, "batch": 1}, "beside": None, "reason": "no reason"}
    ]
    assert {"model", "beside", "concurrent", "p50", "p99", "throughput"} == set(written["slowdowns"][0])


def test_tables_show_instances_pairs_and_equal_totals_in_80_columns() -> None:
    text = printed(make_report(PLAN))
    assert max(map(len, text.splitlines())) <= 80
    lines = [line.split() for line in text.splitlines()]
    assert ["one", "p50", "ms", "10.0", "20.0", "30.0"] in lines, "instances"
    assert ["one", "p50", "ms", "10.0", "20.0", "15.0"] in lines, "alone, beside its like, beside two"
    assert ["two", "p50", "ms", "20.0", "30.0", "40.0"] in lines, "alone, beside one, beside its like"
    assert ["frames/s", "100", "50", "67"] in lines, "one of two instances has half of their frames"
    assert ["4x1", "2x2", "1x4"] in lines


def test_conclusions_carry_the_figures_they_rest_on() -> None:
    instances, beside, batches = conclusions(make_report(PLAN))
    assert instances.startswith("3 instances of a model: 1.00 times the frames per second, 3.00 times the latency")
    assert "1.50 (one beside two) to 1.50" in beside
    assert batches.startswith("One batch of 4 instead of 4 instances: 1.00 times the frames per second, 1.00 times")
    assert list(conclusions(make_report(PLAN, PLAN.points()))) == []


def test_pictures_are_drawn_of_what_there_is(tmp_path: Path) -> None:
    names = {path.name for path in write_plots(make_report(PLAN), tmp_path)}
    assert names == {f"interference_{name}.png" for name in ("instances", "pairs", "totals")}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.iterdir())
    lonely = make_report(StudyPlan(("one",), instances=2, total=0))
    assert [path.name for path in write_plots(lonely, tmp_path)] == ["interference_instances.png"]
    assert write_plots(make_report(PLAN, PLAN.points()), tmp_path) == []


def test_failures_are_one_line_for_each_reason_with_the_next_step(tmp_path: Path) -> None:
    unknown = "failed to load 'resnet50', failed to poll from model repository"
    failures = [
        FailedPoint(Point(Load("resnet50")), unknown),
        FailedPoint(Point(Load("one"), Load("resnet50")), unknown),
        FailedPoint(Point(Load("one", 2)), "out of memory"),
    ]
    assert list(describe_failures(failures, tmp_path)) == [
        f"not measured: resnet50 1x1, one 1x1 beside resnet50 1x1: {unknown} "
        f"It is not built in {tmp_path}: run framegate zoo build resnet50",
        "not measured: one 2x1: out of memory",
    ]
    assert list(describe_failures(failures[:1], None)) == [f"not measured: resnet50 1x1: {unknown}"]
