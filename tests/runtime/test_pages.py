"""Locked memory and huge pages, where this system allows them; and what is said where it does not."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.errors import ArenaNotLocked, ArenaTooSmall
from gateway.runtime import pages
from gateway.runtime.pages import Wishes, mount_option, why_no_huge_pages
from gateway.runtime.region import open_region, private_region, shared_region
from gateway.settings import ArenaSettings

MIB = 1 << 20
ROOT = Path(__file__).parents[2]
MOUNTS = """\
22 1 0:20 / / rw,relatime - ext4 /dev/root rw
23 22 0:21 / /dev rw,nosuid - tmpfs tmpfs rw,mode=755
24 23 0:22 / /dev/shm rw shared:4 - tmpfs tmpfs rw,size=16384k,huge=advise
25 22 0:23 / /mnt/with\\040space rw - tmpfs tmpfs rw,huge=always
26 22 0:24 / /mnt/twice rw - tmpfs tmpfs rw,huge=always
27 22 0:25 / /mnt/twice rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("directory", "option"),
    [
        ("/dev/shm", "advise"),
        ("/dev/shm/below", "advise"),
        ("/dev/shmother", "never"),
        ("/dev", "never"),
        ("/mnt/with space/below", "always"),
        ("/mnt/twice", "never"),
        ("/", "never"),
    ],
)
def test_the_mount_says_whether_a_file_may_have_huge_pages(tmp_path, directory, option):
    (tmp_path / "mounts").write_text(MOUNTS)
    assert mount_option(Path(directory), tmp_path / "mounts") == option


def test_without_a_list_of_mounts_nothing_is_assumed(tmp_path):
    assert mount_option(Path("/dev/shm"), tmp_path / "none") == "never"


@pytest.mark.parametrize(
    ("shmem", "mounted", "reason"),
    [
        ("always within_size advise [never] deny force", "advise", ""),
        ("always within_size advise [never] deny force", "never", "is mounted with huge=never"),
        ("always within_size advise never [deny] force", "always", "shmem_enabled is deny"),
        ("always within_size advise never deny [force]", "never", ""),
        (None, "always", "shmem_enabled is unknown"),
    ],
)
def test_why_a_file_has_no_huge_pages(tmp_path, monkeypatch, shmem, mounted, reason):
    monkeypatch.setattr(pages, "_THP", tmp_path)
    monkeypatch.setattr(pages, "mount_option", lambda directory: mounted)
    if shmem is not None:
        (tmp_path / "shmem_enabled").write_text(shmem)
    said = why_no_huge_pages(Path("/dev/shm"))
    assert reason in said
    assert bool(reason) is bool(said)


@pytest.mark.parametrize(
    ("enabled", "reason"), [("always [madvise] never", ""), ("[always] madvise never", ""), ("x [never]", "is never")]
)
def test_why_private_memory_has_no_huge_pages(tmp_path, monkeypatch, enabled, reason):
    monkeypatch.setattr(pages, "_THP", tmp_path)
    (tmp_path / "enabled").write_text(enabled)
    said = why_no_huge_pages(None)
    assert reason in said
    assert bool(reason) is bool(said)


def test_private_memory_is_there_before_it_is_used():
    before = rss_kb()
    region = private_region(32 * MIB)
    assert rss_kb() - before > 30 << 10
    assert bytes(region.view[:10]) == bytes(10)
    region.view[-1] = 7
    region.close()


def rss_kb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 10


@pytest.mark.skipif(bool(why_no_huge_pages(None)), reason="this system has no huge pages for private memory")
def test_private_memory_gets_huge_pages():
    small = private_region(16 * MIB)
    assert small.pages.huge_bytes == 0
    small.close()
    region = private_region(16 * MIB, Wishes(huge_pages=True))
    assert 0 < region.pages.huge_bytes <= 16 * MIB
    assert region.pages.huge_bytes % (2 * MIB) == 0
    assert "MiB in huge pages" in region.pages.said
    region.close()


# ---------------------------------------------------------------- locked memory


def locked_kb():
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmLck:")]
    return int(line.split()[1])


@pytest.mark.parametrize("shared", [True, False])
def test_what_may_be_locked_is_locked_until_it_is_closed(shared):
    """64 KiB: every system allows an ordinary user as much."""
    before = locked_kb()
    region = open_region(ArenaSettings(bytes=1 << 16, lock="on", huge_pages="off"), shared=shared)
    assert region.pages.locked
    assert locked_kb() - before == 64
    region.close()
    assert locked_kb() == before


