"""Where `perf_analyzer` is, and whether it runs here."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gateway.paths import checkout
from profiler.perf_analyzer.results import PerfAnalyzerError

NAME = "perf_analyzer"
_PROBE_LIMIT_S = 20.0
_LINKS = "libraries"
#: What the binary of 2024 asks for and Debian 12 has no package of; the embedded Triton's wheel carries both, under
#: names with a hash in them.
_CARRIED = {"libb64.so.0d": "libb64-*.so.0d*", "libcudart.so.12": "libcudart-*.so.12*"}
_MISSING_LIBRARY = re.compile(r"error while loading shared libraries: ([^:\s]+)")
_MISSING_VERSION = re.compile(r"version `?(GLIBC\w*_[\d.]+)'? not found")


@dataclass(frozen=True, slots=True)
class Tool:
    """One `perf_analyzer` that runs here.

    Attributes:
        path: The executable.
        libraries: A directory that it needs in its ``LD_LIBRARY_PATH``, and nobody else; None: it needs none.
    """

    path: Path
    libraries: Path | None = None

    def environment(self, url: str = "") -> dict[str, str]:
        """Return the environment of a run against `url`: with its libraries, past any proxy, decimal points."""
        environment = os.environ | {"LC_ALL": "C"}
        if self.libraries is not None:
            others = environment.get("LD_LIBRARY_PATH")
            environment["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(self.libraries), others]))
        if host := url.rpartition(":")[0].strip("[]"):
            environment["no_grpc_proxy"] = ",".join(filter(None, [environment.get("no_grpc_proxy"), host]))
        return environment


def tools_directory() -> Path:
    """Return where a fetched one is kept: in the checkout, else under the current directory."""
    return (checkout() or Path.cwd()) / ".tools" / NAME


def find(explicit: Path | None = None) -> Tool | None:
    """Return `explicit`, or the first of PATH, this Python's environment and ``.tools/`` that runs; None: no such file.

    Raises:
        PerfAnalyzerError: `explicit` does not run here, or some were found and none of them does; says what to do.
    """
    faults = []
    for path in [explicit] if explicit is not None else _candidates():
        try:
            return usable(path)
        except PerfAnalyzerError as error:
            faults.append(str(error))
    if faults:
        raise PerfAnalyzerError(" ".join(faults))
    return None


def _candidates() -> Iterator[Path]:
    seen = set()
    found = shutil.which(NAME)
    for path in (Path(found) if found else None, Path(sys.executable).parent / NAME, tools_directory() / NAME):
        if path is not None and path.exists() and path.resolve() not in seen:
            seen.add(path.resolve())
            yield path


def usable(path: Path) -> Tool:
    """Return the tool at `path` after it ran once, with libraries of the embedded Triton's wheel if it lacks some.

    Raises:
        PerfAnalyzerError: It does not run here; says what to do.
    """
    plain = Tool(path.absolute())
    fault = _fault(plain)
    if fault is None:
        return plain
    if _MISSING_LIBRARY.search(fault) and (libraries := _link_libraries()) is not None:
        with_libraries = Tool(path.absolute(), libraries)
        fault = _fault(with_libraries)
        if fault is None:
            return with_libraries
    raise PerfAnalyzerError(_next_step(path, fault))


def _fault(tool: Tool) -> str | None:
    """Return what it says when it does not even print its version."""
    try:
        done = subprocess.run(
            [tool.path, "--version"],
            env=tool.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not print its version within {_PROBE_LIMIT_S:g} s"
    except OSError as error:
        return error.strerror or str(error)
    if done.returncode == 0:
        return None
    said = (done.stderr or done.stdout).strip().splitlines()
    return said[-1][:400] if said else f"exit status {done.returncode}"


def _next_step(path: Path, fault: str) -> str:
    text = f"{path} does not run here: {fault.rstrip('.')}."
    if version := _MISSING_VERSION.search(fault):
        return (
            f"{text} It needs a newer C library ({version[1]}): framegate profile --fetch-perf-analyzer gets one for "
            "glibc 2.34, or measure with --engine native."
        )
    if library := _MISSING_LIBRARY.search(fault):
        carried = library[1] in _CARRIED
        how = "pip install 'framegate[embedded]', whose wheel carries it" if carried else "your distribution's package"
        return f"{text} Install {library[1]} ({how}), or measure with --engine native."
    return f"{text} Name another with --perf-analyzer, or measure with --engine native."


def _link_libraries() -> Path | None:
    """Link the libraries that the embedded Triton's wheel carries under the names asked for; None: no such wheel."""
    spec = importlib.util.find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        return None
    carried = Path(next(iter(spec.submodule_search_locations))).resolve().parent / "nvidia_pytriton.libs"
    links = tools_directory() / _LINKS
    links.mkdir(parents=True, exist_ok=True)
    for name, pattern in _CARRIED.items():
        found = sorted(carried.glob(pattern))
        if not found:
            return None
        link = links / name
        if not link.exists() or link.resolve() != found[0].resolve():
            draft = links / f".{name}.{os.getpid()}"
            draft.unlink(missing_ok=True)
            draft.symlink_to(found[0])
            draft.replace(link)
    return links
