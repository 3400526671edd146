"""CenterFace's maps to boxes, on maps whose faces are known."""

from __future__ import annotations

import numpy as np
import pytest

from gateway.client.boxes import Faces, decode_faces, faces_of_outputs, padded_shape, suppress


def maps(shape, faces):
    """Return outputs that hold `faces`: (left, top, right, bottom, score) in padded pixels."""
    height, width = (axis // 4 for axis in padded_shape(shape))
    heatmap = np.zeros((1, height, width), np.float32)
    scale = np.zeros((2, height, width), np.float32)
    offset = np.zeros((2, height, width), np.float32)
    landmarks = np.zeros((10, height, width), np.float32)
    for left, top, right, bottom, score in faces:
        y, x = (top + bottom) / 8 - 0.5, (left + right) / 8 - 0.5
        row, column = int(y), int(x)
        heatmap[0, row, column] = score
        scale[:, row, column] = np.log([(bottom - top) / 4, (right - left) / 4])
        offset[:, row, column] = y - row, x - column
        landmarks[0::2, row, column] = [0.3, 0.3, 0.5, 0.7, 0.7]  # y: eyes, nose, mouth
        landmarks[1::2, row, column] = [0.3, 0.7, 0.5, 0.35, 0.65]
    return {"heatmap": heatmap, "scale": scale, "offset": offset, "landmarks": landmarks}


def test_a_face_comes_back_where_it_was_put():
    faces = faces_of_outputs(maps((160, 192), [(40, 24, 88, 96, 0.9)]), (160, 192))
    np.testing.assert_allclose(faces.boxes, [[40, 24, 88, 96]], atol=1e-3)
    np.testing.assert_allclose(faces.scores, [0.9])
    np.testing.assert_allclose(faces.landmarks[0, 0], [40 + 0.3 * 48, 24 + 0.3 * 72], atol=1e-3)
    np.testing.assert_allclose(faces.landmarks[0, 4], [40 + 0.65 * 48, 24 + 0.7 * 72], atol=1e-3)


def test_boxes_are_scaled_back_when_the_graph_resized_the_frame():
    # 144 -> 160 and 176 -> 192: the axes have different ratios
    faces = faces_of_outputs(maps((144, 176), [(48, 40, 96, 80, 0.9)]), (144, 176))
    np.testing.assert_allclose(
        faces.boxes, [[48 * 176 / 192, 40 * 144 / 160, 96 * 176 / 192, 80 * 144 / 160]], rtol=1e-5
    )
    nose = faces.landmarks[0, 2]
    np.testing.assert_allclose(nose, [72 * 176 / 192, 60 * 144 / 160], rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "padded"), [((144, 176), (160, 192)), ((32, 64), (32, 64)), ((1, 33), (32, 64)), ((136, 320), (160, 320))]
)
def test_padded_shape_is_the_next_multiple_of_32(shape, padded):
    assert padded_shape(shape) == padded


def test_faces_are_cut_at_the_frame_and_sorted_by_score():
    shape = (64, 96)
    faces = faces_of_outputs(maps(shape, [(-10, -6, 22, 26, 0.4), (60, 20, 120, 60, 0.8)]), shape)
    assert faces.scores.tolist() == pytest.approx([0.8, 0.4])
    assert faces.boxes.min() == 0
    assert faces.boxes[:, 2].max() <= 96


def test_scores_at_or_below_the_threshold_are_no_faces():
    outputs = maps((64, 64), [(8, 8, 40, 40, 0.5)])
    assert len(decode_faces(*outputs.values(), (64, 64), threshold=0.5)) == 0
    assert len(decode_faces(*outputs.values(), (64, 64), threshold=0.49)) == 1


def test_no_face_gives_empty_arrays_of_the_right_rank():
    faces = faces_of_outputs(maps((64, 64), []), (64, 64))
    assert len(faces) == 0
    assert faces.boxes.shape == (0, 4)
    assert faces.landmarks.shape == (0, 5, 2)


def test_overlapping_boxes_leave_the_strongest():
    boxes = np.array([[0, 0, 10, 10], [1, 1, 11, 11], [20, 0, 30, 10], [0, 0, 10, 4]], np.float32)
    # 1 shares 81 / 119 with 0; 3 shares 40 / 100 with 0
    assert suppress(boxes, 0.3) == [0, 2]
    assert suppress(boxes, 0.45) == [0, 2, 3]
    assert suppress(boxes, 0.7) == [0, 1, 2, 3]


def test_outputs_are_known_by_name_in_any_order_or_by_position():
    outputs = maps((64, 64), [(8, 8, 40, 40, 0.5)])
    backwards = dict(reversed(outputs.items()))
    original = dict(zip(["537", "538", "539", "540"], outputs.values(), strict=True))
    for variant in (backwards, original):
        np.testing.assert_allclose(faces_of_outputs(variant, (64, 64)).boxes, [[8, 8, 40, 40]], atol=1e-3)


def test_outputs_of_another_model_are_refused():
    with pytest.raises(ValueError, match="CenterFace"):
        faces_of_outputs({"probabilities": np.zeros(1000, np.float32)}, (64, 64))


def test_scaling_to_the_original_picture():
    faces = Faces(np.array([[10, 20, 30, 40]], np.float32), np.array([0.5], np.float32), np.ones((1, 5, 2), np.float32))
    scaled = faces.scaled((136, 320), (272, 640))
    np.testing.assert_allclose(scaled.boxes, [[20, 40, 60, 80]])
    np.testing.assert_allclose(scaled.landmarks[0, 0], [2, 2])
