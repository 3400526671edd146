"""Field reports 43 and 44: names, leftovers, and a /dev/shm that is too small."""

import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.errors import ArenaTooSmall
from gateway.runtime.region import SHM_DIRECTORY, private_region, remove_dead_regions, shared_region

OWNER = """
import sys, time
from pathlib import Path
from gateway.runtime.region import shared_region
print(shared_region(1 << 16, Path(sys.argv[1])).name, flush=True)
time.sleep(60)
"""
HELPER = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
memory = mmap.mmap(fd, 0)
assert memory[:5] == b"hello"
"""


def owner(directory: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", OWNER, str(directory)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, directory / process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_the_space_is_really_there() -> None:
    region = shared_region(1 << 20)
    stat = (SHM_DIRECTORY / region.name).stat()
    assert stat.st_size == 1 << 20
    assert stat.st_blocks * 512 >= 1 << 20, "the file is sparse: a write could be a bus error"
    assert stat.st_mode & 0o777 == 0o600
    region.close()
    assert not (SHM_DIRECTORY / region.name).exists()
    region.close()


def test_another_process_sees_what_is_written() -> None:
    region = shared_region(4096)
    region.view[:5] = b"hello"
    path = SHM_DIRECTORY / region.key.lstrip("/")
    subprocess.run([sys.executable, "-c", HELPER, str(path)], check=True)
    assert path.exists(), "a helper that ended took the region with it"
    region.close()


def test_private_memory_has_no_name() -> None:
    region = private_region(4096)
    assert (region.name, region.shared, len(region.view)) == ("", False, 4096)
    region.close()


def test_too_little_space_is_an_error_with_figures_not_a_signal() -> None:
    """The tmpfs itself answers: more is asked for than it holds in all."""
    stat = os.statvfs(SHM_DIRECTORY)
    size = stat.f_blocks * stat.f_frsize + (1 << 20)
    before = set(SHM_DIRECTORY.iterdir())
    with pytest.raises(ArenaTooSmall, match=f"needs {size} bytes") as refusal:
        shared_region(size)
    assert refusal.value.members["needed_bytes"] == size
    assert "FRAMEGATE_ARENA__BYTES" in refusal.value.detail
    assert set(SHM_DIRECTORY.iterdir()) == before


def test_space_that_goes_between_the_look_and_the_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the reservation counts: the look is made to see a free disk."""
    stat = os.statvfs(SHM_DIRECTORY)
    monkeypatch.setattr("gateway.runtime.region._check_room", lambda *_: None)
    before = set(SHM_DIRECTORY.iterdir())
    with pytest.raises(ArenaTooSmall):
        shared_region(stat.f_blocks * stat.f_frsize + (1 << 20))
    assert set(SHM_DIRECTORY.iterdir()) == before


def test_a_killed_owner_leaves_a_file_and_the_next_start_removes_it(tmp_path: Path) -> None:
    process, path = owner(tmp_path)
    end(process)
    assert path.exists()
    assert remove_dead_regions(tmp_path) == [path.name]
    assert not path.exists()


def test_a_living_owner_keeps_its_file(tmp_path: Path) -> None:
    process, path = owner(tmp_path)
    try:
        assert remove_dead_regions(tmp_path) == []
        assert path.exists()
    finally:
        end(process)
    assert remove_dead_regions(tmp_path) == [path.name]


def test_files_of_others_are_not_touched(tmp_path: Path) -> None:
    other = tmp_path / "somebody-else"
    other.touch()
    link = tmp_path / "framegate-link"
    link.symlink_to(other)
    assert remove_dead_regions(tmp_path) == []
    assert other.exists()
    assert link.is_symlink()


def test_a_thousand_regions_leave_nothing(tmp_path: Path) -> None:
    names = set()
    for _ in range(1000):
        region = shared_region(mmap.PAGESIZE, tmp_path)
        names.add(region.name)
        region.close()
    assert len(names) == 1000
    assert list(tmp_path.iterdir()) == []
