"""Gets a `perf_analyzer` without root: the binary alone, out of a wheel that is never installed.

The wheel ``tritonclient==2.50.0`` for manylinux1 is the last that carried the binary and runs on glibc 2.34; to
install it would force protobuf below 5 on everything else.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from profiler.perf_analyzer.results import PerfAnalyzerError
from profiler.perf_analyzer.tool import NAME, Tool, tools_directory, usable

WHEEL = "tritonclient==2.50.0"
_PLATFORM = "manylinux1_x86_64"
_MEMBER = f"/bin/{NAME}"
_LIMIT_S = 300.0
#: Of the one wheel there is; another file under its name is not run.
_SHA256 = "421fbb69ae6ab8cdb2c35b82134fcef2fe11e7af7718b1fcbc53335ab9bfe889"


def fetch(say: Callable[[str], object], directory: Path | None = None) -> Tool:
    """Download the wheel with pip, unpack the binary into ``.tools/perf_analyzer`` and return it once it runs.

    Args:
        say: Told, in a line, what takes time.
        directory: Instead of ``.tools/perf_analyzer``.

    Raises:
        PerfAnalyzerError: This machine is another, pip cannot get it, or it does not run here; says what to do.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise PerfAnalyzerError(
            f"There is no perf_analyzer to fetch for {sys.platform} on {platform.machine()}: "
            "name one with --perf-analyzer, or measure with --engine native."
        )
    directory = directory or tools_directory()
    with tempfile.TemporaryDirectory(prefix="framegate-fetch-") as scratch:
        say(f"fetching perf_analyzer: pip downloads {WHEEL} (14 MB), of which only the binary is unpacked ...")
        wheel = _download(Path(scratch))
        unpack(wheel, directory)
    tool = usable(directory / NAME)
    say(f"perf_analyzer is in {directory}")
    return tool


def _download(scratch: Path) -> Path:
    command = [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps", WHEEL),
        *("--platform", _PLATFORM, "--only-binary=:all:", "--dest", str(scratch)),
    ]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise PerfAnalyzerError(_cannot(f"it took longer than {_LIMIT_S:g} s")) from None
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = [line for line in (done.stderr or done.stdout).strip().splitlines() if line.strip()]
        raise PerfAnalyzerError(_cannot(" ".join((said or ["it said nothing"])[-1].split())[:400]))
    if hashlib.sha256(wheels[0].read_bytes()).hexdigest() != _SHA256:
        raise PerfAnalyzerError(_cannot(f"the file it got under the name {wheels[0].name} is not the one known here"))
    return wheels[0]


def _cannot(reason: str) -> str:
    return (
        f"pip cannot download {WHEEL}: {reason.rstrip('.')}. Install perf_analyzer (pip install perf-analyzer, from "
        "glibc 2.38 on), name one with --perf-analyzer, or measure with --engine native."
    )


def unpack(wheel: Path, directory: Path) -> None:
    """Put the binary of `wheel` into `directory`, whole or not at all.

    Raises:
        PerfAnalyzerError: The wheel has none.
    """
    directory.mkdir(parents=True, exist_ok=True)
    draft = directory / f".{NAME}.{os.getpid()}"
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(_MEMBER)]
            if len(names) != 1:
                raise PerfAnalyzerError(_cannot(f"{wheel.name} holds {len(names)} files {_MEMBER}, not one"))
            with archive.open(names[0]) as packed, draft.open("wb") as binary:
                shutil.copyfileobj(packed, binary)
        draft.chmod(0o755)
        draft.replace(directory / NAME)
    except (zipfile.BadZipFile, OSError) as error:
        raise PerfAnalyzerError(_cannot(f"{wheel.name} cannot be unpacked: {error}")) from None
    finally:
        draft.unlink(missing_ok=True)
