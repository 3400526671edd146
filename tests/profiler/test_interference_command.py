"""``framegate profile interference``: what it refuses, prints and writes."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from gateway.cli import app
from profiler.perf_analyzer import PerfAnalyzerError, Tool
from tests.profiler.interference_support import StudyStandIn, make_perf_analyzer
from tests.stand_in import Model


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["profile", "interference", *map(str, arguments)])


@contextmanager
def stand_in(*models: Model, perf_analyzer: Path) -> Iterator[str]:
    """A Triton on a thread of its own: the command has its own event loop."""
    ready, over, urls = threading.Event(), threading.Event(), list[str]()

    async def main() -> None:
        async with StudyStandIn(*models) as triton:
            triton.perf_analyzer = perf_analyzer
            urls.append(triton.url)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield urls[0]
    finally:
        over.set()
        thread.join()


def test_profile_and_profile_interference_are_two_commands() -> None:
    runner = CliRunner()
    overview = runner.invoke(app, ["--help"]).output
    assert "profile interference" in overview
    assert "--batch" in runner.invoke(app, ["profile", "--help"]).output
    assert "profile interference" in runner.invoke(app, ["profile", "--help"]).output
    assert "--instances" in invoke("--help").output
    assert runner.invoke(app, ["profile", "interferences"]).exit_code == 2
    assert "interference" in invoke().output, "the usage line names it"


def test_a_study_prints_tables_writes_its_file_and_draws(tmp_path: Path) -> None:
    tool, out = make_perf_analyzer(tmp_path), tmp_path / "deep" / "study.json"
    with stand_in(Model("one"), Model("two"), perf_analyzer=tool) as url:
        done = invoke(
            *("--model", "one", "--model", "two", "--shape", "8x8", "--shape", "two=16x8", "--instances", 2),
            *("--total", 2, "--seconds", 0.5, "--triton", url, "--perf-analyzer", tool),
            *("--out", out, "--plots", tmp_path / "png"),
        )
    assert done.exit_code == 0, done.output
    assert "4 beside one" not in done.output
    assert "2 instances of a model: 1.00 times the frames per second, 2.00 times the latency" in done.output
    assert "one 1x1 beside two 1x1 (1 of 8)" in done.stderr
    written = json.loads(out.read_text())
    assert written["models"] == [{"model": "one", "shape": [8, 8, 3]}, {"model": "two", "shape": [16, 8, 3]}]
    assert written["failed"] == []
    assert sorted(path.name for path in (tmp_path / "png").iterdir()) == [
        f"interference_{name}.png" for name in ("instances", "pairs", "totals")
    ]
    assert [path.name for path in out.parent.iterdir()] == ["study.json"]


def test_what_failed_is_told_with_status_1_and_the_rest_is_written(tmp_path: Path) -> None:
    tool, out = make_perf_analyzer(tmp_path), tmp_path / "study.json"
    common = ("--shape", "8x8", "--instances", 1, "--total", 0, "--seconds", 0.5, "--perf-analyzer", tool, "--out", out)
    with stand_in(Model("one"), Model("fails"), perf_analyzer=tool) as url:
        nothing = invoke("--model", "fails", *common, "--triton", url, "--json")
        assert nothing.exit_code == 1
        assert json.loads(nothing.stdout)["files"] == []
        assert not out.exists()
        done = invoke("--model", "one", "--model", "fails", "--no-pairs", *common, "--triton", url, "--json")
    assert done.exit_code == 1
    assert "not measured: fails 1x1: perf_analyzer: error: it fails" in done.stderr
    answer = json.loads(done.stdout)
    assert answer["files"] == [str(out)]
    assert [point["load"]["model"] for point in answer["points"]] == ["one"]
    assert json.loads(out.read_text())["failed"] == answer["failed"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--triton", "10.1.2.3:8001"], "10.1.2.3:8001 is not on this machine"),
        (["--shape", "8y8"], "a shape is written like"),
        (["--shape", "other=8x8"], "--shape names other, which --model does not"),
        (["--perf-analyzer", "/nowhere/perf_analyzer"], "/nowhere/perf_analyzer"),
        (["--model-repository", "/nowhere"], "/nowhere does not exist"),
        (["--out", "/"], "is a directory"),
        (["--plots", "/proc/plots"], "/proc/plots"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_run(tmp_path: Path, arguments: list[str], reason: str) -> None:
    tool = make_perf_analyzer(tmp_path)
    common = [
        "--model",
        "one",
        "--out",
        tmp_path / "study.json",
        "--perf-analyzer",
        tool,
        "--triton-log",
        tmp_path / "l",
    ]
    done = invoke(*common, *arguments)
    assert done.exit_code == 2
    assert reason in done.stderr
    assert done.stderr.startswith("framegate profile interference: ")
    assert not (tmp_path / "study.json").exists()
    assert not (tmp_path / "runs.jsonl").exists()


def test_where_no_perf_analyzer_can_be_had_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(say: Callable[[str], object]) -> Tool:
        say("fetching ...")
        raise PerfAnalyzerError("pip cannot download it")

    monkeypatch.setattr("profiler.perf_analyzer.find", lambda explicit: None)
    monkeypatch.setattr("profiler.perf_analyzer.fetch", fetch)
    done = invoke("--model", "one", "--out", tmp_path / "study.json")
    assert done.exit_code == 2
    assert done.stderr == "fetching ...\nframegate profile interference: pip cannot download it\n"
