"""A whole profile with perf_analyzer, on the stand-in and a fake tool: what is kept, listed and gone on with."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.core.profile import ModelEntry, Profile
from gateway.errors import FramegateError
from gateway.runtime.profile_file import read_profile, write_profile
from gateway.runtime.region import shared_region
from profiler.ledger import Ledger, Resume
from profiler.perf_analyzer import Tool
from profiler.plan import Plan, Report
from profiler.quick import measure
from tests.profiler.fake_perf_analyzer import GOOD, batches, make, runs
from tests.profiler.test_quick import stand_in_thread
from tests.runtime_support import make_profile, make_settings, shm_files
from tests.stand_in import Model, StandIn

PLAN = Plan(("echo",), ((8, 8),), (1, 2, 4), samples=120)


def profile_with(
    tool: Path | None,
    plan: Plan = PLAN,
    *models: Model,
    script: Callable[[StandIn], Any] = lambda _: None,
    on_progress: Callable[[StandIn, str], Any] = lambda _triton, _what: None,
    **options: Any,
) -> Report:
    async def main() -> Report:
        async with StandIn(*models) as triton:
            script(triton)
            return await measure(
                plan,
                make_settings(triton.url),
                "a test",
                lambda what, _: on_progress(triton, what),
                tool=Tool(tool) if tool else None,
                **options,
            )

    before = shm_files()
    report = asyncio.run(main())
    assert shm_files() == before
    return report


def reasons(report: Report) -> dict[int, str]:
    return {failure.batch: failure.reason for failure in report.failures}


# ---------------------------------------------------------------- figures


def test_figures_are_those_of_the_tool_without_its_warm_up(tmp_path: Path) -> None:
    report = profile_with(make(tmp_path))
    assert report.failures == ()
    assert report.profile.engine == "perf_analyzer"
    for entry, batch in zip(report.profile.entries, (1, 2, 4), strict=True):
        assert (entry.model, entry.version, entry.shape, entry.dtype, entry.batch) == (
            "echo",
            "1",
            (8, 8, 3),
            "UINT8",
            batch,
        )
        assert (entry.count, entry.p50_ms, entry.p99_ms, entry.max_ms) == (120, 2.0 * batch, 2.0 * batch, 2.0 * batch)
        assert entry.stable
        parts = (entry.queue_ms, entry.compute_input_ms, entry.compute_infer_ms, entry.compute_output_ms)
        assert parts == (0.049, 0.074, 9.687, 0.243)
    assert Profile.from_dict(json.loads(json.dumps(report.profile.to_dict()))) == report.profile


def test_the_tool_is_told_of_the_size_of_outputs_and_of_the_warm_up(tmp_path: Path) -> None:
    tool = make(tmp_path)
    profile_with(tool, Plan(("echo",), ((40, 50),), (2,), samples=120))
    [said] = runs(tool)
    assert said["arguments"]["--shape"] == "frames:40,50,3"
    assert said["arguments"]["--request-count"] == "125"
    assert said["arguments"]["--output-shared-memory-size"] == str(40 * 50 * 3), "of one frame's largest output"
    assert said["arguments"]["--shared-memory"] == "system"


def test_a_slow_point_gets_as_many_samples_as_fit_into_its_time(tmp_path: Path) -> None:
    tool = make(tmp_path)
    plan = Plan(("echo",), ((8, 8),), (1,), samples=200, point_limit_s=4.0)
    report = profile_with(tool, plan, script=lambda triton: setattr(triton, "delay_s", lambda call: 0.02))
    asked = int(runs(tool)[0]["arguments"]["--request-count"])
    assert 30 < asked < 100, "1.9 s of 4 are left for executions of 20 ms"
    [entry] = report.profile.entries
    assert entry.count == asked - 5
    assert not entry.stable, "thin"


@pytest.mark.parametrize(
    "body",
    [
        GOOD + "sys.exit(2)",
        "export([9.0] * 5 + [2.0] * 60 + [2.3] * 60)",
        "export([9.0] * 5 + [2.0] * 99)",
    ],
    ids=["unstable", "drifting", "thin"],
)
def test_what_did_not_settle_is_marked(tmp_path: Path, body: str) -> None:
    [entry] = profile_with(make(tmp_path, body), Plan(("echo",), ((8, 8),), (1,), samples=120)).profile.entries
    assert not entry.stable


def test_triton_is_made_to_open_our_memory_again(tmp_path: Path) -> None:
    """Each run of perf_analyzer makes it forget everything."""

    def forget(triton: StandIn, what: str) -> None:
        if "batch" in what:
            while triton.regions:
                triton.regions.popitem()[1].close()

    report = profile_with(make(tmp_path), on_progress=forget)
    assert report.failures == ()
    assert len(report.profile.entries) == 3


# ---------------------------------------------------------------- failures

_FAILS_AT = """
if batch == {batch}:
    {fault}
