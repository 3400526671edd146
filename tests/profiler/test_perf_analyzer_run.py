"""Field report 51: whatever the measuring tool does, only true figures count and nothing of it stays behind."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from profiler.perf_analyzer import Outcome, PerfAnalyzerError, Request, Split, Tool, run
from tests.profiler.fake_perf_analyzer import make, runs

SHM = Path("/dev/shm")


def request(**fields: Any) -> Request:
    defaults = {"url": "127.0.0.1:9", "model": "m", "version": "1", "input_name": "frames", "shape": (8, 6, 3)}
    return Request(**({**defaults, "batch": 2, "requests": 20, "limit_s": 20.0} | fields))


def run_fake(directory: Path, body: str, **fields: Any) -> Outcome:
    return asyncio.run(run(Tool(make(directory, body)), request(**fields)))


def fault_of(directory: Path, body: str, **fields: Any) -> PerfAnalyzerError:
    with pytest.raises(PerfAnalyzerError) as caught:
        run_fake(directory, body, **fields)
    return caught.value


def alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# ---------------------------------------------------------------- what it is told


def test_shape_count_and_shared_memory_are_always_passed(tmp_path: Path) -> None:
    tool = make(tmp_path)
    asyncio.run(run(Tool(tool), request(output_bytes=4000)))
    [said] = runs(tool)
    arguments = said["arguments"]
    assert {name: arguments[name] for name in ("-m", "-x", "-u", "-i", "-b", "--shape", "--concurrency-range")} == {
        "-m": "m",
        "-x": "1",
        "-u": "127.0.0.1:9",
        "-i": "grpc",
        "-b": "2",
        "--shape": "frames:8,6,3",
        "--concurrency-range": "1",
    }
    assert arguments["--request-count"] == "20"
    assert arguments["--shared-memory"] == "system"
    assert arguments["--output-shared-memory-size"] == "4000"
    assert said["environment"]["LC_ALL"] == "C"
    assert said["environment"]["no_grpc_proxy"].endswith("127.0.0.1")
    assert not Path(arguments["-f"]).parent.exists(), "its files are gone"


def test_without_shared_memory_and_with_time_windows(tmp_path: Path) -> None:
    tool = make(tmp_path)
    asyncio.run(run(Tool(tool), request(shared_memory=False, requests=0, concurrency=3, window_ms=700, version="")))
    arguments = runs(tool)[0]["arguments"]
    assert arguments["--measurement-interval"] == "700"
    assert arguments["--concurrency-range"] == "3"
    assert not {"--shared-memory", "--output-shared-memory-size", "--request-count", "-x"} & set(arguments)


@pytest.mark.parametrize("name", ["a b; touch x", "-x", "modèle", "$(id)", "a'b\"c"])
def test_odd_model_names_arrive_as_they_are(tmp_path: Path, name: str) -> None:
    tool = make(tmp_path)
    asyncio.run(run(Tool(tool), request(model=name)))
    assert runs(tool)[0]["arguments"]["-m"] == name


# ---------------------------------------------------------------- what counts


def test_latencies_are_in_the_order_of_starts_and_in_ms(tmp_path: Path) -> None:
    outcome = run_fake(tmp_path, "export([900.0, 3.0, 1.5, 2.25]); table(HEADER + '\\n' + ROW)")
    assert outcome.latencies_ms == (900.0, 3.0, 1.5, 2.25)
    assert outcome.split == Split(0.049, 0.074, 9.687, 0.243), "the table's times are in microseconds"
    assert not outcome.unstable


def test_an_unstable_run_without_a_table_still_counts(tmp_path: Path) -> None:
    outcome = run_fake(tmp_path, "export([2.0] * count); print('Failed to obtain stable measurement.'); sys.exit(2)")
    assert outcome.unstable
    assert len(outcome.latencies_ms) == 20
    assert outcome.split is None


@pytest.mark.parametrize(
    ("table", "split"),
    [
        (
            "p99 latency,Server Compute Infer,New,Server Compute Output,Server Queue, Server Compute Input\n"
            "9,4000,x,30,0,20\n",
            Split(0.0, 0.02, 4.0, 0.03),
        ),
        ("Queue,Server Compute Input,Server Compute Infer,Server Compute Output\n1,2,3,4\n", None),
        ("Server Queue,Server Compute Input,Server Compute Infer,Server Compute Output\nnan,2,3,4\n", None),
        ("Server Queue,Server Compute Input,Server Compute Infer,Server Compute Output\n1,2,inf,4\n", None),
        ("Server Queue,Server Compute Input,Server Compute Infer,Server Compute Output\n1,2,-3,4\n", None),
        ("Server Queue,Server Compute Input,Server Compute Infer,Server Compute Output\n1,2,0,4\n", None),
        ("Server Queue,Server Compute Input,Server Compute Infer,Server Compute Output\n1,5,2,0,3,1,4\n", None),
        ("Server Queue,Server Compute Input,Server Compute Infer,Server Compute Output\n1,2\n", None),
        (
            "Server Queue,Server Queue,Server Compute Input,Server Compute Infer,Server Compute Output\n1,1,2,3,4\n",
            None,
        ),
        ("Server Queue,Server Compute Input,Server Compute Infer,Server Compute Output\n", None),
        ("", None),
        ("\\x00\\xff,\n,,,\n", None),
    ],
)
def test_columns_are_found_by_name_or_left_out(tmp_path: Path, table: str, split: Split | None) -> None:
    outcome = run_fake(tmp_path, f"export([2.0] * count); table({table!r})")
    assert outcome.split == split
    assert len(outcome.latencies_ms) == 20, "the figures do not depend on the table"


# ---------------------------------------------------------------- what fails


def test_its_own_words_are_the_reason(tmp_path: Path) -> None:
    said = "print('*** Settings ***'); print('Thread [0] had error: batch-size must be <= 16 for m', file=sys.stderr)"
    fault = fault_of(tmp_path, f"{said}; print(' '); sys.exit(99)")
    assert str(fault) == "perf_analyzer: Thread [0] had error: batch-size must be <= 16 for m (exit status 99)"


def test_garbage_is_no_reason_and_does_no_harm(tmp_path: Path) -> None:
    fault = fault_of(tmp_path, "os.write(1, bytes(range(256)) * 50 + b'\\x1b[31mred\\x1b[0m'); sys.exit(3)")
    assert "(exit status 3)" in str(fault)
    assert str(fault).isprintable()
    assert len(str(fault)) < 500


def one(request: str) -> str:
    """Return the code that writes this one request."""
    return f'write(\'{{"experiments": [{{"requests": [{request}]}}]}}\')'


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "it wrote no measurements"),
        ("write('')", "cannot be read"),
        ("export([2.0] * count); text = pathlib.Path(arguments['--profile-export-file']).read_text()\n"
         "write(text[: len(text) // 2])", "cannot be read"),
        ("write('[' * 100_000)", "cannot be read"),
        ("write('{}')", "no list of experiments"),
        ("write('[1]')", "no list of experiments"),
        ("write('{\"experiments\": [{}]}')", "no list of requests"),
        ("write('{\"experiments\": [{\"requests\": []}, {\"requests\": []}]}')", "2 experiments"),
        ("export([])", "it measured no request"),
        ("export([2.0, 0.0])", "no time in ns"),
        ("export([2.0, -1.0])", "no time in ns"),
        ("export([2.0, 9e9])", "no time in ns"),
        (one('{"timestamp": 1, "response_timestamps": []}'), "no answer"),
        (one("7"), "no answer"),
        (one('{"timestamp": NaN, "response_timestamps": [9]}'), "no time"),
        (one('{"timestamp": 1, "response_timestamps": [2.5]}'), "no time"),
    ],
)  # fmt: skip
def test_without_whole_and_possible_measurements_there_are_none(tmp_path: Path, body: str, reason: str) -> None:
    fault = fault_of(tmp_path, f"print('all is well')\n{body}")
    assert reason in str(fault)
    assert "(exit status 0); it said: all is well" in str(fault)
    assert fault.unreadable == (reason == "cannot be read")


def test_a_program_that_cannot_be_run_is_said(tmp_path: Path) -> None:
    (tmp_path / "perf_analyzer").write_text("no program")
    with pytest.raises(PerfAnalyzerError, match="cannot be run"):
        asyncio.run(run(Tool(tmp_path / "perf_analyzer"), request()))


_HANGS = """
import mmap
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, 1); time.sleep(600)"])
region = os.open("/dev/shm/framegate_test_{name}", os.O_CREAT | os.O_RDWR)
os.ftruncate(region, 4096)
mapped = mmap.mmap(region, 4096)
print("Request concurrency: 1", flush=True)
(here / "child").write_text(str(child.pid))
time.sleep(600)
"""


def test_one_that_hangs_is_killed_with_its_children_and_its_shared_memory(tmp_path: Path) -> None:
    name = f"framegate_test_{os.getpid()}"
    began = time.monotonic()
    fault = fault_of(tmp_path, _HANGS.replace("{name}", str(os.getpid())), limit_s=1.5)
    assert time.monotonic() - began < 10
    assert "took longer than 1.5 s and was killed; the last it said: Request concurrency: 1" in str(fault)
    assert fault.regions == (name,)
    assert not (SHM / name).exists()
    assert not alive(runs(tmp_path / "perf_analyzer")[0]["pid"])
    assert not alive(int((tmp_path / "child").read_text()))


def test_a_run_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    tool = make(tmp_path, "time.sleep(600)")

    async def main() -> None:
        task = asyncio.create_task(run(Tool(tool), request()))
        while not runs(tool):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not alive(runs(tool)[0]["pid"])


def test_children_that_outlive_it_are_ended(tmp_path: Path) -> None:
    body = "child = subprocess.Popen(['sleep', '600']); (here / 'child').write_text(str(child.pid)); export([2.0] * 9)"
    began = time.monotonic()
    assert len(run_fake(tmp_path, body).latencies_ms) == 9
    assert time.monotonic() - began < 10, "the child held its output open"
    assert not alive(int((tmp_path / "child").read_text()))


def test_one_that_floods_its_output_is_read_to_the_end(tmp_path: Path) -> None:
    body = "os.write(2, b'warning\\n' * 5_000_000)\nprint('error: at last')\nsys.exit(1)"
    assert str(fault_of(tmp_path, body)) == "perf_analyzer: error: at last (exit status 1)"


def test_two_runs_with_shared_memory_take_turns(tmp_path: Path) -> None:
    """They would use the same files in /dev/shm."""
    body = "began = time.time(); time.sleep(0.3); (here / str(os.getpid())).write_text(f'{began} {time.time()}')\n"
    tool = make(tmp_path, body + "export([2.0])")

    async def main() -> None:
        await asyncio.gather(*(run(Tool(tool), request()) for _ in range(2)))

    asyncio.run(main())
    first, second = sorted(tuple(map(float, p.read_text().split())) for p in tmp_path.iterdir() if p.name.isdecimal())
    assert first[1] <= second[0]