def test_nothing_is_locked_unless_it_is_wished():
    before = locked_kb()
    region = open_region(ArenaSettings(bytes=1 << 16, lock="off", huge_pages="off"), shared=True)
    assert not region.pages.locked
    assert (locked_kb(), region.pages.said) == (before, "not locked")
    region.close()


def ordinary(code, limit=1 << 16):
    """Run `code` in a process that may lock `limit` bytes; return what it printed.

    A namespace of its own takes root's right to lock as much as it likes.
    """
    alone = ["unshare", "-r"] if os.geteuid() == 0 else []
    try:
        subprocess.run([*alone, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a namespace of one's own is not allowed here")
    done = subprocess.run(
        [*alone, sys.executable, "-c", code],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


LOCK = """
import sys
from gateway.errors import ArenaNotLocked
from gateway.runtime.region import open_region
from gateway.settings import ArenaSettings

for lock in ("auto", "on"):
    try:
        region = open_region(ArenaSettings(bytes=1 << 20, lock=lock, huge_pages="off"), shared=True)
        print(region.pages.locked, region.pages.said)
        region.close()
    except ArenaNotLocked as error:
        print(error.detail)
"""


def test_what_may_not_be_locked_is_said_or_ends_the_start():
    before = set(Path("/dev/shm").iterdir())
    automatic, on = ordinary(LOCK)
    limit = "64.0 KiB may be locked (ulimit -l), 1.0 MiB are needed"
    assert automatic == f"False not locked ({limit})"
    for said in (limit, "ulimit -l", "FRAMEGATE_ARENA__LOCK"):
        assert said in on
    assert set(Path("/dev/shm").iterdir()) <= before, "a region was left behind"


def test_a_region_that_cannot_be_locked_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "_lock", lambda memory: "Operation not permitted")
    for make in (lambda wishes: shared_region(1 << 16, tmp_path, wishes), lambda wishes: private_region(4096, wishes)):
        with pytest.raises(ArenaNotLocked, match="Operation not permitted"):
            make(Wishes(lock="on"))
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- huge pages of a file

INSIDE = """
import os, sys
from pathlib import Path
from gateway.errors import ArenaTooSmall
from gateway.runtime.pages import Wishes
from gateway.runtime.region import shared_region

MIB = 1 << 20
region = shared_region(8 * MIB, wishes=Wishes(huge_pages=True))
[path] = Path("/dev/shm").iterdir()
assert path.stat().st_blocks * 512 == 8 * MIB, "it is not reserved in full"
print(region.pages.huge_bytes, region.pages.said)
try:
    shared_region(60 * MIB, wishes=Wishes(huge_pages=True))
except ArenaTooSmall as error:
    print(error.members["needed_bytes"])
import gateway.runtime.region as module
module._check_room = lambda *_: None
try:
    shared_region(60 * MIB, wishes=Wishes(huge_pages=True))
except ArenaTooSmall as error:
    print(error.members["needed_bytes"])
region.close()
assert list(Path("/dev/shm").iterdir()) == []
"""


@pytest.mark.parametrize("option", ["advise", "always", "within_size", "never"])
def test_a_file_gets_huge_pages_where_its_mount_allows_them(option):
    """In a mount namespace of its own, with 64 MB there; too little is an error there too, and no signal."""
    mount = f'mount -t tmpfs -o size=64m,huge={option} tmpfs /dev/shm && exec "$@"'
    inside = ["unshare", "-rm", "sh", "-c", mount, "sh"]
    try:
        subprocess.run([*inside, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a mount namespace of one's own, or huge pages in it, are not allowed here")
    done = subprocess.run([*inside, sys.executable, "-c", INSIDE], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, f"{done.returncode}\n{done.stderr[-3_000:]}"
    first, *refused = done.stdout.splitlines()
    if option == "never" or "[deny]" in (pages._THP / "shmem_enabled").read_text():
        assert first == "0 not locked, no huge pages (/dev/shm is mounted with huge=never)"
    else:
        assert 0 < int(first.split()[0]) <= 8 * MIB
    assert refused == [str(60 * MIB)] * 2


def test_too_much_private_memory_is_an_error():
    with pytest.raises((OSError, OverflowError)):
        private_region(1 << 60)
    with pytest.raises(ArenaTooSmall):
        shared_region(1 << 60)
