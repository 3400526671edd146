import os
import subprocess
import sys

from profiler.device import device_name
from profiler.memory import family_pss_bytes

CHILD = """
import subprocess, sys
grandchild = subprocess.Popen(
    [sys.executable, "-c", "x = bytearray(32 << 20); x[::4096] = b'1' * len(x[::4096]); print(1, flush=True); input()"],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
)
grandchild.stdout.readline()
print(1, flush=True)
input()
grandchild.communicate()
"""


def test_memory_of_a_grandchild_counts() -> None:
    before = family_pss_bytes(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    during = family_pss_bytes(os.getpid())
    child.communicate(b"\n")
    assert during - before > 32 << 20
    assert family_pss_bytes(os.getpid()) < during - (24 << 20)


def test_a_process_that_is_gone_holds_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert family_pss_bytes(child.pid) == 0


def test_the_device_has_a_name() -> None:
    assert device_name().strip()
