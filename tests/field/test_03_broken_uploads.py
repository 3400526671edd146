"""Report 3: clients that break off in the middle of an upload are no fault of the server's."""

import logging
import time

from tests.api.served import FRAME, SMALL, TIMES, Served, books, wait_until
from tests.field.support import MB, POLICED, head, reset, rss_bytes, server_errors, steady

#: One frame of 10 MB.
HUGE = (1_700, 1_960, 3)


def test_a_hundred_uploads_that_break_off(length, caplog):
    """Ten megabytes announced, one kilobyte sent, then a reset; a 10 fps stream runs beside it."""
    caplog.set_level(logging.WARNING)
    times = {SMALL: TIMES[SMALL], HUGE: {1: 10.0}}
    with (
        Served(times=times, arena={"bytes": 64 * MB}, scheduling=POLICED) as served,
        served.stream(shape=HUGE) as stream,
    ):
        with steady(served, FRAME) as camera:
            wait_until(lambda: camera.outcomes["met"] > 3, "the steady stream does not run")
            before, rss, free = served.counters(), rss_bytes(), served.gateway.arena.free_bytes
            for number in range(length(100, 2_000)):
                connection = served.connect()
                path = [stream["frames_url"], "/v1/streams", "/metrics"][number % 3]
                size = stream["frame_bytes"] if path == stream["frames_url"] else 50_000
                connection.sendall(head("POST", path, f"Content-Length: {size}") + bytes(1_000))
                time.sleep(0.005)
                reset(connection)
            gone = ("framegate_refused_total", "client_gone")
            # A third went to the stream. Not all of them were seen: a reset also takes what was not read yet.
            wait_until(lambda: served.counters().get(gone, 0) >= length(100, 2_000) // 6, "they were not noticed")
            wait_until(lambda: served.counters()["framegate_upload_bytes",] == 0, "bodies are still held")
            after = served.counters()
            assert rss_bytes() - rss < 20 * MB
        assert set(camera.outcomes) == {"met"}
        assert server_errors(after) == server_errors(before)
        assert books(served, stream)["accepted"] == 0
        assert served.gateway.arena.free_bytes == free
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
