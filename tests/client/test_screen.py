"""What a person sees of a camera fits 80 columns, and says when the gateway is away."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from gateway.client.contact import Contact
from gateway.client.screen import Announcer, plain_line, short_source, summary_lines, table
from gateway.client.stats import Stats
from gateway.client.types import FrameResult


def camera():
    stats = Stats()
    stats.sent, stats.lost = 123_456, 5678
    stats.refusals["arena_full"] = 1234
    stats.skips.update(no_picture=3000, in_flight=6012)
    for _ in range(1000):
        stats.add(FrameResult(0, "met", latency_ms=1234.5, batch=2))
    return SimpleNamespace(stats=stats, contact=Contact(wall_s=lambda: 0.0), in_flight=12)


def printed(renderable):
    """As `framegate stream` prints it: on a console that leaves wrapping to the terminal."""
    console = Console(width=80, file=io.StringIO(), soft_wrap=True)
    console.print(renderable)
    return console.file.getvalue()


def test_the_live_table_fits_80_columns_uncut():
    watched = camera()
    watched.contact.failed(1, "POST http://127.0.0.1:8000/v1/streams/0123456789abcdef/frames: connection refused")
    text = printed(table(watched, "a_clip_with_a_long_name_of_its_own.mp4 -> centerface at 12.5 fps, deadline 200 ms"))
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    for shown in ("123456", "refused", "5678", "9012", "1234.5", "2.00", "gateway unreachable since"):
        assert shown in text


def test_the_plain_line_and_the_summary_fit_80_columns():
    watched = camera()
    line = plain_line(watched)
    assert len(line) <= 80
    assert line.startswith("sent 123456, met 1000, refused 1234, lost 5678")
    summary = {"stream_id": "0" * 32, "name": "", "stopped_by": "interrupt", **watched.stats.as_dict()}
    lines = summary_lines(summary)
    assert max(map(len, lines)) <= 80
    assert "  lost 5678 (no answer came)" in lines
    assert "  skipped 9012 (3000 no picture, 6012 too many in flight)" in lines
    nothing = {"stream_id": "0", "name": "", "stopped_by": "end", **Stats().as_dict()}
    assert len(summary_lines(nothing)) == 2


def test_an_outage_is_said_once_and_so_is_its_end():
    watched, said = camera(), []
    announcer = Announcer(watched, said.append)
    announcer.look()
    watched.contact.failed(1, "connection refused")
    announcer.look()
    announcer.look()
    watched.contact.answered(2)
    announcer.look()
    announcer.look()
    assert len(said) == 2
    assert said[0].startswith("gateway unreachable since")
    assert "connection refused" in said[0]
    assert said[1].startswith("gateway reachable again")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("/a/b/clip.mp4", "clip.mp4"),
        ("/dev/video0", "video0"),
        ("rtsp://user:secret@10.0.0.5:554/main?x=1", "rtsp://10.0.0.5:554/main"),
    ],
)
def test_a_source_is_named_without_directories_and_credentials(source, name):
    assert short_source(source) == name
