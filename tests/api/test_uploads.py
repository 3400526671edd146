"""Bodies on their way in: their sum, their time, their end. No server; times are zero or never."""

import asyncio

import pytest

from gateway.api.uploads import Uploads
from gateway.errors import BodyTooLarge, Stopping, UploadsFull, UploadTimeout
from tests.api.asgi import DISCONNECT, Client, chunk, scope

NEVER_S = 600.0


def read(uploads, *messages, limit=100, **headers):
    return uploads.read(scope(**headers), Client(*messages).receive, limit)


async def begun(coroutine):
    """Start it, and return it once it waits."""
    task = asyncio.ensure_future(coroutine)
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def ended(task):
    task.cancel()
    await asyncio.wait([task])


def test_chunks_are_joined_and_counted():
    uploads = Uploads(100, NEVER_S)
    whole = read(uploads, *[chunk(b"ab")] * 4, chunk(b"cd", more=False), limit=10)
    assert asyncio.run(whole) == b"ababababcd"
    with pytest.raises(BodyTooLarge):
        asyncio.run(read(uploads, *[chunk(b"ab")] * 6, limit=10))
    assert uploads.held_bytes == 0


def test_an_announced_length_counts_from_the_start():
    async def test():
        uploads = Uploads(100, NEVER_S)
        half = await begun(read(uploads, chunk(b"x"), content_length=60))
        assert uploads.held_bytes == 60
        with pytest.raises(UploadsFull) as refused:
            await read(uploads, content_length=41)
        assert refused.value.retry_after_s == 1
        assert await read(uploads, chunk(b"y" * 40, more=False), content_length=40) == b"y" * 40
        await ended(half)
        assert uploads.held_bytes == 0

    asyncio.run(test())


def test_what_is_kept_is_taken_by_those_that_were_promised_it_alone():
    async def test():
        kept = 30
        uploads = Uploads(100, NEVER_S, lambda: kept)
        other = await begun(read(uploads, content_length=70))
        with pytest.raises(UploadsFull):
            await read(uploads, chunk(b"x", more=False), content_length=1)
        first = await begun(uploads.read(scope(content_length=20), Client().receive, 100, promised=True))
        assert await uploads.read(scope(), Client(chunk(b"y" * 10, more=False)).receive, 100, promised=True)
        with pytest.raises(UploadsFull):  # the limit holds for all together
            await uploads.read(scope(), Client(chunk(b"y" * 11, more=False)).receive, 100, promised=True)
        await ended(other)
        kept = 0
        assert await read(uploads, chunk(b"z" * 80, more=False), content_length=80)  # beside the 20 that are held
        await ended(first)
        assert uploads.held_bytes == 0

    asyncio.run(test())


def test_a_camera_has_one_place_and_only_for_what_it_announced():
    uploads = Uploads(100, NEVER_S)
    with uploads.place("a", 20, 20) as first, uploads.place("a", 20, 20) as second, uploads.place("b", 5, 20) as other:
        assert (first, second, other) == (20, 0, 5)
    with uploads.place("a", 21, 20) as place:
        assert place == 0
    with uploads.place("a", 20, 20) as place:
        assert place == 20
    assert uploads.placed == set()


def test_an_unannounced_one_counts_as_it_grows():
    async def test():
        uploads = Uploads(100, NEVER_S)
        half = await begun(read(uploads, chunk(b"x" * 30), chunk(b"x" * 30)))
        assert uploads.held_bytes == 60
        with pytest.raises(UploadsFull):
            await read(uploads, chunk(b"y" * 30), chunk(b"y" * 30))
        assert uploads.held_bytes == 60
        await ended(half)
        assert uploads.held_bytes == 0

    asyncio.run(test())


@pytest.mark.parametrize("last", [DISCONNECT, chunk(b"x" * 50, more=False), chunk(b"x" * 500)])
def test_however_it_ends_its_share_is_given_back(last):
    async def test():
        uploads = Uploads(100, NEVER_S)
        await asyncio.gather(read(uploads, chunk(b"x" * 10), last, content_length=60), return_exceptions=True)
        assert uploads.held_bytes == 0

    asyncio.run(test())


@pytest.mark.parametrize("headers", [{"content_length": 60}, {"transfer_encoding": "chunked"}])
def test_one_that_is_not_complete_in_time_is_dropped(headers):
    async def test():
        uploads = Uploads(100, 0.01)
        with pytest.raises(UploadTimeout, match="there are 3 bytes"):
            await read(uploads, chunk(b"abc"), **headers)
        assert uploads.held_bytes == 0

    asyncio.run(test())


def test_when_the_server_stops_what_is_complete_is_taken_and_the_rest_given_up():
    async def test():
        uploads = Uploads(100, NEVER_S)
        half = await begun(read(uploads, chunk(b"x"), content_length=60))
        uploads.give_up()
        with pytest.raises(Stopping):
            await half
        assert uploads.held_bytes == 0
        with pytest.raises(Stopping):
            await read(uploads, chunk(b"x"), content_length=60)
        assert await read(uploads, chunk(b"whole", more=False), content_length=5) == b"whole"
        uploads.give_up()  # once is enough, twice no fault

    asyncio.run(test())
