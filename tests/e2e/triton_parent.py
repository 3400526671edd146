"""A process to be killed: starts an embedded Triton, prints its pid, waits.

``python triton_parent.py REPOSITORY LOG``
"""

import sys
import time
from pathlib import Path

from gateway.triton.embedded import EmbeddedTriton

triton = EmbeddedTriton(Path(sys.argv[1]), Path(sys.argv[2]), models=["centerface"])
triton.start()
print(triton.pid, flush=True)
time.sleep(600)
