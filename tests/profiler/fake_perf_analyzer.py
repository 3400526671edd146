"""Makes a `perf_analyzer` that does what a test says, and keeps a log of its runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

#: Of this run of the tests, whatever a test makes of `sys.executable`.
PYTHON = sys.executable
#: The columns and their order are perf_analyzer's own.
HEADER = (
    "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,"
    "Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency"
)
ROW = "1,99.8,8,373,49,74,9687,243,2,9419,10513,10776,20081"

_PROGRAM = '''#!{python} -IS
import json, os, pathlib, signal, subprocess, sys, time

if "--version" in sys.argv:
    print("Perf Analyzer Version 0 (commit unknown)")
    sys.exit(0)
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
here = pathlib.Path(__file__).parent
with (here / "runs.jsonl").open("a") as log:
    log.write(json.dumps(dict(pid=os.getpid(), arguments=arguments, environment=dict(os.environ))) + "\\n")
count, batch = int(arguments.get("--request-count", 30)), int(arguments["-b"])
start = 1_796_022_289_490_103_839

def export(latencies_ms):
    """Write the JSON, last request first; one after the other began."""
    requests, now = [], start
    for latency in latencies_ms:
        end = now + round(latency * 1e6)
        requests.insert(0, dict(timestamp=now, request_inputs=dict(frames=0), response_timestamps=[end]))
        now = end + 10_000
    write(json.dumps(dict(experiments=[dict(experiment=dict(mode="concurrency", value=1), requests=requests)])))

def write(text):
    pathlib.Path(arguments["--profile-export-file"]).write_text(text)

def table(text):
    pathlib.Path(arguments["-f"]).write_text(text)

HEADER, ROW = {header!r}, {row!r}
{body}
'''

#: Executions take `batch` times 2 ms, after a warm-up of 900 ms each.
GOOD = """
export([900.0] * 5 + [2.0 * batch] * (count - 5))
table(HEADER + "\\n" + ROW + "\\n")
"""


def make(directory: Path, body: str = GOOD) -> Path:
    """Write the executable, which runs `body` after its log, and return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "perf_analyzer"
    path.write_text(_PROGRAM.format(python=PYTHON, header=HEADER, row=ROW, body=body))
    path.chmod(0o755)
    return path


def runs(path: Path) -> list[dict[str, Any]]:
    """Return what it logged, run by run."""
    log = path.with_name("runs.jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def batches(path: Path) -> list[int]:
    """Return the batch sizes of its runs."""
    return [int(run["arguments"]["-b"]) for run in runs(path)]
