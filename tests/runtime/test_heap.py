"""Memory that is freed stays with the process, where it was asked to."""

import subprocess
import sys

_COUNT = """
import resource, sys
from gateway.runtime.heap import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        [bytearray(b"x") * 150_000 for _ in range(8)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def count(how):
    return int(subprocess.run([sys.executable, "-c", _COUNT, how], capture_output=True, text=True, check=True).stdout)


def test_large_blocks_are_made_anew_without_page_faults():
    assert count("keep") < 100 < count("give back")
