"""The ring in which bodies lie until the scheduler has them."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ingest.staging import Staging

PAGE = 4096


@given(st.lists(st.one_of(st.integers(0, 3 * PAGE), st.none()), max_size=120))
def test_bodies_never_overlap_and_all_memory_comes_back(steps):
    """A number puts down a body of so many bytes, None takes the oldest."""
    staging = Staging.create(2 * PAGE)
    held = deque()
    try:
        for number, step in enumerate(steps):
            if step is None:
                if held:
                    offset, size, mark = held.popleft()
                    assert bytes(staging.view[offset : offset + size]) == bytes([mark]) * size
                    staging.taken()
                continue
            offset = staging.put(step)
            if offset is None:
                assert held or step > staging.size, "an empty ring holds whatever fits into it"
                continue
            assert offset + step <= staging.size
            staging.view[offset : offset + step] = bytes([number]) * step
            held.append((offset, step, number))
        while held:
            offset, size, mark = held.popleft()
            assert bytes(staging.view[offset : offset + size]) == bytes([mark]) * size
            staging.taken()
        assert staging.used_bytes == 0
        assert staging.put(staging.size) == 0
    finally:
        staging.close()


def test_one_that_keeps_up_uses_the_same_memory_all_the_time():
    staging = Staging.create(16 * PAGE)
    for _ in range(100):
        assert staging.put(1000) == 0
        staging.taken()
    staging.close()


def test_another_process_sees_what_was_written():
    """Two mappings of one descriptor stand for two processes."""
    import os

    writer = Staging.create(PAGE)
    reader = Staging(os.dup(writer.fd), PAGE)
    writer.view[10:13] = b"abc"
    assert bytes(reader.view[10:13]) == b"abc"
    for each in (writer, reader):
        each.close()


def test_nobody_can_make_it_smaller():
    """Whoever reads memory that was cut off from a mapping is ended by the system."""
    import os

    staging = Staging.create(2 * PAGE)
    for size in (PAGE, 3 * PAGE):
        with pytest.raises(PermissionError):
            os.ftruncate(staging.fd, size)
    assert bytes(staging.view[PAGE : PAGE + 1]) == b"\0"
    staging.close()