"""


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (
            "print('error: no kernel for 2 rows'); sys.exit(99)",
            "perf_analyzer: error: no kernel for 2 rows (exit status 99)",
        ),
        ("print('done'); sys.exit(0)", "it wrote no measurements"),
        ("write('{\"exp'); sys.exit(0)", "cannot be read"),
        ("export([0.0] * 30); sys.exit(0)", "no time in ns"),
        ("export([2.0] * 5); sys.exit(0)", "5 requests, all of them warm-up"),
        ("time.sleep(60)", "took longer than"),
    ],
)
def test_51_a_point_that_fails_is_listed_and_the_others_are_kept(tmp_path: Path, fault: str, reason: str) -> None:
    tool = make(tmp_path, _FAILS_AT.format(batch=2, fault=fault) + GOOD)
    plan = Plan(("echo",), ((8, 8),), (1, 2, 4), samples=120, point_limit_s=2.0)
    report = profile_with(tool, plan)
    assert [entry.batch for entry in report.profile.entries] == [1, 4]
    assert all(entry.p50_ms > 0 for entry in report.profile.entries)
    assert list(reasons(report)) == [2]
    assert reason in reasons(report)[2]


def test_what_it_wrote_in_vain_is_tried_once_more(tmp_path: Path) -> None:
    body = "if len((here / 'runs.jsonl').read_text().splitlines()) == 1:\n    write('')\n    sys.exit(0)\n"
    tool = make(tmp_path, body + GOOD)
    report = profile_with(tool, Plan(("echo",), ((8, 8),), (1,), samples=120))
    assert report.failures == ()
    assert batches(tool) == [1, 1]


def test_a_batch_that_the_model_does_not_take_is_not_asked_for(tmp_path: Path) -> None:
    tool = make(tmp_path)
    report = profile_with(tool, PLAN, Model("echo", max_batch_size=2))
    assert "at most 2 frames" in reasons(report)[4]
    assert batches(tool) == [1, 2]


def test_what_a_killed_run_left_open_in_triton_is_closed(tmp_path: Path) -> None:
    name = f"framegate_test_{os.getpid()}"
    body = f"""
import mmap
region = os.open("/dev/shm/{name}", os.O_CREAT | os.O_RDWR)
os.ftruncate(region, 4096)
mapped = mmap.mmap(region, 4096)
time.sleep(60)
"""
    tritons: list[StandIn] = []
    plan = Plan(("echo",), ((8, 8),), (1,), samples=120, point_limit_s=2.0)
    report = profile_with(make(tmp_path, body), plan, script=tritons.append)
    assert "was killed" in reasons(report)[1]
    assert name in [call.name for call in tritons[0].log("unregister")]
    assert not (Path("/dev/shm") / name).exists()


def serve(triton: StandIn, region: Any) -> None:
    fd = os.open(f"/dev/shm/{region.name}", os.O_RDWR)
    import mmap

    triton.regions[region.name] = mmap.mmap(fd, region.size)
    os.close(fd)


@pytest.mark.parametrize("insist", [True, False])
def test_a_gateway_at_work_is_not_disturbed(tmp_path: Path, insist: bool) -> None:
    """Another gateway's region is registered, and it is alive: perf_analyzer would make Triton forget it."""
    tool, region, said = make(tmp_path), shared_region(4096), []
    options: dict[str, Any] = {
        "script": lambda triton: serve(triton, region),
        "on_progress": lambda _triton, what: said.append(what),
        "insist": insist,
    }
    plan = Plan(("echo",), ((8, 8),), (1,), samples=3)
    try:
        if insist:
            with pytest.raises(FramegateError, match=rf"serves a running gateway \({region.name}\).*--engine native"):
                profile_with(tool, plan, **options)
        else:
            report = profile_with(tool, plan, **options)
            assert report.profile.engine == "native"
            assert report.profile.entries[0].count == 3
            assert any("serves a running gateway" in line for line in said)
    finally:
        region.close()
    assert runs(tool) == []


# ---------------------------------------------------------------- going on


def test_every_point_is_on_disk_once_it_is_measured(tmp_path: Path) -> None:
    out = tmp_path / "box.json"
    seen: list[int] = []

    def look(_: StandIn, what: str) -> None:
        partial = tmp_path / "box.json.partial"
        if "batch" in what:
            seen.append(len(read_profile(partial).entries) if partial.exists() else 0)

    profile_with(make(tmp_path), on_progress=look, ledger=Ledger(out))
    assert seen == [0, 1, 2]
    assert [entry.batch for entry in read_profile(out).entries] == [1, 2, 4]
    assert not (tmp_path / "box.json.partial").exists()


