"""The demo's two pictures: faces boxed on the original frames, and latencies against deadlines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from gateway.client.boxes import Faces
from gateway.client.video import VideoSource, resize
from gateway.demo.cameras import SURE, DemoCamera
from gateway.demo.show import Show

Pixels = npt.NDArray[np.uint8]

#: Height of each panel of the annotated picture.
PANEL_HEIGHT = 432
_BOX = (60, 220, 60)
_POINT = (255, 210, 60)
_OUTCOME_COLOURS = {"met": "#2a6fb0", "missed": "#c62828"}


def annotate(image: Pixels, faces: Faces, height: int = PANEL_HEIGHT) -> Pixels:
    """Return `image` enlarged or reduced to `height`, with its sure `faces` (in its pixels) boxed and scored.

    The surest is drawn last, over the others, and with a thicker line.
    """
    scale = height / image.shape[0]
    shape = (height, round(image.shape[1] * scale))
    canvas = np.ascontiguousarray(resize(image, shape))
    canvas = canvas.copy() if canvas is image else canvas
    faces = faces.scaled((image.shape[0], image.shape[1]), shape)
    for place in reversed(range(int((faces.scores >= SURE).sum()))):  # they come best first
        left, top, right, bottom = (round(float(edge)) for edge in faces.boxes[place])
        cv2.rectangle(canvas, (left, top), (right, bottom), _BOX, 3 if place == 0 else 1)
        _write(canvas, f"face {faces.scores[place]:.2f}", (left + 3, top - 6 if top > 22 else top + 18), _BOX)
        for x, y in faces.landmarks[place]:
            cv2.circle(canvas, (round(float(x)), round(float(y))), 3, _POINT, -1)
    return canvas


def _write(canvas: Pixels, text: str, place: tuple[int, int], colour: tuple[int, int, int]) -> None:
    """Write `text` with a dark edge, so that it can be read on any ground."""
    for ink, thickness in (((0, 0, 0), 3), (colour, 1)):
        cv2.putText(canvas, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.5, ink, thickness, cv2.LINE_AA)


def annotated_picture(cameras: Sequence[DemoCamera], clips: Mapping[str, Path]) -> Pixels | None:
    """Return the surest face of each clip side by side, the surest of all first; None without any sure face.

    They are drawn on the clip's own pixels.
    """
    best: dict[str, DemoCamera] = {}  # clip -> the camera that saw its surest face
    for camera in sorted(cameras, key=lambda camera: -camera.best_score):
        if camera.best_score >= SURE:
            best.setdefault(camera.plan.clip, camera)
    panels = []
    for clip, camera in best.items():
        if camera.best is None:
            continue
        index, faces = camera.best
        image = VideoSource(clips[clip]).pick([index])[index]
        faces = faces.scaled(camera.plan.shape, (image.shape[0], image.shape[1]))
        panel = annotate(image, faces)
        caption = f"{clip}, frame {index}, sent as {camera.plan.shape[0]}x{camera.plan.shape[1]}"
        _write(panel, caption, (8, PANEL_HEIGHT - 10), (255, 255, 255))
        panels += [panel, np.full((PANEL_HEIGHT, 6, 3), 255, np.uint8)]
    return np.concatenate(panels[:-1], axis=1) if panels else None


def write_picture(path: Path, picture: Pixels) -> None:
    """Write an RGB picture as PNG."""
    cv2.imwrite(str(path), picture[..., ::-1])


def plot_latencies(path: Path, show: Show) -> None:
    """Write the latency of every frame over time, one panel per camera, with its deadline."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    columns = 2
    rows = -(-len(show.cameras) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(11, 3.1 * rows), sharex=True, squeeze=False)
    for axes, camera in zip(grid.flat, show.cameras, strict=False):
        _plot_camera(axes, camera)
    for axes in grid.flat[len(show.cameras) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("seconds since the cameras started")
    stats = show.stats
    figure.suptitle(
        f"Latency of {stats.answered} frames against their deadlines: {stats.outcomes['met']} met, "
        f"{stats.outcomes['missed']} missed, {stats.outcomes['expired']} expired"
    )
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _plot_camera(axes: Any, camera: DemoCamera) -> None:  # noqa: ANN401 - matplotlib's axes
    plan, stats = camera.plan, camera.camera.stats
    for outcome, colour in _OUTCOME_COLOURS.items():
        points = [(r.at_s, r.latency_ms) for r in camera.records if r.outcome == outcome and r.latency_ms is not None]
        if points:
            axes.plot(*zip(*points, strict=True), ".", color=colour, markersize=5, label=outcome)
    for record in camera.records:
        if record.outcome not in _OUTCOME_COLOURS:
            axes.axvline(record.at_s, color="#c62828", linewidth=0.8, alpha=0.6)
    axes.axhline(plan.deadline_ms, color="#555555", linestyle="--", linewidth=1)
    axes.annotate(
        f"deadline {plan.deadline_ms:.0f} ms",
        (1, plan.deadline_ms),
        xycoords=("axes fraction", "data"),
        xytext=(-4, -11),
        textcoords="offset points",
        ha="right",
        fontsize=8,
        color="#555555",
    )
    p50, p99 = stats.latency_ms(50), stats.latency_ms(99)
    figures = "" if p50 is None or p99 is None else f", p50 {p50:.0f} ms, p99 {p99:.0f} ms"
    axes.set_title(f"{plan.name}: {plan.fps:g} fps of {plan.shape[0]}x{plan.shape[1]}{figures}", fontsize=10)
    top = max([plan.deadline_ms, *(r.latency_ms for r in camera.records if r.latency_ms is not None)])
    axes.set_ylim(0, top * 1.08)
    axes.set_ylabel("latency, ms")
    axes.grid(visible=True, color="#eeeeee")
