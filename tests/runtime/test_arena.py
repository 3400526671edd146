from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ArenaFull, ArenaTooSmall
from gateway.runtime.arena import Arena
from gateway.runtime.region import private_region

FRAME = 100
BATCH = 4
BLOCK = 448  # 4 x 100 bytes, rounded up to whole lines of 64


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena(private_region(3 * BLOCK))
    yield arena
    assert arena.batches == 0, "a test left a batch behind"
    arena.close()


def place(arena: Arena, job: int, *values: int) -> None:
    arena.reserve(len(values), FRAME, BATCH)
    for value in values:
        arena.slot(job)[:] = bytes([value]) * FRAME
    arena.unreserve()


def content(arena: Arena, offset: int, frames: int) -> list[int]:
    data = arena.region.view[offset : offset + frames * FRAME]
    assert all(len(set(data[i * FRAME : (i + 1) * FRAME])) == 1 for i in range(frames)), "a frame is torn"
    return [data[i * FRAME] for i in range(frames)]


def test_a_batch_lies_back_to_back(arena: Arena) -> None:
    place(arena, 7, 1, 2, 3)
    span = arena.start(7, 3)
    assert span.size == 3 * FRAME
    assert content(arena, span.offset, 3) == [1, 2, 3]
    arena.call_ended(7)
    arena.finish(7)


def test_batches_that_fill_up_together_do_not_touch(arena: Arena) -> None:
    for value in range(BATCH):
        place(arena, 1, value)
        place(arena, 2, 10 + value)
    for job, first in ((1, 0), (2, 10)):
        span = arena.start(job, BATCH)
        assert content(arena, span.offset, BATCH) == [first + i for i in range(BATCH)]
        arena.call_ended(job)
        arena.finish(job)


def test_the_last_frame_fills_the_hole(arena: Arena) -> None:
    place(arena, 1, 1, 2, 3, 4)
    arena.move(1, 3, 0)
    arena.drop(1)
    span = arena.start(1, 3)
    assert content(arena, span.offset, 3) == [4, 2, 3]
    assert arena.moves == 1
    arena.call_ended(1)
    arena.finish(1)


def test_the_last_drop_frees_the_block(arena: Arena) -> None:
    place(arena, 1, 1, 2)
    arena.drop(1)
    assert arena.batches == 1
    arena.drop(1)
    assert arena.free_bytes == 3 * BLOCK


def test_a_block_is_held_until_its_call_has_ended(arena: Arena) -> None:
    """The engine gave the job up; Triton may still be reading."""
    place(arena, 1, 1, 2)
    arena.start(1, 2)
    arena.drop(1)
    arena.drop(1)
    assert arena.batches == 1
    arena.call_ended(1)
    assert arena.batches == 0


def test_a_block_is_held_until_the_engine_is_done(arena: Arena) -> None:
    place(arena, 1, 1)
    arena.start(1, 1)
    arena.call_ended(1)
    assert arena.batches == 1
    arena.finish(1)
    assert arena.batches == 0


def test_a_full_arena_refuses_all_or_nothing(arena: Arena) -> None:
    place(arena, 1, 1)
    place(arena, 2, 1)
    with pytest.raises(ArenaFull) as refusal:
        arena.reserve(2 * BATCH, FRAME, BATCH)
    assert refusal.value.retry_after_s == 1.0
    assert arena.free_bytes == BLOCK
    arena.reserve(BATCH, FRAME, BATCH)
    arena.unreserve()
    arena.drop(1)
    arena.drop(2)


def test_more_frames_than_a_batch_are_reserved_for_however_they_are_batched(arena: Arena) -> None:
    arena.reserve(2 * BATCH, FRAME, BATCH)
    for job in (1, 1, 1, 1, 2, 2, 2, 2):
        arena.slot(job)[:] = bytes(FRAME)
    arena.unreserve()
    assert arena.batches == 2
    for job in (1, 2):
        arena.start(job, BATCH)
        arena.call_ended(job)
        arena.finish(job)


def test_a_batch_larger_than_the_arena_is_named(arena: Arena) -> None:
    arena.check_fits(FRAME, 12)
    with pytest.raises(ArenaTooSmall, match="FRAMEGATE_ARENA__BYTES") as refusal:
        arena.check_fits(FRAME, 14)
    assert refusal.value.members == {"needed_bytes": 1400, "arena_bytes": 3 * BLOCK}


def test_what_engine_and_arena_disagree_on_is_said(arena: Arena) -> None:
    place(arena, 1, 1, 2)
    with pytest.raises(RuntimeError, match="started with 3 frames, but 2 were placed"):
        arena.start(1, 3)
    arena.reserve(1, 99, BATCH)
    with pytest.raises(RuntimeError, match="a frame of 99 does not fit"):
        arena.slot(1)
    arena.unreserve()
    arena.drop(1)
    arena.drop(1)


def test_lent_memory_is_black_and_comes_back(arena: Arena) -> None:
    arena.region.view[:] = b"\xff" * len(arena.region.view)
    with arena.lend(2 * BLOCK) as span:
        assert bytes(arena.region.view[span.offset : span.offset + span.size]) == bytes(2 * BLOCK)
        with pytest.raises(ArenaFull), arena.lend(2 * BLOCK):
            pass
    assert arena.free_bytes == 3 * BLOCK


