"""From CenterFace's output maps to face boxes.

CenterFace is anchor-free: each cell of a map that is four times smaller than the picture says how likely a
face is centred there, how large it is (log of a quarter of its height and width), where in the cell the
centre lies and where five landmarks are, relative to the box. Source of the decoding: ``deface``
(https://github.com/ORB-HD/deface), ``centerface.py``, MIT; here over numpy arrays instead of loops.

The served graph resizes a picture bilinearly to the next multiple of 32 on each axis, so coordinates come
out in that padded size and are scaled back. Bilinear resizing aligns the *edges* of the pictures, and box
coordinates are edges, so the scale is the plain ratio of the sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

#: Map cells are this many pixels wide and high.
STRIDE = 4
#: The graph resizes each axis to a multiple of this.
MULTIPLE = 32
#: Score from which a cell counts as a face: deface's default.
THRESHOLD = 0.2
#: Overlap (intersection over union) from which the weaker of two boxes is dropped.
NMS_OVERLAP = 0.3
#: Channels of the output maps, in the order of `decode_faces`'s arguments.
MAP_CHANNELS = {"heatmap": 1, "scale": 2, "offset": 2, "landmarks": 10}


@dataclass(frozen=True)
class Faces:
    """Faces of one picture, best first.

    Attributes:
        boxes: ``[n, 4]`` float32: left, top, right, bottom, in pixels of the picture, edges.
        scores: ``[n]`` float32 in (0, 1).
        landmarks: ``[n, 5, 2]`` float32: x, y of eyes, nose and corners of the mouth.
    """

    boxes: Floats
    scores: Floats
    landmarks: Floats

    def __len__(self) -> int:
        return len(self.scores)

    def scaled(self, from_shape: tuple[int, int], to_shape: tuple[int, int]) -> Faces:
        """Return the same faces on a picture of another size; shapes are (height, width)."""
        ratio = np.array([to_shape[1] / from_shape[1], to_shape[0] / from_shape[0]], np.float32)
        return Faces(self.boxes * np.tile(ratio, 2), self.scores, self.landmarks * ratio)


def padded_shape(shape: tuple[int, int]) -> tuple[int, int]:
    """Return the size (height, width) that the model's graph resizes a picture of `shape` to."""
    height, width = (-(-axis // MULTIPLE) * MULTIPLE for axis in shape)
    return height, width


def faces_of_outputs(outputs: Mapping[str, npt.NDArray[np.generic]], shape: tuple[int, int]) -> Faces:
    """Decode one frame's outputs, told apart by their names, else by channels and order.

    Args:
        outputs: The frame's four maps ``[channels, h, w]`` by output name, in the model's order.
        shape: (height, width) of the frame as it was sent.

    Raises:
        ValueError: The outputs are not CenterFace's.
    """
    maps = {name: np.asarray(value, np.float32) for name, value in outputs.items()}
    if not MAP_CHANNELS.keys() <= maps.keys():
        # the original calls them 537 to 540, in this order
        maps = dict(zip(MAP_CHANNELS, maps.values(), strict=False))
    channels = {name: value.shape[0] if value.ndim == 3 else 0 for name, value in maps.items()}
    if any(channels.get(name) != wanted for name, wanted in MAP_CHANNELS.items()):
        shapes = {name: np.shape(value) for name, value in outputs.items()}
        raise ValueError(f"not the outputs of CenterFace ({', '.join(MAP_CHANNELS)}): {shapes}")
    return decode_faces(maps["heatmap"], maps["scale"], maps["offset"], maps["landmarks"], shape)


def decode_faces(
    heatmap: Floats,
    scale: Floats,
    offset: Floats,
    landmarks: Floats,
    shape: tuple[int, int],
    *,
    threshold: float = THRESHOLD,
    overlap: float = NMS_OVERLAP,
) -> Faces:
    """Return the faces of one frame, in pixels of the frame as it was sent.

    Args:
        heatmap: ``[1, h, w]``, with ``h = padded height / 4`` and ``w`` likewise.
        scale: ``[2, h, w]``: log of a quarter of the height and of the width.
        offset: ``[2, h, w]``: of the centre from the middle of its cell, in cells, y and x.
        landmarks: ``[10, h, w]``: five (y, x) pairs, in box heights and widths from its corner.
        shape: (height, width) of the frame.
        threshold: Least score.
        overlap: Intersection over union from which the weaker box goes.
    """
    padded = padded_shape(shape)
    rows, columns = np.nonzero(heatmap[0] > threshold)
    scores = heatmap[0, rows, columns]
    order = np.argsort(-scores, kind="stable")
    rows, columns, scores = rows[order], columns[order], scores[order]

    height, width = np.exp(scale[:, rows, columns]) * STRIDE
    centre_y = (rows + offset[0, rows, columns] + 0.5) * STRIDE
    centre_x = (columns + offset[1, rows, columns] + 0.5) * STRIDE
    left = np.clip(centre_x - width / 2, 0, padded[1])
    top = np.clip(centre_y - height / 2, 0, padded[0])
    right, bottom = np.minimum(left + width, padded[1]), np.minimum(top + height, padded[0])
    boxes = np.stack([left, top, right, bottom], axis=1).astype(np.float32)

    pairs = landmarks[:, rows, columns].reshape(5, 2, -1)
    points = np.stack([pairs[:, 1] * width + left, pairs[:, 0] * height + top], axis=-1)  # [5, n, 2]
    kept = suppress(boxes, overlap)
    faces = Faces(boxes[kept], scores[kept].astype(np.float32), points.transpose(1, 0, 2)[kept].astype(np.float32))
    return faces.scaled(padded, shape)


def suppress(boxes: Floats, overlap: float) -> list[int]:
    """Return the indices that non-maximum suppression keeps; `boxes` ``[n, 4]`` come best first."""
    left, top, right, bottom = boxes.T
    areas = (right - left) * (bottom - top)
    alive = np.ones(len(boxes), bool)
    kept: list[int] = []
    for index in range(len(boxes)):
        if not alive[index]:
            continue
        kept.append(index)
        width = np.minimum(right, right[index]) - np.maximum(left, left[index])
        height = np.minimum(bottom, bottom[index]) - np.maximum(top, top[index])
        shared = np.maximum(width, 0) * np.maximum(height, 0)
        alive &= shared < overlap * (areas + areas[index] - shared)
    return kept
