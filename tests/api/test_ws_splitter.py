"""What is taken out of a WebSocket and what is passed on: the same however the network cuts it."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from gateway.api.ws_splitter import Splitter
from gateway.runtime.bodies import MaskedBody

LIMIT = 400


def frame(opcode, payload=b"", *, fin=True):
    return Frame(Opcode(opcode), payload, fin).serialize(mask=True)


def content(body):
    data = bytearray(body.size)
    body.fill(memoryview(data))
    return bytes(data)


def split(splitter, *packets):
    """Return what was given, with neighbours that are passed on put together."""
    found = []
    for packet in packets:
        for part in splitter.feed(packet):
            if isinstance(part, MaskedBody):
                found.append(content(part))
            elif found and isinstance(found[-1], bytearray):
                found[-1] += part
            else:
                found.append(bytearray(part))
    return found


def packets_of(data, places):
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


payloads = st.binary(max_size=8) | st.integers(100, LIMIT).map(lambda size: (bytes(range(256)) * 2)[:size])
message = st.builds(lambda data: [(2, data, True)], payloads)
text = st.builds(lambda data: [(1, data, True)], payloads)
control = st.builds(lambda opcode, data: [(opcode, data[:125], True)], st.sampled_from([8, 9, 10]), payloads)
fragmented = st.builds(
    lambda opcode, parts, ping: [
        (opcode, parts[0], False),
        *([(9, b"p", True)] if ping else []),
        *((0, part, False) for part in parts[1:-1]),
        (0, parts[-1], True),
    ],
    st.sampled_from([1, 2]),
    st.lists(payloads, min_size=2, max_size=4),
    st.booleans(),
)


@given(st.lists(message | text | control | fragmented, max_size=8), st.lists(st.integers(0, 10_000), max_size=8))
@example([[(2, b"", True)], [(2, b"", True)]], [0, 1, 2, 3, 4, 5, 6, 7])
@example([[(2, bytes(200), True)], [(1, b"x", True)]], [1, 2, 3, 4, 5, 6, 7, 8, 9])
def test_messages_are_taken_out_and_all_else_is_passed_on_in_order(groups, places):
    frames = list(itertools.chain.from_iterable(groups))
    wanted, data, fragments = [], b"", False
    for opcode, payload, fin in frames:
        raw = frame(opcode, payload, fin=fin)
        data += raw
        if opcode < 8:
            taken = opcode == 2 and fin and not fragments
            fragments = not fin
        else:
            taken = False
        if taken:
            wanted.append(payload)
        elif wanted and isinstance(wanted[-1], bytearray):
            wanted[-1] += raw
        else:
            wanted.append(bytearray(raw))
    splitter = Splitter(LIMIT)
    assert split(splitter, *packets_of(data, places)) == wanted
    assert splitter.held == 0


@pytest.mark.parametrize(
    "begin",
    [
        b"\xc2\x80",  # a reserved bit
        b"\x82\x01",  # not masked
        b"\x83\x80",  # no such opcode
        b"\x8b\x80",
    ],
)
def test_behind_a_header_that_cannot_be_everything_is_passed_on(begin):
    splitter = Splitter(LIMIT)
    after = frame(2, b"abc")
    assert split(splitter, frame(2, b"x") + begin, after, after * 3) == [b"x", begin + after * 4]


@pytest.mark.parametrize("length", [LIMIT + 1, 1 << 40, (1 << 64) - 1])
def test_a_message_over_the_limit_is_passed_on_before_its_mask_is_here(length):
    head = b"\x82\xff" + length.to_bytes(8, "big")
    assert split(Splitter(LIMIT), head) == [head]


def test_a_message_of_the_limit_is_taken():
    assert split(Splitter(LIMIT), frame(2, bytes(LIMIT))) == [bytes(LIMIT)]


def test_what_is_unfinished_is_held():
    splitter = Splitter(LIMIT)
    data = frame(2, bytes(200))
    held = []
    for start in range(0, len(data), 50):
        split(splitter, data[start : start + 50])
        held.append(splitter.held)
    assert held == [46, 96, 146, 196, 0]  # the mask counts, as a header alone is an unfinished message
    split(splitter, b"\x82")
    assert splitter.held == 1
    split(splitter, b"\x80")
    assert splitter.held == 2


def test_the_beginning_of_a_message_does_not_keep_the_packet_that_it_came_in():
    splitter = Splitter(LIMIT)
    packet = frame(1, bytes(300)) + frame(2, bytes(200))[:20]
    split(splitter, packet)
    [piece] = splitter._pieces
    assert not isinstance(piece, memoryview)
    assert len(piece) == 12


def test_a_message_in_very_many_pieces_is_kept_in_few():
    """Each packet would cost more than the one before it, and each byte a hundred times its memory."""
    splitter = Splitter(1 << 16)
    payload = bytes(range(250)) * 80
    data = frame(2, payload)
    for number in range(len(data) - 1):
        assert list(splitter.feed(data[number : number + 1])) == []
        assert splitter.held in {number + 1, number - 3}, "of a header that is complete, the mask is left"
    assert len(splitter._pieces) < 10
    [body] = splitter.feed(data[-1:])
    assert content(body) == payload


LARGE = 1 << 16


@pytest.mark.parametrize("size", [LARGE, LARGE + 1, 150_528])
def test_a_large_message_in_one_piece_is_taken_where_it_lies(size):
    payload = (bytes(range(251)) * (size // 251 + 1))[:size]
    data = frame(2, payload)
    splitter = Splitter(size)
    assert content(splitter.whole(memoryview(data))) == payload
    assert splitter.held == 0
    assert split(splitter, data) == [payload]


@pytest.mark.parametrize(
    "data",
    [
        frame(2, bytes(LARGE))[:-1],
        frame(2, bytes(LARGE)) + b"\x82",
        frame(2, bytes(LARGE + 1)),
        frame(2, bytes(LARGE - 1)),
        frame(2, bytes(LARGE), fin=False),
        frame(1, bytes(LARGE)),
        frame(9, bytes(20)),
        b"\x82\xff" + bytes(3),
        b"",
    ],
    ids=["short", "two", "over the limit", "small", "fragment", "text", "ping", "head", "nothing"],
)
def test_nothing_else_is(data):
    splitter = Splitter(LARGE)
    assert splitter.whole(memoryview(data)) is None
    whole = frame(2, bytes(range(256)) * 256)
    assert content(splitter.whole(memoryview(whole))) == bytes(range(256)) * 256, "and nothing has changed"


@pytest.mark.parametrize("before", [b"\x82", frame(2, bytes(LARGE))[:100], frame(2, b"x", fin=False)])
def test_nor_is_one_behind_something_that_is_not_complete(before):
    splitter = Splitter(LARGE)
    split(splitter, before)
    assert splitter.whole(memoryview(frame(2, bytes(LARGE)))) is None
