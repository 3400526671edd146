"""One run of `perf_analyzer`, as its arguments say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Request:
    """What one run measures.

    Attributes:
        url: host:port of Triton's gRPC endpoint.
        model, version: What to run.
        input_name: The model's one input.
        shape: Of one frame, without the batch axis. Always passed: without it the tool stops at free axes.
        batch: Frames in a request.
        requests: Exactly so many are sent, warm-up included; 0: as many as fit the tool's time windows, until
            three of them agree (for throughput).
        concurrency: Requests under way at a time.
        output_bytes: Room in shared memory for the largest output of one frame; 0: what the tool takes by itself, which
            is enough unless outputs have free axes.
        shared_memory: Inputs and outputs in system shared memory. See the package for what that does to others.
        window_ms: Length of a time window, without `requests`.
        agree_percent: How far three windows in a row may differ and still agree, without `requests`. If none do, it
            may well end without writing anything.
        limit_s: It is killed after that long.
    """

    url: str
    model: str
    version: str
    input_name: str
    shape: tuple[int, ...]
    batch: int = 1
    requests: int = 0
    concurrency: int = 1
    output_bytes: int = 0
    shared_memory: bool = True
    window_ms: int = 2_000
    agree_percent: int = 10
    limit_s: float = 120.0

    def arguments(self, json_file: Path, csv_file: Path) -> Sequence[str]:
        """Return the command line's arguments; the tool writes what it measured to the two files."""
        arguments = [
            *("-m", self.model, "-u", self.url, "-i", "grpc", "-b", str(self.batch)),
            *("--shape", f"{self.input_name}:{','.join(map(str, self.shape))}"),
            *("--concurrency-range", str(self.concurrency)),
            *("--profile-export-file", str(json_file), "-f", str(csv_file)),
        ]
        if self.version:
            arguments += ["-x", self.version]
        if self.requests:
            arguments += ["--request-count", str(self.requests)]
        else:
            arguments += ["--measurement-interval", str(self.window_ms)]
            arguments += ["--stability-percentage", str(self.agree_percent)]
        if self.shared_memory:
            arguments += ["--shared-memory", "system"]
            if self.output_bytes:
                arguments += ["--output-shared-memory-size", str(self.output_bytes)]
        return arguments
