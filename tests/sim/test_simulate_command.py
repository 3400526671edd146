import json

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import synthetic_profile
from gateway.sim.command import simulate
from gateway.sim.trace import write_trace
from tests.core.factories import make_profile, make_spec, make_trace


@pytest.fixture
def files(tmp_path):
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps(make_profile(m=[10, 12]).to_dict()))
    trace = tmp_path / "trace.jsonl"
    streams = [(0, make_spec(100, 40, frames=4)), (0, make_spec(100, 40, frames=4, start_in=7))]
    trace.write_text("\n".join(write_trace(make_trace(streams))))
    return [str(trace), "--profile", str(profile)]


def run(*arguments):
    app = typer.Typer()
    app.command()(simulate)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_figures_as_json(files):
    result = run(*files, "--json", "--no-early-dispatch")
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert (report["outcomes"]["met"], report["mean_batch"]) == (8, 2.0)


def test_figures_for_people(files):
    result = run(*files)
    assert result.exit_code == 0
    assert "streams   2 admitted, 0 refused" in result.output


def test_the_decision_log_is_written(files, tmp_path):
    log = tmp_path / "log.jsonl"
    assert run(*files, "--log", log, "--execution-low", 0.5, "--seed", 3).exit_code == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["action"] for line in lines[:2]] == ["admitted", "admitted"]
    assert [line["t_ns"] for line in lines] == sorted(line["t_ns"] for line in lines)


def test_missing_frames_and_jitter_depend_on_the_seed(files):
    def frames(*options):
        return json.loads(run(*files, "--json", "--drop", 0.4, *options).output)["frames"]

    assert frames("--seed", 1) == frames("--seed", 1) < 8
    assert len({frames("--seed", seed) for seed in range(5)}) > 1
    assert run(*files, "--drop", 1).exit_code == 2


def test_which_test_decided_is_said(files):
    assert "2 admitted, 0 refused (by test: exact 2)" in run(*files, "--jitter").output
    assert "(by test: sporadic 2)" in run(*files, "--admission-test", "sporadic", "--no-guard").output


def test_errors_are_one_line(files, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"at_ms": 0}\n')
    result = run(bad, *files[1:])
    assert result.exit_code == 2
    assert "error: line 1: expected" in result.output
    endless = tmp_path / "endless.jsonl"
    endless.write_text("\n".join(write_trace(make_trace([(0, make_spec(name="door"))]))))
    endless_said = "error: stream-1 (door) is unbounded: say with --duration-ms when to stop"
    assert endless_said in run(endless, *files[1:]).output
    assert run(endless, *files[1:], "--duration-ms", 500).exit_code == 0
    not_a_profile = run(files[0], "--profile", bad)
    assert not_a_profile.exit_code == 2
    assert "schema 1" in not_a_profile.output


def test_delayed_jobs_overrun_and_are_adapted_to(tmp_path):
    """Of ten jobs the third and fourth take 30 ms more; a smaller profiled shape then pays that back."""
    profile, trace = tmp_path / "gpu.json", tmp_path / "trace.jsonl"
    profile.write_text(json.dumps(synthetic_profile.profile().to_dict()))
    spec = make_spec(100, 90, model="resnet50", shape=(224, 224, 3), frames=10)
    trace.write_text("\n".join(write_trace(make_trace([(0, spec)]))))
    log = tmp_path / "log.jsonl"
    arguments = [trace, "--profile", profile, "--delay-jobs", 2, "--delay-ms", 30, "--delay-at-ms", 150, "--log", log]
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert "frames ran at a smaller shape" in result.output
    assert "degraded" not in run(*arguments, "--no-adaptation").output
    ends = [json.loads(line) for line in log.read_text().splitlines()]
    took = [line["actual_ns"] // 1_000_000 for line in ends if line["action"] == "deliver_frames"]
    assert took == [8, 8, 38, 38, 8, 8, 8, 8, 8, 8]
    assert run(*arguments, "--delay-jobs", -1).exit_code == 2


def test_that_nothing_was_admitted_is_said_and_the_status(files, tmp_path):
    trace = tmp_path / "tight.jsonl"
    tight = make_spec(100, 5, frames=4, name="door")
    trace.write_text("\n".join(write_trace(make_trace([(0, tight)]))))
    for more in ((), ("--json",)):
        result = run(trace, *files[1:], *more)
        assert result.exit_code == 1
        assert "no stream was admitted, so nothing ran" in result.stderr
    assert json.loads(result.stdout)["refused"] == 1
    fits = make_spec(100, 50, frames=4)
    trace.write_text("\n".join(write_trace(make_trace([(0, tight), (0, fits)]))))
    assert run(trace, *files[1:]).exit_code == 0


def test_options_have_to_make_sense(files):
    assert run(*files, "--job-deadline", "never").exit_code == 2
    assert run(*files, "--utilization-test", "never").exit_code == 2
    assert run(*files, "--admission-test", "never").exit_code == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (bytes(range(128, 256)), "is not UTF-8 text"),
        ('{"at_ms": 0}'.encode("utf-16"), "is not UTF-8 text"),
        (b"[" * 200_000, "line 1: it is nested too deeply"),
        (b'{"at_ms": ' * 200_000, "line 1: it is nested too deeply"),
    ],
)
def test_a_file_that_is_no_trace_is_one_line_too(files, tmp_path, content, said):
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(content)
    result = run(bad, *files[1:])
    assert (result.exit_code, result.exception.__class__) == (2, SystemExit)
    assert said in result.output
    assert len(result.output.splitlines()) == 1


def test_models_come_and_go_with_a_budget(files):
    report = json.loads(run(*files, "--json", "--max-models", 1).output)
    assert (report["models"]["loads"], report["outcomes"]["met"]) == (1, 8)
    told = run(*files, "--max-models", 1, "--replacement", "lru", "--synchronous").output
    assert "1 load, 0 unloads, 0 swaps" in told
    assert json.loads(run(*files, "--json").output)["models"]["loads"] == 0
    failed = run(*files, "--max-models", 1, "--failing-loads", 0.999)
    assert failed.exit_code == 1
    assert "model_load_failed: simulated failure" in failed.output


@pytest.mark.parametrize(
    "options", [("--max-models", 1, "--memory-budget", "5kB"), ("--headroom-models", 1), ("--headroom-bytes", 1)]
)
def test_a_budget_that_contradicts_itself_is_an_error(files, options):
    result = run(*files, *options)
    assert result.exit_code == 2
    assert "error: " in result.output
