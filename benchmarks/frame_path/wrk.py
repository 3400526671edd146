"""Drives `wrk`, a load generator in C, and reads what it found."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.frame_path.loads import Load, LoadError

#: The call is written once, at the start. `done` is called once, at the end.
_SCRIPT = """\
local file = io.open("{body}", "rb")
wrk.method = "POST"
wrk.body = file:read("*a")
file:close()
{headers}
function done(summary, latency, requests)
  local errors = summary.errors
  local form = '{{"frames": %d, "us": %d, "p50_us": %d, "p99_us": %d, '
    .. '"faults": {{"connect": %d, "read": %d, "write": %d, "status": %d, "timeout": %d}}}}\\n'
  io.stdout:write(string.format(form, summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99),
    errors.connect, errors.read, errors.write, errors.status, errors.timeout))
end
"""
_GRACE_S = 30.0


def find() -> Path:
    """Return the executable.

    Raises:
        SystemExit: There is none; says what to do.
    """
    path = shutil.which("wrk")
    if path is None:
        raise SystemExit("The load generator wrk is missing. On Debian and Ubuntu: apt-get install wrk")
    return Path(path)


def script(body: Path, headers: Mapping[str, str]) -> str:
    """Return the script that sends the content of `body`."""
    lines = [f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items()]
    return _SCRIPT.format(body=body, headers="\n".join(lines))


def read(output: str) -> Load:
    """Return what the script's last line says. Raises `LoadError`."""
    line = next((line for line in reversed(output.splitlines()) if line.startswith('{"frames"')), None)
    if line is None:
        raise LoadError(f"wrk said nothing of use: {output[-500:]}")
    found = json.loads(line)
    faults = {name: count for name, count in found["faults"].items() if count}
    bad = faults.get("status", 0)  # among the requests that were answered
    return Load(found["frames"] - bad, found["us"] / 1e6, found["p50_us"] / 1e3, found["p99_us"] / 1e3, faults)


def run(tool: Path, url: str, body: Path, headers: Mapping[str, str], *, connections: int, seconds: float) -> Load:
    """Send for whole seconds, from one thread. Raises `LoadError`."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script(body, headers))
        file.flush()
        command = [
            str(tool),
            "-t1",
            f"-c{connections}",
            f"-d{round(seconds)}s",
            "--timeout",
            "10s",
            "-s",
            file.name,
            url,
        ]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=seconds + _GRACE_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise LoadError(f"wrk took longer than {seconds + _GRACE_S:g} s") from None
    if done.returncode:
        raise LoadError(f"wrk: {(done.stderr or done.stdout).strip()[-500:]}")
    return read(done.stdout)