def test_after_a_failure_only_what_is_missing_is_tried_again(tmp_path: Path) -> None:
    out = tmp_path / "box.json"
    tool = make(tmp_path, _FAILS_AT.format(batch=2, fault="sys.exit(1)") + GOOD)
    assert list(reasons(profile_with(tool, ledger=Ledger(out)))) == [2]
    assert [entry.batch for entry in read_profile(out).entries] == [1, 4]
    make(tmp_path)
    ledger = Ledger(out)
    report = profile_with(tool, ledger=ledger)
    assert report.failures == ()
    assert ledger.said.startswith("resuming: 2 points are there")
    assert batches(tool) == [1, 2, 4, 2]
    assert [entry.batch for entry in read_profile(out).entries] == [1, 2, 4], "in the plan's order"
    assert batches(tool)[-1] == 2
    profile_with(tool, ledger=Ledger(out))
    assert batches(tool) == [1, 2, 4, 2, 1, 2, 4], "when all is there, all is measured again"


@pytest.mark.parametrize(
    ("plan", "resume", "measured"),
    [
        (PLAN, Resume.IF_SAME, [4]),
        (PLAN, Resume.MUST, [4]),
        (PLAN, Resume.NEVER, [1, 2, 4]),
        (Plan(("echo",), ((8, 8),), (1, 4), samples=120), Resume.IF_SAME, [1, 4]),
        (Plan(("echo",), ((8, 8),), (1, 2, 4), samples=150), Resume.IF_SAME, [1, 2, 4]),
    ],
)
def test_only_the_same_run_is_gone_on_with(tmp_path: Path, plan: Plan, resume: Resume, measured: list[int]) -> None:
    out = tmp_path / "box.json"
    make(tmp_path / "first", _FAILS_AT.format(batch=4, fault="sys.exit(1)") + GOOD)
    profile_with(tmp_path / "first" / "perf_analyzer", ledger=Ledger(out))
    tool = make(tmp_path / "second")
    profile_with(tool, plan, ledger=Ledger(out, resume))
    assert batches(tool) == measured


def test_another_engine_begins_again(tmp_path: Path) -> None:
    out = tmp_path / "box.json"
    profile_with(make(tmp_path, "sys.exit(1)"), ledger=Ledger(out))
    profile_with(make(tmp_path, _FAILS_AT.format(batch=4, fault="sys.exit(1)") + GOOD), ledger=Ledger(out))
    ledger = Ledger(out)
    report = profile_with(None, Plan(("echo",), ((8, 8),), (1, 2, 4), samples=120), ledger=ledger)
    assert "made with another engine" in ledger.said
    assert report.profile.engine == "native"
    with pytest.raises(FramegateError, match=r"nothing to resume: .*box.json.partial does not exist"):
        profile_with(None, ledger=Ledger(out, Resume.MUST))


