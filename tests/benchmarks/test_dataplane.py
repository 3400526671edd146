"""What the benchmark of the frame path rests on: its senders, what it reads from others, and how figures come about."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import dataplane
from benchmarks.frame_path import models, processes, rival, servers, targets, wrk
from benchmarks.frame_path.added import Sample
from benchmarks.frame_path.added import figures as added_figures
from benchmarks.frame_path.copies import COPIES
from benchmarks.frame_path.loads import Load, LoadError
from benchmarks.frame_path.metrics import parse
from benchmarks.frame_path.processes import Memory
from benchmarks.frame_path.report import figures, lines
from benchmarks.frame_path.sizes import MAIN, SINGLE, SIZES, Size, by_name, slow_profile
from benchmarks.frame_path.soak import figures as soak_figures
from benchmarks.frame_path.soak import timeliness
from benchmarks.frame_path.targets import Target, measure
from benchmarks.frame_path.throughput import ARMS
from benchmarks.swapping.results import Results
from gateway.api.requests import StreamRequest
from gateway.core.engine import Engine
from gateway.core.profile import Profile

# ---------------------------------------------------------------- what is sent, and under which contract


@pytest.mark.parametrize("size", [*SIZES, SINGLE], ids=lambda size: f"{size.name}-{max(size.batches)}")
def test_the_contract_of_each_size_is_admitted(size: Size) -> None:
    spec = StreamRequest.model_validate_json(json.dumps(size.stream("m"))).spec()
    spec = replace(spec, version="1")
    assert Engine(size.profile("m")).check(spec, 0).admitted
    assert spec.burst > size.connections, "a closed loop has no more frames under way"
    assert spec.burst * 1e9 / spec.period_ns == pytest.approx(size.most_per_s, rel=0.01)
    assert len(size.frame()) == size.frame_bytes


def test_sizes_are_those_of_the_budgets() -> None:
    assert [round(size.frame_bytes / 1e3) for size in SIZES] == [1, 151, 1229, 6221]
    assert by_name("150kB") is MAIN
    assert isinstance(slow_profile("m", 10.0), Profile)


def test_models_are_written_for_triton(tmp_path: Path) -> None:
    models.write_repository(tmp_path)
    assert ("dynamic_batching" in (tmp_path / "first_value_batched/config.pbtxt").read_text()) is True
    assert ("dynamic_batching" in (tmp_path / "first_value/config.pbtxt").read_text()) is False
    assert 'string_value: "10.0"' in (tmp_path / "sleeper/config.pbtxt").read_text()
    compile((tmp_path / "sleeper/1/model.py").read_text(), "model.py", "exec")


def test_rivals_are_told_through_their_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    told = rival.Rival(worker_core=1, shape=(2, 2, 3), most=16, wait_ms=5)
    for name, value in told.environment().items():
        monkeypatch.setenv(name, value)
    assert rival.Rival.told() == told
    assert rival.first_value(told.frame(bytes(range(12)))) == [0.0, 1.0, 2.0]


# ---------------------------------------------------------------- wrk


def test_what_wrk_found_is_read() -> None:
    line = (
        '{"frames": 100, "us": 2000000, "p50_us": 1500, "p99_us": 9000, '
        '"faults": {"connect": 0, "read": 0, "write": 0, "status": 2, "timeout": 0}}'
    )
    load = wrk.read(f"Running 2s test\n{line}\n")
    assert load == Load(98, 2.0, 1.5, 9.0, {"status": 2})
    assert load.frames_per_s == 49
    with pytest.raises(LoadError, match="status"):
        load.checked()
    with pytest.raises(LoadError, match="nothing of use"):
        wrk.read("Running 2s test\n")


def test_the_script_sends_the_file(tmp_path: Path) -> None:
    text = wrk.script(tmp_path / "body", {"content-type": "image/x"})
    assert f'io.open("{tmp_path}/body", "rb")' in text
    assert 'wrk.headers["content-type"] = "image/x"' in text


def test_without_wrk_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="apt-get install wrk"):
        wrk.find()


def test_arms_without_their_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "mosec" else object())
    assert servers.missing_rivals(list(ARMS)) == ["mosec"]
    assert servers.missing_rivals(["http"]) == []
    monkeypatch.setattr(sys, "argv", ["dataplane", "--only", "frames"])
    with pytest.raises(SystemExit, match=r"mosec.*--arms ceiling http"):
        dataplane.main()


# ---------------------------------------------------------------- processes


def test_processor_time_and_memory_of_a_process() -> None:
    before = processes.cpu_s(os.getpid())
    end_s = time.process_time() + 0.1
    while time.process_time() < end_s:
        pass
    assert processes.cpu_s(os.getpid()) - before >= 0.08
    assert processes.memory(os.getpid()).rss > 10 << 20
    assert processes.cpu_s(2**22 + 1) == 0.0


def test_a_server_ends_with_all_that_it_started(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    code = (
        "import os, subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"os.sched_setaffinity(0, {{{core}}})\n"
        "print('up', flush=True)\n"
        "import time; time.sleep(600)\n"
    )
    log = tmp_path / "log"
    with processes.started([sys.executable, "-c", code], core, log) as process:
        while b"up" not in log.read_bytes():
            time.sleep(0.01)
        [child] = processes.children(process.pid)
        assert processes.on_same_core(process.pid) == [process.pid, child]
        assert os.sched_getaffinity(process.pid) == {core}
    assert process.poll() is not None
    deadline_s = time.monotonic() + 10
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", "raise SystemExit('no luck')"]
    with (
        processes.started(command, min(os.sched_getaffinity(0)), log) as process,
        pytest.raises(SystemExit, match="no luck"),
    ):
        processes.wait_until_ok(process, processes.free_port(), "/", log)


def test_the_ceiling_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = min(os.sched_getaffinity(0))
    body, port, log = tmp_path / "body", processes.free_port(), tmp_path / "log"
    body.write_bytes(bytes(150_528))
    command = [sys.executable, "-m", "benchmarks.frame_path.ceiling", str(port)]
    with processes.started(command, core, log) as process:
        processes.wait_until_ok(process, port, "/", log)
        target = Target(port, "/", body, 4, process.pid, answer=b"{}", own_client=True)
        target.check()
        row = measure(target, 1.0)
        monkeypatch.setattr(targets, "_WORKER_S", 0.2)
        with pytest.raises(LoadError, match="answered"):
            Target(port, "/", body, 4, process.pid, answer=b"outcome").check()
    assert row["frames"] == pytest.approx(row["frames_per_s"], rel=0.05)
    assert 0.02 < row["cpu_ms"] < 20
    assert 0.02 < row["client_cpu_ms"] < 20
    assert row["behind_cpu_ms"] == 0


# ---------------------------------------------------------------- what the gateway says

PAGE = """\
# TYPE jobs histogram
jobs_bucket{model="a",le="1.0"} 1
jobs_bucket{model="a",le="2.0"} 3
jobs_bucket{model="a",le="+Inf"} 4
jobs_count{model="a"} 4
jobs_sum{model="a"} 10
jobs_bucket{model="b",le="1.0"} 1
jobs_bucket{model="b",le="2.0"} 1
jobs_bucket{model="b",le="+Inf"} 1
jobs_count{model="b"} 1
jobs_sum{model="b"} 1
# TYPE frames counter
frames_total{model="a",outcome="met"} 5
frames_total{model="b",outcome="met"} 2
frames_total{model="b",outcome="failed"} 1
"""


def test_pages_of_metrics_are_subtracted() -> None:
    page = parse(PAGE)
    assert page.total("frames_total") == 8
    assert page.by("frames_total", "outcome") == {"met": 7, "failed": 1}
    assert page.mean("jobs") == pytest.approx(11 / 5)
    assert page.quantile("jobs", 0.8) == 2.0
    assert page.quantile("jobs", 0.9) == math.inf
    assert page.above("jobs") == {1.0: 3, 2.0: 1}
    assert page.above("nothing") == {}
    later = parse(PAGE.replace("} 5", "} 9")).since(page)
    assert later.by("frames_total", "outcome") == {"met": 4, "failed": 0}
    assert math.isnan(later.mean("jobs"))
    assert math.isnan(later.quantile("jobs", 0.5))
    assert math.isnan(later.quantile("nothing", 0.5))


# ---------------------------------------------------------------- figures


def row(frames_per_s: float, cpu_ms: float, **more: Any) -> dict[str, Any]:
    return {"frames_per_s": frames_per_s, "cpu_ms": cpu_ms, **more}


KEYS = (
    "cpu_ratio_http",
    "cpu_ratio_http_batch1",
    "rate_vs_triton_http",
    "ws_cpu_vs_http",
    "busy_ratio",
    "added_p50_ms",
    "added_p99_ms",
    "rate_vs_litserve",
    "rate_vs_mosec",
)


def test_figures_have_the_keys_that_were_asked_for(tmp_path: Path) -> None:
    found = figures(Results(tmp_path / "r.json", resume=False))
    assert list(found)[: len(KEYS)] == sorted(KEYS, key=list(found).index)
    assert {key: found[key] for key in KEYS} == dict.fromkeys(KEYS)


def test_ratios_are_medians_of_those_within_a_round(tmp_path: Path) -> None:
    results = Results(tmp_path / "r.json", resume=False)
    results.keep(
        "frames 150kB",
        {
            "ceiling": [row(100, 1.0), row(100, 2.0), row(100, 4.0)],
            "http": [row(50, 1.5, mean_batch=8.0), row(60, 4.0), row(70, 4.4)],
            "ws": [row(50, 0.6), row(60, 3.2), {"error": "gone"}],
            "ceiling_paced": [row(10, 2.0)],
            "http_single_paced": [row(10, 5.0)],
            "triton": [row(40, 1.0), row(40, 1.0), {"error": "it was too much"}],
            "litserve": [{"error": "all"}] * 3,
        },
    )
    results.keep("busy", {"runs": {"gateway": [row(95, 1)], "perf_analyzer": [{"frames_per_s": 100}]}})
    results.keep("added", {"runs": [{"added_p50_ms": 1.0, "added_p99_ms": n} for n in (5.0, 2.0, 3.0)]})
    found = figures(results)
    assert found["cpu_ratio_http"] == 1.5
    assert found["rate_vs_triton_http"] == pytest.approx(1.375)
    assert found["ws_cpu_vs_http"] == pytest.approx(0.6)
    assert found["cpu_ratio_http_batch1_same_rate"] == 2.5
    assert found["busy_ratio"] == 0.95
    assert found["added_p99_ms"] == 3.0
    assert found["rate_vs_litserve"] is None
    assert found["mean_batch"] == {"http": 8.0, "ws": None}
    json.dumps(found)
    said = "\n".join(lines(results))
    assert "1 of 3 runs: it was too much" in said
    assert "| http | 60 | 4.0 |" in said


def test_copies_are_stated_for_every_arm() -> None:
    assert set(ARMS) - set(COPIES) <= {
        "ceiling_paced",
        "http_early",
        "http_own_client",
        "http_single",
        "http_single_paced",
        "triton_two_cores",
    }
    assert set(COPIES) <= set(ARMS)


def test_what_is_added_is_the_latency_less_the_devices_time_frame_by_frame() -> None:
    samples = [Sample(client=2.0 + n / 100, gateway=1.5, device=1.0) for n in range(100)]
    found = added_figures(samples)
    assert found["added_p50_ms"] == pytest.approx(1.5)
    assert found["added_p99_ms"] == pytest.approx(1.99)
    assert found["added_in_gateway_p99_ms"] == 0.5
    assert found["frames"] == 100


def test_memory_is_compared_by_the_second_part_and_the_last() -> None:
    samples = [Memory(rss=100 << 20, shared=1 << 20)] * 10
    samples += [Memory(rss=(200 + n) << 20, shared=1 << 20) for n in range(90)]
    found = soak_figures(samples)
    assert len(found["rss_mib"]) == 10
    assert found["rss_mib"][0] == 100
    assert found["rss_growth"] == pytest.approx(284.5 / 204.5 - 1, abs=1e-3)
    assert found["shared_growth"] == 0.0


LATENESS = """\
# TYPE framegate_timer_late_seconds histogram
framegate_timer_late_seconds_bucket{le="0.001"} 90
framegate_timer_late_seconds_bucket{le="0.005"} 98
framegate_timer_late_seconds_bucket{le="+Inf"} 100
framegate_timer_late_seconds_count 100
framegate_timer_late_seconds_sum 0.2
"""


def test_a_timer_that_is_later_than_a_window_is_missed() -> None:
    found = timeliness(parse(LATENESS))
    assert (found["timers"], found["missed_timers"]) == (100, 2)
    assert found["timers_late_above_ms"] == {"1": 10, "5": 2}
    assert found["loop_lag_p99_ms"] is None
    json.dumps(found, allow_nan=False)


# ---------------------------------------------------------------- all of it, small


@pytest.mark.e2e
def test_every_server_of_ours_and_triton_itself_take_frames(tmp_path: Path) -> None:
    from benchmarks.frame_path.added import measure_added
    from benchmarks.frame_path.servers import Place

    cores = sorted(os.sched_getaffinity(0))
    said: list[str] = []
    with servers.embedded_triton(cores[-1:], tmp_path, "first_value", "first_value_batched") as triton:
        place = Place(cores[0], cores[-1], triton, tmp_path)
        size = replace(MAIN, connections=8)
        with servers.gateway_at(place, size, "gateway") as http:
            over_http = measure(replace(http, own_client=True), 1.0)
            over_ws = measure(servers.over_websocket(http), 1.0)
        direct = servers.triton_http(place, size, triton)
        direct.check()
        of_triton = measure(replace(direct, own_client=True), 1.0)
        [added] = measure_added(place, said.append, seconds=1.0, rounds=1)["runs"]
    for found in (over_http, over_ws):
        assert found["mean_batch"] > 1.5
        assert found["refused"] == {}
        assert set(found["outcomes"]) <= {"met", "missed", "cancelled"}, "some were under way at the end"
        assert found["cpu_ms"] > 0.05
    assert of_triton["frames"] > 20
    assert 0 < added["device_p50_ms"] < added["added_p50_ms"] + added["device_p50_ms"]
    assert added["frames"] == 25
    assert len(said) == 1


def test_the_command_says_what_it_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.dataplane", "--help"], capture_output=True, text=True, check=True
    )
    assert "--soak-seconds" in done.stdout
