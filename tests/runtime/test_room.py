"""Who may take the last of the arena; the sums, without a gateway."""

from types import SimpleNamespace

import pytest

from gateway.core.types import ServiceClass
from gateway.errors import ArenaFull
from gateway.runtime.arena import Arena
from gateway.runtime.region import private_region
from gateway.runtime.room import PromisedRoom, frames_at_once
from tests.runtime_support import make_profile, make_spec

SIZE = 8 * 8 * 3
BEST_EFFORT = {"service_class": ServiceClass.BEST_EFFORT}


def record(in_flight=0, **fields):
    spec = make_spec(version="1", **fields)
    return SimpleNamespace(spec=spec, category=spec.category(), in_flight=in_flight, frame_bytes=SIZE)


@pytest.mark.parametrize(
    ("fields", "frames"),
    [
        ({"period_ms": 100, "deadline_ms": 200}, 4),
        ({"period_ms": 100, "deadline_ms": 50}, 2),
        ({"period_ms": 100, "deadline_ms": 200, "burst": 3}, 12),
        ({"period_ms": 100, "deadline_ms": 200, "jitter_ns": 100_000_000}, 5),
        ({"period_ms": 100, "deadline_ms": 200, "frames": 3}, 3),
        (BEST_EFFORT, 0),
    ],
)
def test_what_a_contract_can_have_waiting(fields, frames):
    assert frames_at_once(make_spec(**fields)) == frames


def test_only_frames_beyond_a_contract_have_to_leave_room():
    room = PromisedRoom(1 << 20, make_profile())
    camera, other = record(), record(**BEST_EFFORT)
    room.add(camera)
    assert room.leave_bytes(camera, 4) == 0
    blocks = 4  # of eight frames each
    assert room.leave_bytes(camera, 5) == room.leave_bytes(other, 1) == blocks * 8 * SIZE
    room.remove(camera)
    assert room.leave_bytes(other, 1) == 0


def test_bodies_are_those_of_one_period():
    room = PromisedRoom(1 << 20, make_profile())
    for fields in ({"burst": 3}, {}, BEST_EFFORT):
        room.add(record(**fields))
    assert room.bodies_bytes == 4 * SIZE
    room.remove(record(burst=3))
    assert room.bodies_bytes == SIZE


def test_half_of_the_arena_is_everybodys():
    room = PromisedRoom(1_000, make_profile())
    for _ in range(10):
        room.add(record())
    assert room.leave_bytes(record(**BEST_EFFORT), 1) == 500


def test_streams_of_one_category_share_blocks():
    room, best_effort = PromisedRoom(1 << 20, make_profile()), record(**BEST_EFFORT)
    for _ in range(100):
        room.add(record())
    assert room.leave_bytes(best_effort, 1) == (4 + 400 // 8) * 8 * SIZE


def test_without_a_profile_nothing_is_promised():
    room = PromisedRoom(1 << 20, make_profile(models=["other"]))
    room.add(record())
    assert room.leave_bytes(record(**BEST_EFFORT), 1) == 0


def test_the_arena_keeps_what_is_to_be_left():
    arena = Arena(private_region(64 * SIZE))
    arena.reserve(8, SIZE, 8, leave_bytes=56 * SIZE)
    arena.unreserve()
    with pytest.raises(ArenaFull, match="contract"):
        arena.reserve(8, SIZE, 8, leave_bytes=57 * SIZE)
    assert arena.free_bytes == 64 * SIZE
    arena.close()
