"""Room for outputs: which have a place, and who has the memory when."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gateway.runtime import output_rooms
from gateway.runtime.arena import Arena
from gateway.runtime.output_rooms import OutputRooms, layout_of
from gateway.runtime.region import private_region
from gateway.triton.types import BackendError, ModelMetadata, TensorInfo

SIZE = 1 << 16
BOXES = TensorInfo("boxes", "FP32", (10, 4))


def model(*outputs: TensorInfo, max_batch_size: int = 8) -> ModelMetadata:
    frames = TensorInfo("frames", "UINT8", (-1, -1, 3))
    return ModelMetadata("m", "1", ("1",), "p", max_batch_size, (frames,), outputs or (BOXES,))


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena(private_region(SIZE))
    yield arena
    arena.close()


@pytest.fixture(autouse=True)
def everything_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_rooms, "WORTH_BYTES", 0)


def lost() -> BackendError:
    return BackendError("the connection broke", "UNAVAILABLE")


def test_outputs_of_known_size_have_a_place_each() -> None:
    outputs = (TensorInfo("id", "INT64", ()), BOXES, TensorInfo("half", "BF16", (3,)))
    layout = layout_of(model(*outputs), 4)
    assert layout is not None
    assert layout.places == {"id": (0, 32), "boxes": (64, 640), "half": (704, 24)}
    assert (layout.others, layout.size) == ((), 768)


def test_a_model_without_a_batch_axis_has_one_row() -> None:
    layout = layout_of(model(BOXES, max_batch_size=0), 1)
    assert layout is not None
    assert layout.places == {"boxes": (0, 160)}


def test_outputs_of_unknown_size_come_in_the_answer() -> None:
    unknown = (TensorInfo("map", "FP32", (-1, 4)), TensorInfo("label", "BYTES", (1,)), TensorInfo("none", "FP32", (0,)))
    layout = layout_of(model(*unknown, BOXES), 1)
    assert layout is not None
    assert layout.others == ("map", "label", "none")
    assert layout_of(model(*unknown), 1) is None


def test_small_outputs_come_in_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_rooms, "WORTH_BYTES", 640)
    assert layout_of(model(), 4) is None
    assert layout_of(model(), 5) is not None


def test_the_room_is_given_back_when_triton_has_answered(arena: Arena) -> None:
    rooms = OutputRooms(arena)
    offsets = set()
    for _ in range(3):
        with rooms.lend(model(), 2) as room:
            assert room is not None
            offsets.add(room.offset)
            assert arena.batches == 1
        with pytest.raises(BackendError, match="no kernel"), rooms.lend(model(), 2):
            raise BackendError("no kernel", "INTERNAL")
        assert (arena.batches, arena.free_bytes) == (0, SIZE)
    assert offsets == {0}


@pytest.mark.parametrize("end", [lost, asyncio.CancelledError])
def test_without_an_answer_it_is_kept_until_nobody_can_write(arena: Arena, end: type[BaseException]) -> None:
    rooms = OutputRooms(arena)
    with pytest.raises((BackendError, asyncio.CancelledError)), rooms.lend(model(), 2):
        raise end()
    for _ in range(3):
        with rooms.lend(model(), 2) as room:
            assert room is None
        with pytest.raises(BackendError), rooms.lend(model(), 2):
            raise lost()
    assert rooms.keeps
    assert arena.batches == 1
    rooms.nobody_writes()
    assert arena.batches == 0
    with rooms.lend(model(), 2) as room:
        assert room is not None
    rooms.nobody_writes()


def test_half_of_the_arena_stays_for_frames(arena: Arena) -> None:
    rooms = OutputRooms(arena)
    large = model(TensorInfo("map", "UINT8", (SIZE // 2,)))
    with rooms.lend(large, 1) as room:
        assert room is not None
    with rooms.lend(large, 2) as room:
        assert room is None
    with arena.lend(64), rooms.lend(large, 1) as room:
        assert room is None


def test_without_a_piece_that_is_large_enough_there_is_no_room(arena: Arena) -> None:
    rooms, unit = OutputRooms(arena), SIZE // 16
    with ExitStack() as held:
        with ExitStack() as freed:
            for _ in range(4):
                freed.enter_context(arena.lend(3 * unit))
                held.enter_context(arena.lend(unit))
        assert arena.free_bytes == 12 * unit
        for size, found in ((4 * unit, False), (3 * unit, True)):
            with rooms.lend(model(TensorInfo("map", "UINT8", (size,))), 1) as room:
                assert (room is not None) == found


def test_a_model_that_is_not_what_it_says_has_no_room_until_it_is_loaded_anew(arena: Arena) -> None:
    rooms, first = OutputRooms(arena), model()
    rooms.refuse(first)
    with rooms.lend(first, 1) as room:
        assert room is None
    other = model(TensorInfo("boxes", "FP32", (20, 4)))
    for metadata, size in ((other, 320), (model(), 192)):
        with rooms.lend(metadata, 1) as room:
            assert room is not None
            assert room.layout.size == size
