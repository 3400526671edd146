"""The demo's parts that need neither Triton nor a gateway."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from fractions import Fraction

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gateway.client.boxes import Faces
from gateway.client.stats import Stats
from gateway.client.types import FrameResult
from gateway.client.video import VideoFrame
from gateway.demo import reference
from gateway.demo.books import imbalances, jobs_of, outcomes_of, parse_metrics
from gateway.demo.cameras import ClipFrames, KeptFrame
from gateway.demo.pictures import annotate
from gateway.demo.progress import tail
from gateway.demo.summary import failures

METRICS = """# HELP framegate_frames_total Accepted frames that ended, by outcome.
# TYPE framegate_frames_total counter
framegate_frames_total{model="centerface",outcome="met"} 7.0
framegate_frames_total{outcome="expired",model="centerface"} 1.0
framegate_frames_total{model="other",outcome="met"} 5.0
framegate_frames_accepted_total{model="centerface"} 8.0
framegate_job_execute_seconds_count{model="centerface"} 8.0
framegate_jobs_overrun_total{model="centerface"} 3.0
framegate_odd{text="a \\"quoted\\" one, with=sign"} 1e-3
"""


def test_metrics_are_read_by_name_and_labels():
    samples = parse_metrics(METRICS)
    assert samples["framegate_odd", frozenset({("text", 'a \\"quoted\\" one, with=sign')})] == 1e-3
    counts = outcomes_of(samples, "centerface")
    assert (counts["met"], counts["expired"], counts["missed"], counts["accepted"]) == (7, 1, 0, 8)
    assert outcomes_of(samples, "nothing")["accepted"] == 0
    assert jobs_of(samples, "centerface") == (8, 3)
    assert jobs_of(samples, "nothing") == (0, 0)


def stats_of(met, expired=0):
    stats = Stats()
    stats.sent = met + expired
    for outcome, count in (("met", met), ("expired", expired)):
        for _ in range(count):
            stats.add(FrameResult(0, outcome, latency_ms=1.0, batch=1))
    return stats


def test_books_balance_against_the_difference_of_the_counters():
    before = {"met": 3, "missed": 0, "expired": 1, "cancelled": 0, "failed": 0, "accepted": 4}
    after = {**before, "met": 10, "expired": 2, "accepted": 12}
    assert imbalances(stats_of(7, 1), before, after) == []
    assert imbalances(stats_of(8), before, after) == [
        "met: the gateway counts 7, the cameras 8",
        "expired: the gateway counts 1, the cameras 0",
    ]


@pytest.mark.parametrize("field", ["lost", "refusals", "sent"])
def test_a_frame_without_an_outcome_is_an_imbalance(field):
    zero = dict.fromkeys(["met", "missed", "expired", "cancelled", "failed", "accepted"], 0)
    stats = stats_of(2)
    setattr(stats, field, Counter(["arena_full"]) if field == "refusals" else getattr(stats, field) + 1)
    assert imbalances(stats, zero, {**zero, "met": 2, "accepted": 2})


GOOD = {
    "books": "balanced",
    "frames": 400,
    "met": 399,
    "faces_found": 0.95,
    "compared": {"frames": 60},
    "max_abs_error": 1e-5,
    "streams_refused": 1,
}


def test_a_good_run_has_no_failures():
    assert failures(GOOD) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"books": ["met: 1 and 2"]}, "do not balance: met"),
        ({"met": 395}, "395 of 400"),
        ({"frames": 0, "met": 0}, "0 of 0"),
        ({"faces_found": 0.89}, "89.0%"),
        ({"compared": {"frames": 49}}, "49 of 400 frames were compared"),
        ({"max_abs_error": 0.01}, "differ by 1.00e-02"),
        ({"max_abs_error": float("nan")}, "differ by nan"),
        ({"streams_refused": 0}, "no camera was refused"),
    ],
)
def test_each_broken_promise_is_named(change, said):
    [line] = failures({**GOOD, **change})
    assert said in line


def test_of_few_frames_half_are_enough_to_compare():
    few = {**GOOD, "frames": 60, "met": 60}
    assert failures({**few, "compared": {"frames": 30}}) == []
    assert failures({**few, "compared": {"frames": 29}}) == ["29 of 60 frames were compared, fewer than 30"]


def test_a_camera_films_a_looped_clip_at_its_own_rate():
    clip = ClipFrames(Fraction(25), [VideoFrame(index, np.zeros((1, 1, 3), np.uint8)) for index in range(10)])
    assert [frame.index for frame in clip.filmed_at(10.0)] == [0, 2, 5, 7]  # 4 frames are 10 frames of the clip
    assert [frame.index for frame in clip.filmed_at(3.0)] == [0, 8, 6, 5, 3, 1]
    assert [frame.index for frame in clip.filmed_at(50.0)][:4] == [0, 0, 1, 1]


def test_faces_are_boxed_where_they_are():
    image = np.zeros((100, 200, 3), np.uint8)
    box = np.array([[20, 30, 60, 80]], np.float32)
    faces = Faces(box, np.array([0.9], np.float32), np.full((1, 5, 2), 50, np.float32))
    picture = annotate(image, faces, height=200)
    assert picture.shape == (200, 400, 3)
    assert picture[60:160, 40].any(axis=1).all()  # the left edge, at twice the size
    assert not picture[170:, :].any()
    assert not image.any()


def test_weak_faces_are_not_drawn_and_the_surest_is_drawn_over_the_others():
    image = np.zeros((200, 200, 3), np.uint8)
    boxes = np.array([[20, 40, 80, 100], [20, 60, 80, 120], [120, 120, 180, 180]], np.float32)
    scores = np.array([0.9, 0.6, 0.49], np.float32)
    corners = np.repeat(boxes[:, None, :2], 5, axis=1)
    both = annotate(image, Faces(boxes, scores, corners), height=200)
    assert not both[110:, 110:].any()
    assert both[118:123, 40:60].any()
    # the thicker line is uncut where it meets the thinner one
    assert both[99:102, 79:82].any(axis=2).all()
    assert not annotate(image, Faces(boxes[2:], scores[2:], corners[2:]), height=200).any()


@pytest.fixture
def doubling_model(tmp_path):
    """An ONNX model whose outputs are easy to know: the frame's levels times one, and times two."""
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["image"], ["once"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["once", "once"], ["twice"]),
        ],
        "doubling",
        [helper.make_tensor_value_info("image", TensorProto.UINT8, ["n", None, None, 3])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", None, None, 3]) for name in ("once", "twice")],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.fixture
def clip(tmp_path):
    import av

    path = tmp_path / "clip.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 16, "bgr0"
        for index in range(4):
            image = np.full((16, 32, 3), 20 * index + 10, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    return path


def kept(index, value, batch=1):
    once = np.full((8, 16, 3), value, np.float32)
    return KeptFrame("camera", "clip", (8, 16), index, batch, {"once": once, "twice": 2 * once})


def test_the_independent_run_agrees_with_what_is_right(doubling_model, clip, tmp_path):
    frames = [kept(3, 70), kept(0, 10, batch=2), kept(3, 70)]
    found = reference.compare(frames, {"clip": clip}, doubling_model, tmp_path)
    assert found == {"frames": 3, "max_abs_error": 0.0, "by_output": {"once": 0.0, "twice": 0.0}, "batched": 1}


def test_the_independent_run_finds_the_answer_of_another_frame(doubling_model, clip, tmp_path):
    found = reference.compare([kept(0, 10), kept(2, 30)], {"clip": clip}, doubling_model, tmp_path)
    assert (found["max_abs_error"], found["by_output"]) == (40.0, {"once": 20.0, "twice": 40.0})


@pytest.mark.parametrize("spoil", ["nan", "shape"])
def test_the_independent_run_refuses_outputs_that_cannot_be_compared(doubling_model, clip, tmp_path, spoil):
    frame = kept(0, 10)
    outputs = dict(frame.outputs)
    outputs["once"] = np.full((8, 16, 3), np.nan, np.float32) if spoil == "nan" else outputs["once"][:4]
    with pytest.raises(reference.DemoError, match="once of frame 0"):
        reference.compare(
            [KeptFrame("camera", "clip", (8, 16), 0, 1, outputs)], {"clip": clip}, doubling_model, tmp_path
        )


#: Starts a gateway that waits for a Triton, as the demo does, tells its pid once it listens, and stays.
PARENT = """
import pathlib, sys, time
from gateway.demo.child import spawn

directory = pathlib.Path(sys.argv[1])
(directory / "profile.json").write_text('{"schema": 1, "entries": []}')
environment = {
    "FRAMEGATE_PROFILE": str(directory / "profile.json"),
    "FRAMEGATE_SERVER__PORT": "0",
    "FRAMEGATE_TRITON__URL": "127.0.0.1:1",
    "FRAMEGATE_ARENA__BYTES": "65536",
}
log = directory / "gateway.log"
child = spawn(["serve"], environment, log)
while "listening" not in log.read_text() and child.poll() is None:
    time.sleep(0.02)
print(child.pid, child.poll(), flush=True)
time.sleep(60)
"""


def test_the_gateway_ends_with_its_parent_even_when_that_is_killed(tmp_path):
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    pid, status = parent.stdout.readline().split()
    assert status == "None", tail(tmp_path / "gateway.log")
    assert _alive(int(pid))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until = time.monotonic() + 20
    while _alive(int(pid)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _alive(int(pid))


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_child_module_becomes_the_command_line(tmp_path):
    from gateway.demo.child import spawn

    log = tmp_path / "logs" / "out.log"
    process = spawn(["--version"], {}, log)
    assert process.wait(60) == 0, tail(log)
    assert tail(log).startswith("framegate ")
    assert os.getpgid(os.getpid()) != process.pid


def test_the_end_of_a_log_is_shown(tmp_path):
    log = tmp_path / "log"
    log.write_text("\n".join(str(number) for number in range(10_000)))
    assert tail(log, lines=2) == "9998\n9999"
    assert tail(tmp_path / "none") == ""
