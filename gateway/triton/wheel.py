"""Finds the `tritonserver` that the wheel `nvidia-pytriton` carries, and says what is wrong where it cannot run.

Nothing of the wheel is imported: only its files are used.
"""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from gateway.errors import EmbeddedTritonError

MIN_GLIBC = (2, 35)
MAX_PYTHON = (3, 12)
#: The wheel's Python backend speaks numpy 1's C interface.
NUMPY_BELOW = 2
INSTALL = "pip install 'framegate[embedded]'"


@dataclass(frozen=True)
class TritonWheel:
    """The files of the wheel that matter here.

    Attributes:
        server: The executable `tritonserver`.
        python_backend: The directory with ``libtriton_python.so`` and ``triton_python_backend_utils.py``.
        stub: The stub process of the Python backend for the running Python.
        libraries: What goes into ``LD_LIBRARY_PATH``.
        site_packages: What goes into ``PYTHONPATH``, so that backends find numpy, onnxruntime and tensorflow.
    """

    server: Path
    python_backend: Path
    stub: Path
    libraries: tuple[Path, ...]
    site_packages: Path

    @property
    def library_path(self) -> str:
        """`LD_LIBRARY_PATH` with this wheel's libraries first."""
        return ":".join([*map(str, self.libraries), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])


def find_wheel() -> TritonWheel:
    """Return the installed wheel.

    Raises:
        EmbeddedTritonError: It is missing, or this machine, Python or numpy does not fit it; says what to do.
    """
    _check_platform(sys.platform, sys.version_info[:2], _glibc_version())
    spec = importlib.util.find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedTritonError(
            f"No tritonserver is installed. Install the wheel that carries one with {INSTALL}, "
            "or point triton.url at a Triton that runs elsewhere."
        )
    _check_numpy(metadata.version("numpy"))
    package = Path(next(iter(spec.submodule_search_locations))).resolve()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    wheel = TritonWheel(
        server=package / "tritonserver/bin/tritonserver",
        python_backend=package / "tritonserver/backends/python",
        stub=package / "tritonserver/python_backend_stubs" / version / "triton_python_backend_stub",
        libraries=(package.parent / "nvidia_pytriton.libs", *_libpython_directory()),
        site_packages=package.parent,
    )
    for path in (wheel.server, wheel.python_backend, wheel.stub, wheel.libraries[0]):
        if not path.exists():
            raise EmbeddedTritonError(
                f"The installed nvidia-pytriton is incomplete ({path} is missing). Reinstall it with {INSTALL}."
            )
    return wheel


@lru_cache(maxsize=4)
def known_options(wheel: TritonWheel) -> frozenset[str]:
    """Return the options that `tritonserver --help` lists, e.g. ``--allow-client-shm``. Takes about 10 ms.

    Raises:
        EmbeddedTritonError: The executable does not even print its help.
    """
    environment = os.environ | {"LD_LIBRARY_PATH": wheel.library_path}
    try:
        done = subprocess.run(
            [wheel.server, "--help"], env=environment, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbeddedTritonError(f"{wheel.server} cannot be run: {error}. Reinstall it with {INSTALL}.") from error
    words = {line.split()[0] for line in (done.stdout + done.stderr).splitlines() if line.startswith("  --")}
    if not words:
        raise EmbeddedTritonError(f"{wheel.server} does not run here: {(done.stderr or done.stdout).strip()[-500:]}")
    return frozenset(words)


def _check_platform(platform: str, python: tuple[int, int], glibc: tuple[int, int] | None) -> None:
    instead = "or run Triton in its container and set triton.url to it"
    if platform != "linux":
        raise EmbeddedTritonError(f"The embedded Triton runs on Linux, not on {platform}: use Linux, {instead}.")
    if glibc is None or glibc < MIN_GLIBC:
        found = "none" if glibc is None else ".".join(map(str, glibc))
        raise EmbeddedTritonError(
            f"The embedded Triton needs glibc >= {MIN_GLIBC[0]}.{MIN_GLIBC[1]} and found {found}: "
            f"use Debian 12, Ubuntu 22.04 or newer, {instead}."
        )
    if python > MAX_PYTHON:
        raise EmbeddedTritonError(
            f"The embedded Triton runs models with Python <= {MAX_PYTHON[0]}.{MAX_PYTHON[1]}, "
            f"this is {python[0]}.{python[1]}: make the environment with Python 3.11 or 3.12, {instead}."
        )


def _check_numpy(version: str) -> None:
    if int(version.partition(".")[0]) >= NUMPY_BELOW:
        raise EmbeddedTritonError(
            f"The embedded Triton needs numpy < {NUMPY_BELOW} and found {version}: "
            f"run pip install 'numpy<{NUMPY_BELOW}'."
        )


def _glibc_version() -> tuple[int, int] | None:
    """The running glibc's version, None where the C library is another."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return None
    if name != "glibc":
        return None
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _libpython_directory() -> tuple[Path, ...]:
    """Where the stub finds the shared library of *this* Python; empty if it is only on the system's own path.

    Raises:
        EmbeddedTritonError: There is none.
    """
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    directory = Path(sysconfig.get_config_var("LIBDIR") or "/nowhere")
    if (directory / name).exists():
        return (directory,)
    if ctypes.util.find_library(name.removeprefix("lib").partition(".so")[0]):
        return ()
    raise EmbeddedTritonError(
        f"The embedded Triton's Python backend needs {name}, and this Python has none: install your distribution's "
        f"package (libpython{sys.version_info.major}.{sys.version_info.minor}), or build Python with --enable-shared."
    )