@given(st.lists(st.one_of(st.integers(0, 255), st.none()), max_size=40), st.data())
def test_a_batch_with_holes_holds_what_is_left(steps: list[int | None], data: st.DataObject) -> None:
    """A frame placed, or (None) one dropped by swapping in the last, as the engine does it."""
    arena = Arena(private_region(128 * FRAME))
    left: list[int] = []
    for value in steps:
        if value is not None:
            arena.reserve(1, FRAME, 40)
            arena.slot(1)[:] = bytes([value]) * FRAME
            arena.unreserve()
            left.append(value)
        elif left:
            hole = data.draw(st.integers(0, len(left) - 1))
            last = len(left) - 1
            if hole != last:
                arena.move(1, last, hole)
                left[hole] = left[last]
            left.pop()
            arena.drop(1)
    if left:
        assert content(arena, arena.start(1, len(left)).offset, len(left)) == left
        arena.call_ended(1)
        arena.finish(1)
    assert arena.batches == 0
    arena.close()


class TestHandOver:
    """Frames of a batch that failed become batches of their own, in the same block."""

    def test_each_frame_stays_where_it_is(self, arena: Arena) -> None:
        place(arena, 1, 5, 6, 7)
        arena.start(1, 3)
        arena.call_ended(1)
        arena.hand_over(1, [(11, 0), (12, 1), (13, 2)])
        for job, value in ((12, 6), (11, 5), (13, 7)):
            span = arena.start(job, 1)
            assert content(arena, span.offset, 1) == [value]
            assert arena.batches == 1
            arena.call_ended(job)
            arena.finish(job)
        assert arena.moves == 0

    def test_the_block_is_held_by_the_last_of_them(self, arena: Arena) -> None:
        place(arena, 1, 5, 6, 7)
        arena.start(1, 3)
        arena.call_ended(1)
        arena.hand_over(1, [(11, 2)])
        arena.drop(1)
        arena.drop(1)  # the old batch is over: two of its frames have failed
        assert arena.free_bytes == 2 * BLOCK
        span = arena.start(11, 1)
        assert content(arena, span.offset, 1) == [7]
        arena.finish(11)  # given up: its call may still be reading
        assert arena.free_bytes == 2 * BLOCK
        arena.call_ended(11)
        assert arena.free_bytes == 3 * BLOCK

    def test_of_a_batch_that_waits_too(self, arena: Arena) -> None:
        place(arena, 1, 5, 6)
        arena.hand_over(1, [(11, 0), (12, 1)])
        arena.drop(11)
        assert arena.batches == 1
        arena.drop(12)

    def test_again_and_again(self, arena: Arena) -> None:
        place(arena, 1, 5, 6)
        arena.hand_over(1, [(11, 1)])
        arena.hand_over(11, [(21, 0)])
        arena.drop(1)
        assert content(arena, arena.start(21, 1).offset, 1) == [6]
        arena.call_ended(21)
        arena.finish(21)


def test_frames_may_be_spread_over_more_batches_than_they_would_fill(arena: Arena) -> None:
    """How many is the engine's to say, after the reservation; those that find no room lie elsewhere."""
    arena.reserve(5, FRAME, BATCH)
    for job in range(5):
        arena.slot(job)[:] = bytes([job]) * FRAME
    arena.unreserve()
    spans = [arena.start(job, 1) for job in range(5)]
    assert [set(span.view) for span in spans] == [{job} for job in range(5)]
    assert [span.shared for span in spans] == [True] * 3 + [False] * 2
    assert arena.overflows == 2
    for job in range(5):
        arena.call_ended(job)
        arena.finish(job)
    assert arena.free_bytes == 3 * BLOCK


def test_what_is_spread_leaves_room_for_others(arena: Arena) -> None:
    arena.reserve(2, FRAME, BATCH, leave_bytes=2 * BLOCK)
    for job in (1, 2):
        arena.slot(job)[:] = bytes([job]) * FRAME
    arena.unreserve()
    assert arena.free_bytes == 2 * BLOCK
    arena.move(2, 0, 0)
    arena.hand_over(2, [(3, 0)])
    assert set(arena.start(3, 1).view) == {2}
    arena.call_ended(3)
    arena.finish(3)
    arena.drop(1)


def test_a_block_that_was_not_needed_is_free_for_everybody(arena: Arena) -> None:
    """It is kept for the next frame of its size; all else finds it free."""
    free = arena.free_bytes
    arena.reserve(1, FRAME, BATCH)
    arena.unreserve()
    assert (arena.free_bytes, arena.batches) == (free, 0)
    with arena.lend(free, clear=False):
        assert (arena.free_bytes, arena.batches) == (0, 1)
    assert (arena.free_bytes, arena.batches) == (free, 0)


def test_a_spare_block_is_taken_by_frames_of_its_size_alone(arena: Arena) -> None:
    place(arena, 1, 1)
    place(arena, 1, 2)  # leaves a spare one
    arena.reserve(1, FRAME // 2, 2)
    arena.slot(2)[:] = bytes([9]) * (FRAME // 2)
    arena.unreserve()
    place(arena, 3, 3)
    assert arena.batches == 3
    for job, frames, first in ((1, 2, 1), (3, 1, 3)):
        span = arena.start(job, frames)
        assert content(arena, span.offset, frames) == [first + i for i in range(frames)]
        arena.call_ended(job)
        arena.finish(job)
    assert set(arena.start(2, 1).view) == {9}
    arena.call_ended(2)
    arena.finish(2)
