"""Bodies in pieces, plain and masked: every byte arrives once, in its frame, wherever the pieces were cut."""

import asyncio
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.runtime.bodies import _ROW_BYTES, Body, MaskedBody, body_of, joined
from tests.runtime_support import SHAPE, gateway_on_stand_in, make_spec

MASK = bytes([7, 200, 0, 255])


def cut(data, places):
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def masked(data, mask=MASK):
    return bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))


def frames_of(body, size, count):
    found = []
    for _ in range(count):
        slot = bytearray(size)
        body.fill(memoryview(slot))
        found.append(bytes(slot))
    return found


@given(st.binary(min_size=1, max_size=60), st.integers(1, 4), st.lists(st.integers(0, 500), max_size=6), st.booleans())
def test_frames_and_pieces_may_be_cut_anywhere(frame, count, places, views):
    data = b"".join(bytes(byte ^ number for byte in frame) for number in range(count))
    wanted = [data[start : start + len(frame)] for start in range(0, len(data), len(frame))]
    kind = memoryview if views else bytes
    plain = Body([kind(piece) for piece in cut(data, places)])
    assert (plain.size, frames_of(plain, len(frame), count)) == (len(data), wanted)
    hidden = MaskedBody([kind(piece) for piece in cut(masked(data), places)], MASK)
    assert (hidden.size, frames_of(hidden, len(frame), count)) == (len(data), wanted)


@pytest.mark.parametrize("size", [1, 3, 4, _ROW_BYTES - 1, _ROW_BYTES, _ROW_BYTES + 1, 3 * _ROW_BYTES + 5, 150_528])
@pytest.mark.parametrize("first", [0, 1, 2, 3, 4_097])
def test_a_mask_goes_on_across_pieces_of_any_length(size, first):
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    body = MaskedBody(cut(masked(data), [min(first, size)]), MASK)
    assert frames_of(body, size, 1) == [data]


@pytest.mark.parametrize("first", [0, 1, 2, 3])
@pytest.mark.parametrize("shift", [0, 1, 8])
def test_words_are_unmasked_as_bytes_are(first, shift):
    """Pieces that lie at multiples of 8 and others, behind a frame after which the mask begins anywhere."""
    data = np.random.default_rng(first).integers(0, 256, first + 2 * _ROW_BYTES, np.uint8).tobytes()
    hidden = masked(data)
    body = MaskedBody([hidden[:first], memoryview(bytes(shift) + hidden[first:])[shift:]], MASK)
    slots = [bytearray(first), bytearray(2 * _ROW_BYTES)]
    for slot in slots:
        body.fill(memoryview(slot))
    assert b"".join(slots) == data


def test_a_slot_is_filled_and_nothing_beside_it():
    memory = memoryview(bytearray(b"." * 20))
    body = MaskedBody([masked(b"abcdefgh")], MASK)
    body.fill(memory[3:7])
    body.fill(memory[9:13])
    assert bytes(memory) == b"...abcd..efgh......."


@pytest.mark.parametrize("kind", [Body, lambda pieces: MaskedBody(pieces, MASK)])
def test_more_than_there_is_cannot_be_taken(kind):
    body = kind([b"abc", b"", b"d"])
    body.fill(memoryview(bytearray(3)))
    with pytest.raises(IndexError):
        body.fill(memoryview(bytearray(2)))


def test_what_counts_as_a_body():
    assert [body_of(data).size for data in (b"abc", bytearray(4), [b"a", memoryview(b"bc")], (), b"")] == [
        3,
        4,
        3,
        0,
        0,
    ]
    assert body_of(np.zeros((2, 3), np.float32)).size == 24
    body = Body([b"x"])
    assert body_of(body) is body


def test_one_piece_is_not_copied_to_be_joined():
    piece = bytes(100)
    assert joined([piece]) is piece
    assert joined([memoryview(b"ab"), b"c"]) == b"abc"
    assert joined([]) == b""
    assert isinstance(joined([memoryview(b"ab")]), bytes)


@pytest.mark.parametrize("kind", [Body, lambda pieces: MaskedBody([masked(joined(pieces))], MASK), list])
def test_a_gateway_takes_bodies_in_pieces(kind):
    """Of 5 frames, in batches of which none has its memory back to back with the next."""

    async def test():
        async with gateway_on_stand_in() as (gateway, _triton):
            registration = await gateway.register(make_spec(burst=5, period_ms=1_000, deadline_ms=2_000))
            size = int(np.prod(SHAPE))
            data = np.random.default_rng(3).integers(0, 256, 5 * size, np.uint8).tobytes()
            body = kind(cut(data, [1, 50, 192, 700, 701]))
            for seq, ticket in enumerate(gateway.submit(registration.stream.stream_id, body)):
                result = await ticket.result
                assert result.outputs["echo"].tobytes() == data[seq * size : (seq + 1) * size]

    asyncio.run(test())
