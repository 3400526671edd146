"""Runs in a mount namespace of its own, whose ``/dev/shm`` is a tmpfs of 16 MB; see `test_44_little_shared_memory`.

``python -m tests.field.small_shm serve | fill``; ends with status 0 if all was as it should be.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from gateway.runtime.profile_file import write_profile
from tests.api.served import FRAME, SMALL, TIMES, Served, profile
from tests.field.support import POLICED, steady

SHM = Path("/dev/shm")
MIB = 1 << 20
#: A frame of 3 MiB: two of them are a batch, and no more fits into 8 MiB beside it.
LARGE = (1024, 1024, 3)
SERVE = "import typer; from gateway.api.command import serve; typer.run(serve)"
FILL = "import os; f = os.open('/dev/shm/filler', 65); \nwhile os.write(f, bytes(65536)): pass"


def fill(leave_bytes):
    """Have another process write into /dev/shm until only `leave_bytes` are free."""
    done = subprocess.run([sys.executable, "-c", FILL], capture_output=True, text=True)
    assert "No space left" in done.stderr, done.stderr
    with (SHM / "filler").open("r+b") as filler:
        filler.truncate(filler.seek(0, os.SEEK_END) - leave_bytes)


def free_bytes():
    stat = os.statvfs(SHM)
    return stat.f_bavail * stat.f_frsize


def check_serving():
    """Fill it while streams run, and ask for more than the arena holds: neither harms them, and both are said."""
    times = {SMALL: TIMES[SMALL], LARGE: {1: 20.0, 2: 30.0}}
    with Served(times=times, arena={"bytes": 8 * MIB}, scheduling=POLICED) as served:
        served.stand_in.delay_s = lambda call: 0.05 if call.shape[1:] == LARGE else 0.0
        assert abs(served.counters()["framegate_shm_free_bytes",] - 8 * MIB) < MIB
        codes = []
        with steady(served, FRAME) as camera, served.stream(shape=LARGE, period_ms=200, burst=4) as stream:
            for _ in range(5):
                for _ in range(2):  # the second while the first is in Triton's hands
                    answer = served.http.post(f"{stream['frames_url']}?wait=false", content=bytes(3 * MIB) * 2)
                    codes.append(answer.json().get("code", answer.status_code))
                time.sleep(0.3)
            assert set(codes) == {202, "arena_full"}, codes
            fill(0)
            assert served.counters()["framegate_shm_free_bytes",] == free_bytes() == 0
            met = camera.outcomes["met"]
            while camera.outcomes["met"] < met + 10:
                time.sleep(0.05)
            answer = served.http.post(stream["frames_url"], content=bytes(3 * MIB))
            assert answer.status_code == 200, answer.text
            assert served.register(shape=LARGE).status_code == 201, "a further stream takes no more memory"
        assert set(camera.outcomes) == {"met"}, camera.outcomes
    with Served(times=times, arena={"bytes": 8 * MIB}, triton={"shared_memory": "off"}, scheduling=POLICED) as served:
        with steady(served, FRAME) as camera:
            time.sleep(0.5)
        assert set(camera.outcomes) == {"met"}, camera.outcomes
        assert served.counters()["framegate_shm_free_bytes",] == 0


def check_starting(folder):
    """With too little left, the start says how much it needs, how much there is, and what to do."""
    fill(MIB)
    write_profile(folder / "profile.json", profile())
    done = subprocess.run(
        [sys.executable, "-c", SERVE, "--port", "0", "--profile", folder / "profile.json", "--arena-mb", "4"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2, done
    last = done.stderr.splitlines()[-1]
    for said in (str(4 * MIB), str(free_bytes()), "/dev/shm", "FRAMEGATE_ARENA__BYTES", "--shm-size"):
        assert said in last, (said, last)
    assert [path.name for path in SHM.iterdir()] == ["filler"]


if __name__ == "__main__":
    assert free_bytes() == 16 * MIB, "this is not the small one"
    if sys.argv[1] == "serve":
        check_serving()
    else:
        check_starting(Path(sys.argv[2]))
