"""Decoding: a tiny clip whose frames carry their index in their brightness."""

from __future__ import annotations

import time

import av
import numpy as np
import pytest

from gateway.client.reader import MemoryFeed, ReaderFeed
from gateway.client.video import SourceError, SourceKind, VideoFrame, VideoSource, kind_of, resize

FRAMES, FPS, HEIGHT, WIDTH = 20, 10, 48, 64


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """A 2 s clip: frame k is grey 10 + 12 k, its left half black. Lossless, so that values are exact enough."""
    path = tmp_path_factory.mktemp("clips") / "grey.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=FPS)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for index in range(FRAMES):
            image = np.full((HEIGHT, WIDTH, 3), 10 + 12 * index, np.uint8)
            image[:, : WIDTH // 2] = 0
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    return path


def brightness(image):
    return round((int(image[5, -5, 0]) - 10) / 12)


def test_frames_come_in_order_as_rgb_uint8(clip):
    frames = list(VideoSource(clip))
    assert [frame.index for frame in frames] == list(range(FRAMES))
    assert [brightness(frame.image) for frame in frames] == list(range(FRAMES))
    assert frames[0].image.shape == (HEIGHT, WIDTH, 3)
    assert frames[0].image.dtype == np.uint8
    assert frames[9].image[0, 0].tolist() == [0, 0, 0]


def test_probe_tells_size_and_rate(clip):
    assert VideoSource(clip).probe() == ((HEIGHT, WIDTH), FPS)
    assert VideoSource(clip, shape=(24, 32)).probe()[0] == (24, 32)


def test_a_looped_file_goes_on_with_its_first_frame(clip):
    frames = []
    for frame in VideoSource(clip, loop=True):
        frames.append(frame)
        if len(frames) == 2 * FRAMES + 3:
            break
    assert [frame.index for frame in frames[-5:]] == [18, 19, 0, 1, 2]
    np.testing.assert_array_equal(frames[0].image, frames[FRAMES].image)


def test_the_same_index_has_the_same_pixels_each_time(clip):
    source = VideoSource(clip, shape=(31, 45))
    first = {frame.index: frame.image for frame in source}
    again = source.pick([3, 17, 3])
    assert sorted(again) == [3, 17]
    for index, image in again.items():
        np.testing.assert_array_equal(image, first[index])


def test_picking_a_frame_that_is_not_there(clip):
    with pytest.raises(SourceError, match="no frame 20"):
        VideoSource(clip).pick([0, FRAMES])


def test_a_slower_camera_sees_every_nth_frame_and_a_faster_one_repeats(clip):
    def indices(fps, count, loop=True):
        frames = VideoSource(clip, loop=loop).sampled(fps)
        return [frame.index for frame, _ in zip(frames, range(count), strict=False)]

    assert indices(4, 10) == [0, 2, 5, 7, 10, 12, 15, 17, 0, 2]
    assert indices(20, 5) == [0, 0, 1, 1, 2]
    assert len(indices(5, 1000, loop=False)) == 10


def test_resizing_averages_areas_when_it_shrinks():
    image = np.zeros((4, 4, 3), np.uint8)
    image[:, 1::2] = 200
    assert (resize(image, (2, 2)) == 100).all()
    assert resize(image, (8, 6)).shape == (8, 6, 3)
    assert resize(image, (4, 4)) is image
    assert resize(image, None) is image


def test_what_a_source_is():
    assert kind_of("rtsp://camera/1") is SourceKind.URL
    assert kind_of("/dev/null") is SourceKind.DEVICE
    assert kind_of("clip.mp4") is SourceKind.FILE


def test_a_missing_file_says_so(tmp_path):
    with pytest.raises(SourceError, match="no file"):
        VideoSource(tmp_path / "none.mp4").probe()


def test_a_file_that_is_no_video_says_so(tmp_path):
    path = tmp_path / "text.mp4"
    path.write_text("not a video")
    with pytest.raises(SourceError, match="cannot be opened"):
        next(iter(VideoSource(path)))


def drain(feed, count, timeout_s=10.0):
    frames, until = [], time.monotonic() + timeout_s
    while len(frames) < count and not feed.ended and time.monotonic() < until:
        if (frame := feed.take()) is not None:
            frames.append(frame)
        else:
            time.sleep(0.001)
    return frames


def test_a_reader_decodes_ahead_in_order_and_ends(clip):
    feed = ReaderFeed(VideoSource(clip), fps=FPS)
    assert feed.wait_first(10)
    assert [frame.index for frame in drain(feed, FRAMES + 5)] == list(range(FRAMES))
    assert feed.ended
    assert feed.take() is None
    feed.close()


def test_a_reader_of_a_live_source_keeps_only_the_newest_frame(clip):
    source = VideoSource(clip)
    source.kind = SourceKind.DEVICE  # a file as quick as it can be read, taken for a camera
    source._open = lambda: av.open(str(clip))
    feed = ReaderFeed(source, fps=FPS)
    feed._thread.join(10)
    assert [frame.index for frame in drain(feed, 5)] == [FRAMES - 1]


def test_a_reader_can_be_closed_while_it_waits_for_room(clip):
    feed = ReaderFeed(VideoSource(clip, loop=True), fps=FPS, depth=2)
    assert feed.wait_first(10)
    feed.close()
    assert not feed._thread.is_alive()


def test_a_reader_passes_on_why_it_failed(tmp_path):
    feed = ReaderFeed(VideoSource(tmp_path / "none.mp4"), fps=1)
    assert feed.wait_first(10)
    with pytest.raises(SourceError, match="no file"):
        feed.take()


def test_frames_in_memory_repeat():
    frames = [VideoFrame(index, np.zeros((2, 2, 3), np.uint8)) for index in range(3)]
    feed = MemoryFeed(frames)
    assert [feed.take().index for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert not feed.ended
    with pytest.raises(SourceError):
        MemoryFeed([])