def test_a_partial_file_that_is_broken_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "box.json.partial").write_text('{"schema": 1, "ent')
    ledger = Ledger(tmp_path / "box.json")
    assert profile_with(make(tmp_path), ledger=ledger).failures == ()
    assert ledger.said.startswith("beginning again")
    (tmp_path / "box.json.partial").write_text('{"schema": 1, "entries": []}')
    with pytest.raises(FramegateError, match="cannot be resumed: it was made with another program"):
        profile_with(make(tmp_path), ledger=Ledger(tmp_path / "box.json", Resume.MUST))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_goes_on_after_it_was_killed(tmp_path: Path, how: signal.Signals) -> None:
    tool = make(tmp_path, _FAILS_AT.format(batch=4, fault="time.sleep(600)") + GOOD)
    out = tmp_path / "box.json"
    with stand_in_thread() as triton:
        arguments = ["profile", "--model", "echo", "--shape", "8x8", "--samples", "120", "--arena-mb", "1"]
        arguments += ["--triton", triton.url, "--out", str(out), "--perf-analyzer", str(tool)]
        command = [sys.executable, "-c", "from gateway.cli import app; app()", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            while batches(tool)[-1:] != [4]:
                assert process.poll() is None, process.communicate()[0]
                time.sleep(0.02)
            process.send_signal(how)
            said = process.communicate(timeout=20)[0]
        assert process.returncode == (-signal.SIGKILL if how is signal.SIGKILL else 130)
        if how is not signal.SIGKILL:
            assert f"2 points are in {out}.partial" in said.replace("\n", "")
        hung = runs(tool)[-1]["pid"]
        deadline = time.monotonic() + 5
        while Path(f"/proc/{hung}/cmdline").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not Path(f"/proc/{hung}/cmdline").exists(), "the tool outlived the job"
        assert not out.exists()
        make(tmp_path)
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    assert "resuming: 2 points are there" in result.stderr
    assert batches(tool) == [1, 2, 4, 4, 8]
    assert [entry.batch for entry in read_profile(out).entries] == [1, 2, 4, 8]


# ---------------------------------------------------------------- models


def swapping(triton: StandIn) -> None:
    """Executions of `echo` take three times as long while `other` is not there."""
    triton.models["other"].load_delay_s = 0.02
    triton.delay_s = lambda call: 0.002 if triton.models["other"].loaded else 0.006


def test_a_model_is_unloaded_and_loaded_several_times() -> None:
    """Loads take longer and longer; the first execution after each takes long."""
    plan = Plan(("echo",), ((8, 8),), (1, 2), samples=3, server_pid=os.getpid(), swaps=3)
    batches_run: list[int] = []

    def script(triton: StandIn) -> None:
        def delay_s(call: Any) -> float:
            loads = len(triton.log("load"))
            triton.models["echo"].load_delay_s = 0.1 * (loads + 1) ** 2
            if len(batches_run) < loads:
                batches_run.append(call.rows)
                return 0.05 * (loads + 1)
            return 0.0

        triton.delay_s = delay_s

    [echo] = profile_with(None, plan, script=script).profile.models
    assert echo.swaps == 3
    assert echo.load_max_ms is not None
    assert echo.unload_max_ms is not None
    assert echo.warm_up_ms is not None
    assert 400 <= echo.load_ms < 900 <= echo.load_max_ms < 1_500, "100, 400 and 900 ms"
    assert 0 < echo.unload_ms <= echo.unload_max_ms < 300
    assert 200 <= echo.warm_up_ms < 400, "the longest of 100, 150 and 200 ms"
    assert batches_run == [2, 2, 2], "the largest batch comes first"


def test_executions_are_measured_while_another_model_loads() -> None:
    plan = Plan(("echo", "other"), ((8, 8),), (1,), samples=3, server_pid=os.getpid(), loads=True)
    tritons: list[StandIn] = []

    def script(triton: StandIn) -> None:
        tritons.append(triton)
        swapping(triton)

    report = profile_with(None, plan, Model("echo"), Model("other"), script=script)
    assert report.failures == ()
    echo = report.profile.models[0]
    assert echo.model == "echo"
    assert echo.interference_p50 is not None
    assert echo.interference_p99 is not None
    assert 1.3 < echo.interference_p50 < 4
    assert min(len(tritons[0].log("load")), len(tritons[0].log("unload"))) > 10, "over and over"
    assert all(model.loaded for model in tritons[0].models.values()), "all is as it was"
    again = Profile.from_dict(json.loads(json.dumps(report.profile.to_dict())))
    assert again.models == report.profile.models


def test_a_model_that_does_not_come_back_is_listed_and_its_figures_are_kept() -> None:
    plan = Plan(("echo",), ((8, 8),), (1,), samples=3, server_pid=os.getpid(), loads=True, load_beside="other")
    models = (Model("echo"), Model("other", load_error="out of memory"))
    report = profile_with(None, plan, *models)
    assert [entry.model for entry in report.profile.models] == ["echo"]
    assert report.profile.models[0].interference_p99 is None
    assert "Running it while other loads: out of memory" in report.failures[0].reason


def test_models_whose_times_would_be_gone_are_named(tmp_path: Path) -> None:
    out = tmp_path / "box.json"
    assert Ledger(out).lost(["echo"]) == []
    write_profile(out, make_profile(models=("echo", "other")))
    assert Ledger(out).lost(["echo"]) == ["other"]
    assert Ledger(out).lost(["other", "echo", "third"]) == []
    assert Ledger(out).lost([]) == [], "nothing is measured, so nothing is replaced"
    out.write_text("{")
    assert Ledger(out).lost(["echo"]) == []


def test_alone_there_is_nothing_to_load_beside() -> None:
    plan = Plan(("echo",), ((8, 8),), (1,), samples=3, server_pid=os.getpid(), loads=True)
    report = profile_with(None, plan)
    assert report.failures == ()
    assert report.profile.models[0].interference_p50 is None
    assert "interference_p50" not in report.profile.to_dict()["models"][0], "what was not measured is not in the file"


def test_files_from_before_these_fields_are_read() -> None:
    old = {"model": "m", "version": "1", "load_ms": 1.0, "unload_ms": 2.0, "bytes": 3}
    entry = {"model": "m", "version": "1", "shape": [8, 8, 3], "dtype": "UINT8", "batch": 1, "count": 200}
    entry |= {"p50_ms": 1.0, "p99_ms": 2.0, "max_ms": 3.0, "stable": True}
    data = {"schema": 1, "entries": [entry], "models": [old]}
    profile = Profile.from_dict(data)
    assert profile.models == (ModelEntry("m", "1", 1.0, 2.0, 3),)
    assert profile.entries[0].queue_ms is None
    assert profile.to_dict()["models"] == [old]
    assert profile.to_dict()["entries"] == [entry]
    assert Profile.from_dict(data | {"entries": [entry | {"queue_ms": 0}]}).entries[0].queue_ms == 0.0
    for field, value in (("queue_ms", -1), ("compute_infer_ms", "1"), ("queue_ms", False), ("queue_ms", float("nan"))):
        with pytest.raises(ValueError, match=rf"entries\[0\].{field} must be"):
            Profile.from_dict(data | {"entries": [entry | {field: value}]})
    with pytest.raises(ValueError, match=r"models\[0\].interference_p99 must be"):
        Profile.from_dict(data | {"models": [old | {"interference_p99": 0}]})


# ---------------------------------------------------------------- the command


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake perf_analyzer that is found by itself."""
    tool = make(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    return tool


def command(triton: StandIn, *arguments: str) -> Any:
    common = ["--model", "echo", "--shape", "8x8", "--batch", "1", "--samples", "120", "--arena-mb", "1"]
    return CliRunner().invoke(app, ["profile", *common, "--triton", triton.url, *arguments])


def test_51_the_one_on_path_is_used_by_default(tmp_path: Path, on_path: Path) -> None:
    with stand_in_thread() as triton:
        result = command(triton, "--out", str(tmp_path / "box.json"), "--json", "--plots", str(tmp_path / "plots"))
        assert result.exit_code == 0, result.output
        assert command(triton, "--out", str(tmp_path / "quick.json"), "--quick").exit_code == 0
        assert command(triton, "--out", str(tmp_path / "back.json"), "--back-to-back").exit_code == 0
    report = json.loads(result.stdout.splitlines()[-1])
    assert report["profile"]["engine"] == "perf_analyzer"
    assert report["failed"] == []
    assert [Path(plot).read_bytes()[:4] for plot in report["plots"]] == [b"\x89PNG"]
    assert len(runs(on_path)) == 1, "the quick way and the one without pauses are the gateway's own"
    assert read_profile(tmp_path / "quick.json").engine == "native"


def test_51_a_failure_is_shown_with_its_status(tmp_path: Path, on_path: Path) -> None:
    make(on_path.parent, _FAILS_AT.format(batch=2, fault="print('error: no kernel'); sys.exit(1)") + GOOD)
    with stand_in_thread() as triton:
        result = command(triton, "--batch", "2", "--out", str(tmp_path / "box.json"))
    assert result.exit_code == 1
    assert "not measured: echo 8x8x3 batch 2: perf_analyzer: error: no kernel (exit status 1)" in result.stderr
    assert "the same command again tries only these" in result.stderr
    assert "echo/1" in result.stdout
    assert [entry.batch for entry in read_profile(tmp_path / "box.json").entries] == [1]


@pytest.fixture
def no_perf_analyzer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """None is there and pip gets none."""
    monkeypatch.setattr("profiler.perf_analyzer.tool._candidates", lambda: iter(()))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))


@pytest.mark.usefixtures("no_perf_analyzer")
def test_without_one_the_native_engine_measures_unless_told_otherwise(tmp_path: Path) -> None:
    with stand_in_thread() as triton:
        refused = command(triton, "--engine", "perf_analyzer", "--out", str(tmp_path / "box.json"))
        result = command(triton, "--out", str(tmp_path / "box.json"))
    assert refused.exit_code == 2
    assert "pip cannot download" in refused.stderr
    assert "--engine native" in refused.stderr
    assert result.exit_code == 0, result.output
    assert "fetching perf_analyzer" in result.stderr
    assert "for want of perf_analyzer: pip cannot download" in result.stderr
    assert read_profile(tmp_path / "box.json").engine == "native"


def test_a_named_one_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["profile", "--model", "m", "--perf-analyzer", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "does not run here: No such file or directory" in result.stderr


def test_a_model_must_be_named() -> None:
    result = CliRunner().invoke(app, ["profile"])
    assert result.exit_code == 2
    assert "--model" in result.stderr
