"""The independent run: decodes frames again and runs them one by one through ONNX Runtime, without any of Triton.

Run as ``python -m gateway.demo.reference REQUEST.json``, in a process of its own; prints one line of JSON. What it
shares with the gateway's path is the model file, the clip and the decoder, and nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gateway.client.video import VideoSource
from gateway.demo.cameras import KeptFrame
from gateway.demo.progress import DemoError

#: 80 frames at 20 to 50 ms each, and the start of ONNX Runtime; far more than needed.
LIMIT_S = 120


def compare(kept: Sequence[KeptFrame], clips: dict[str, Path], model: Path, directory: Path) -> dict[str, Any]:
    """Run the kept frames again in another process and return what it found.

    Returns:
        ``frames``, ``max_abs_error`` over all outputs, ``by_output``, ``batched``: how many of the frames
        had run in a batch of more than one.

    Raises:
        DemoError: The other process failed.
    """
    arrays = directory / "outputs.npz"
    np.savez(arrays, **{f"{n}/{name}": value for n, frame in enumerate(kept) for name, value in frame.outputs.items()})
    request = directory / "request.json"
    request.write_text(
        json.dumps(
            {
                "model": str(model),
                "arrays": str(arrays),
                "frames": [
                    {"clip": str(clips[frame.clip]), "shape": frame.shape, "index": frame.index} for frame in kept
                ],
            }
        )
    )
    command = [sys.executable, "-m", "gateway.demo.reference", str(request)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    except subprocess.CalledProcessError as error:
        raise DemoError(f"the independent run failed:\n{error.stderr[-2000:]}") from error
    except subprocess.TimeoutExpired as error:
        raise DemoError(f"the independent run took more than {LIMIT_S} s") from error
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "batched": sum(frame.batch > 1 for frame in kept)}


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Compare the arrays of `request` with the model's own; the work of the other process.

    Raises:
        ValueError: The model has other outputs than came through the gateway, or they have other shapes.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read at import: no local database, no report
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(request["model"], providers=["CPUExecutionProvider"])
    [image] = session.get_inputs()
    names = [output.name for output in session.get_outputs()]
    errors = dict.fromkeys(names, 0.0)
    pictures = _decode(request["frames"])
    with np.load(request["arrays"]) as arrays:
        for number, frame in enumerate(request["frames"]):
            picture = pictures[frame["clip"], tuple(frame["shape"]), frame["index"]]
            for name, [wanted] in zip(names, session.run(names, {image.name: picture[None]}), strict=True):
                got = arrays[f"{number}/{name}"]
                if got.shape != wanted.shape or not np.isfinite(got).all():
                    raise ValueError(f"{name} of frame {number}: {got.shape}, not finite or not {wanted.shape}")
                errors[name] = max(errors[name], float(np.abs(got.astype(np.float64) - wanted).max()))
    return {"frames": len(request["frames"]), "max_abs_error": max(errors.values()), "by_output": errors}


def _decode(frames: Sequence[dict[str, Any]]) -> dict[tuple[str, tuple[int, int], int], npt.NDArray[np.uint8]]:
    wanted: dict[tuple[str, tuple[int, int]], set[int]] = defaultdict(set)
    for frame in frames:
        wanted[frame["clip"], tuple(frame["shape"])].add(frame["index"])
    return {
        (clip, shape, index): picture
        for (clip, shape), indices in wanted.items()
        for index, picture in VideoSource(clip, shape=shape).pick(sorted(indices)).items()
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(json.loads(Path(sys.argv[1]).read_text()))) + "\n")
