"""Report 44: a ``/dev/shm`` of 16 MB, filled by others. Never a signal; an error with figures, or no matter at all.

Each runs in a mount namespace of its own, which an ordinary user may make on most systems, but not everywhere.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=16m tmpfs /dev/shm && exec "$@"', "sh"]


@pytest.fixture(autouse=True)
def _own_dev_shm():
    try:
        subprocess.run([*SMALL, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a mount namespace of one's own is not allowed here")


def inside(*arguments):
    done = subprocess.run(
        [*SMALL, sys.executable, "-m", "tests.field.small_shm", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    assert done.returncode == 0, f"{done.returncode}\n{done.stderr[-3_000:]}"


def test_a_full_dev_shm_is_an_error_or_no_matter_at_all():
    inside("serve")


def test_one_megabyte_is_too_little_and_said(tmp_path):
    inside("start", tmp_path)
