"""Finds, runs and reads NVIDIA's `perf_analyzer`.

::

    tool = find() or fetch(print)
    outcome = await run(tool, Request(url, "resnet50", "1", "image", (224, 224, 3), batch=4, requests=205))
    outcome.latencies_ms      # one per request, in the order in which they began

What every user of it must know: with shared memory it gives its files fixed names (``/dev/shm/image_0_0``, and
plainly those of the model's outputs), and before and after each run it makes Triton forget *all* shared memory that
is registered, whoever did that. So `run` lets one such run at a time go on on this machine, and nothing else may rely
on shared memory in that Triton meanwhile; runs side by side say ``shared_memory=False``.
"""

from profiler.perf_analyzer.fetch import fetch
from profiler.perf_analyzer.request import Request
from profiler.perf_analyzer.results import Outcome, PerfAnalyzerError, Split
from profiler.perf_analyzer.run import run
from profiler.perf_analyzer.tool import Tool, find

__all__ = ["Outcome", "PerfAnalyzerError", "Request", "Split", "Tool", "fetch", "find", "run"]
