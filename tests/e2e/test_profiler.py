"""The real perf_analyzer on a real Triton: what it says is about what the gateway's own path says."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.runtime.profile_file import read_profile
from gateway.settings import Settings
from gateway.triton.embedded import EmbeddedTriton
from profiler.bench import Bench
from profiler.engines import Native, PerfAnalyzer
from profiler.perf_analyzer import PerfAnalyzerError, Tool, fetch, find
from profiler.plan import Plan

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def tool() -> Tool:
    try:
        return find() or fetch(lambda _: None)
    except PerfAnalyzerError as error:
        pytest.skip(f"no perf_analyzer can be had here: {error}")


def test_it_measures_and_takes_over_where_it_is_to(
    tool: Tool, built_models: Callable[..., Path], tmp_path: Path
) -> None:
    """Both engines, one after the other, in one Triton each; a batch too many is a failure with the reason."""
    repository = built_models("centerface")
    arguments = ["--embedded", "--model-repository", str(repository), "--model", "centerface", "--shape", "64x96"]
    arguments += ["--batch", "1", "--batch", "2", "--batch", "17", "--samples", "100", "--no-while-loading"]
    arguments += ["--triton-log", str(tmp_path / "triton.log"), "--out", str(tmp_path / "box.json"), "--json"]
    result = CliRunner().invoke(
        app, ["profile", *arguments, "--engine", "perf_analyzer", "--perf-analyzer", str(tool.path)]
    )
    assert result.exit_code == 1, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    assert [failure["batch"] for failure in report["failed"]] == [17]
    profile = read_profile(tmp_path / "box.json")
    assert (profile.engine, profile.triton_version) == ("perf_analyzer", "2.51.0")
    assert [(entry.batch, entry.count) for entry in profile.entries] == [(1, 100), (2, 100)]
    for entry in profile.entries:
        assert 0 < entry.p50_ms <= entry.p99_ms <= entry.max_ms
        assert entry.compute_infer_ms is not None
        assert 0 < entry.compute_infer_ms < entry.max_ms
    [model] = profile.models
    assert min(model.load_ms, model.unload_ms, model.bytes) > 0


def test_its_memory_and_ours_get_along_in_one_triton(tool: Tool, triton_server: EmbeddedTriton) -> None:
    """perf_analyzer makes Triton forget the gateway's region; the point after it is measured all the same.

    The shortest of many executions are compared: what disturbs one of them only makes it longer.
    """
    settings = Settings(triton={"url": triton_server.grpc_url}, arena={"bytes": 4 << 20})
    plan = Plan(("centerface",), ((64, 96),), (1, 2), samples=40, pauses=False)

    async def main() -> None:
        bench = Bench(plan, settings, lambda _what, _samples: None)
        try:
            await bench.connect()
            native, perf_analyzer = Native(bench), PerfAnalyzer(bench, tool)
            for point in bench.points():
                assert bench.parts.inference.shared
                ours = await native.take(point, 40)
                theirs = await perf_analyzer.take(point, 40)
                assert len(ours.latencies_ms) == len(theirs.latencies_ms) == 40
                assert 1 / 3 < min(theirs.latencies_ms) / min(ours.latencies_ms) < 3
            assert bench.failures == []
        finally:
            await bench.close()

    asyncio.run(main())
