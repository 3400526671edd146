"""The lean way to Triton against a scripted server: odd answers, broken connections, and what is sent how often."""

import asyncio
import gc
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import httptools
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.triton import http_channel
from gateway.triton.http_channel import HttpChannel
from gateway.triton.http_messages import Requests
from gateway.triton.types import BackendError, InferenceCall, InSharedMemory, OutputLayout, OutputRoom

#: Instead of an answer.
CLOSE, SILENCE = b"close", b"silence"


def message(body: bytes, status: int = 200, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} So", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


def answer(*values: int, more: tuple[str, ...] = ()) -> bytes:
    """What Triton says of a model with one output, ``sum`` INT32 [1], for a batch."""
    data = np.array(values, "<i4").tobytes()
    output = {
        "name": "sum",
        "datatype": "INT32",
        "shape": [len(values), 1],
        "parameters": {"binary_data_size": len(data)},
    }
    head = json.dumps({"model_name": "m", "model_version": "3", "outputs": [output]}).encode()
    return message(head + data, 200, *more, f"Inference-Header-Content-Length: {len(head)}")


class Server:
    """Answers one request after another as it was told; `pieces` cuts what it sends into so many bytes.

    Attributes:
        requests: What came: (path, headers, body).
        connections: How many there were.
        open: How many there are.
        writers: One for each connection.
        peers: Of each request, the port that it came from.
    """

    def __init__(self, *answers: bytes, pieces: int = 0) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = self.open = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.peers: list[int] = []
        self._pieces = pieces

    def release(self, told: bytes) -> None:
        """Answer what was met with silence, on the first connection."""
        self.writers[0].write(told)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.writers.append(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                first, *lines = head.strip().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.requests.append((first.split(" ")[1], headers, body))
                self.peers.append(writer.get_extra_info("peername")[1])
                told = self.answers.pop(0)
                if told == CLOSE:
                    return
                if told != SILENCE:
                    await self._send(writer, told)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _send(self, writer: asyncio.StreamWriter, told: bytes) -> None:
        size = self._pieces or len(told)
        for start in range(0, len(told), size):
            writer.write(told[start : start + size])
            await writer.drain()
            if self._pieces:
                await asyncio.sleep(0)


Test = Callable[[HttpChannel, Server], Awaitable[None]]


def run(test: Test, *answers: bytes, pieces: int = 0, limit: int = 1 << 20) -> Server:
    server = Server(*answers, pieces=pieces)

    async def main() -> None:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        channel = HttpChannel(f"127.0.0.1:{listening.sockets[0].getsockname()[1]}", limit)
        try:
            async with asyncio.timeout(10):
                await test(channel, server)
        finally:
            channel.close()
            listening.close()
            while server.open:
                await asyncio.sleep(0.001)

    asyncio.run(main())
    return server


def call(rows: int = 2, room: OutputRoom | None = None, **fields: Any) -> tuple[InferenceCall, InSharedMemory]:
    data = InSharedMemory("region", 4096, 4 * rows)
    defaults = {"model": "m", "version": "3", "input_name": "x", "datatype": "UINT8", "shape": (rows, 4)}
    return InferenceCall(**(defaults | fields), data=data, room=room), data


async def total(channel: HttpChannel) -> int:
    return int((await channel.infer(*call()))["sum"].sum())


# ---------------------------------------------------------------- what is sent


def test_calls_go_over_one_connection_one_after_the_other() -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        for value in (1, 2, 3):
            outputs = await channel.infer(*call())
            assert (outputs["sum"].tolist(), outputs.version) == ([[value], [0]], "3")
            assert not outputs["sum"].flags.writeable

    server = run(test, answer(1, 0), answer(2, 0), answer(3, 0))
    assert server.connections == 1
    path, headers, body = server.requests[-1]
    assert path == "/v2/models/m/versions/3/infer"
    assert headers["content-type"] == "application/json"
    place = {"shared_memory_region": "region", "shared_memory_byte_size": 8, "shared_memory_offset": 4096}
    assert json.loads(body) == {
        "inputs": [{"name": "x", "datatype": "UINT8", "shape": [2, 4], "parameters": place}],
        "parameters": {"binary_data_output": True},
    }


def test_without_a_version_triton_chooses() -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        assert (await channel.infer(*call(version="")))["sum"].tolist() == [[1]]

    assert run(test, answer(1)).requests[0][0] == "/v2/models/m/infer"


NAMES = st.text(min_size=1, max_size=12)
OFFSETS = st.integers(0, 1 << 40)


@given(NAMES, NAMES, NAMES, OFFSETS, OFFSETS, st.integers(1, 1 << 40))
def test_a_request_says_what_the_call_says(
    model: str, tensor: str, output: str, offset: int, room_offset: int, size: int
) -> None:
    """Whatever is in the names; the second request is written from what the first has left."""
    requests = Requests("127.0.0.1:8000")
    layout = OutputLayout({output: (64, size)}, (f"{output}%d",), 64 + size)
    for shift in (0, 64):
        room = OutputRoom("%s", memoryview(b""), room_offset + shift, layout)
        data = InSharedMemory("region %20d", offset + shift, size)
        asked, _ = call(model=model, input_name=tensor, room=room)
        parser = _Parsed(requests.infer(asked, data))
        assert parser.complete
        assert parser.path.count("/") == 6, "a name is one part of the path"
        [given_input] = parser.document["inputs"]
        assert given_input["name"] == tensor
        assert given_input["parameters"] == {
            "shared_memory_region": "region %20d",
            "shared_memory_byte_size": size,
            "shared_memory_offset": offset + shift,
        }
        written, sent = parser.document["outputs"]
        assert written["name"] == output
        assert written["parameters"]["shared_memory_offset"] == room_offset + shift + 64
        assert sent == {"name": f"{output}%d", "parameters": {"binary_data": True}}


class _Parsed:
    """A request as a server reads it."""

    def __init__(self, request: bytes) -> None:
        self.complete = False
        self.path, self._body = "", b""
        httptools.HttpRequestParser(self).feed_data(request)
        self.document = json.loads(self._body)

    def on_url(self, url: bytes) -> None:
        self.path += url.decode()

    def on_body(self, piece: bytes) -> None:
        self._body += piece

    def on_message_complete(self) -> None:
        assert not self.complete, "two requests"
        self.complete = True


def test_parameters_are_sent_and_not_kept() -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        for delay in (5, 6):
            await channel.infer(*call(parameters={"delay_ms": delay}))
        await channel.infer(*call())

    server = run(test, answer(1), answer(1), answer(1))
    sent = [json.loads(body)["parameters"] for _, _, body in server.requests]
    assert [parameters.get("delay_ms") for parameters in sent] == [5, 6, None]
    assert all(parameters["binary_data_output"] for parameters in sent)


def test_two_calls_at_one_time_have_a_connection_each() -> None:
    """Nothing is ever sent before the last answer is there."""

    async def test(channel: HttpChannel, server: Server) -> None:
        first = asyncio.create_task(total(channel))
        while not server.requests:
            await asyncio.sleep(0.001)
        assert await total(channel) == 7
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first

    assert run(test, SILENCE, answer(7)).connections == 2


# ---------------------------------------------------------------- what comes


@pytest.mark.parametrize("pieces", [0, 1, 7])
@pytest.mark.parametrize("form", ["plain", "chunked", "continued", "shouting"])
def test_an_answer_may_come_in_any_form(form: str, pieces: int) -> None:
    whole = answer(40, 2)
    if form == "chunked":
        head, _, body = whole.partition(b"\r\n\r\n")
        kept = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
        cut = [body[:5], body[5:6], body[6:]]
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in [*cut, b""])
        whole = b"\r\n".join([*kept, b"Transfer-Encoding: chunked", b"", b""]) + chunks
    elif form == "continued":
        whole = b"HTTP/1.1 100 Continue\r\n\r\n" + whole
    elif form == "shouting":
        head, _, body = whole.partition(b"\r\n\r\n")
        whole = head.replace(b"Inference-Header", b"INFERENCE-HEADER") + b"\r\n\r\n" + body

    async def test(channel: HttpChannel, server: Server) -> None:
        assert await total(channel) == 42
        assert await total(channel) == 42

    assert run(test, whole, whole, pieces=pieces).connections == 1


@pytest.mark.parametrize("pieces", [0, 70_001])
@pytest.mark.parametrize("values", [16_300, 16_384, 16_385, 250_000])
def test_a_large_answer_is_whole_and_so_is_the_next(values: int, pieces: int) -> None:
    """Around the size above which a body is received where it stays."""

    async def test(channel: HttpChannel, server: Server) -> None:
        for shift in (0, 1):
            outputs = await channel.infer(*call())
            np.testing.assert_array_equal(outputs["sum"][:, 0], np.arange(shift, shift + values))
            assert not outputs["sum"].flags.writeable
        assert await total(channel) == 5

    large = [answer(*range(shift, shift + values)) for shift in (0, 1)]
    assert run(test, *large, answer(5), pieces=pieces).connections == 1


def test_a_large_answer_that_breaks_off_is_none() -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        sent = asyncio.create_task(channel.infer(*call()))
        await asyncio.sleep(0.05)
        server.writers[0].close()
        with pytest.raises(BackendError) as failure:
            await sent
        assert failure.value.unreachable
        assert await total(channel) == 5

    run(test, answer(*range(50_000))[:150_000], answer(5))


def test_a_body_that_is_announced_and_does_not_come() -> None:
    """As the rules of HTTP have it for that status."""

    async def test(channel: HttpChannel, server: Server) -> None:
        with pytest.raises(BackendError, match="HTTP status 304"):
            await channel.infer(*call())
        assert await total(channel) == 5

    run(test, b"HTTP/1.1 304 Not Modified\r\nContent-Length: 100000\r\n\r\n", answer(5))


def test_outputs_in_the_room_are_copied_out_of_it() -> None:
    """They may be smaller than their place; and the memory is somebody else's a moment later."""
    block = memoryview(bytearray(1024))
    layout = OutputLayout({"boxes": (0, 64), "ids": (64, 16)}, ("names",), 128)
    block[256:272] = np.array([1, 2, 3, 4], "<f4").tobytes()
    block[320:328] = np.array([5], "<i8").tobytes()
    names = b"\x03\0\0\0cat"
    outputs = [
        {"name": "names", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(names)}},
        {"name": "boxes", "datatype": "FP32", "shape": [1, 4]},
        {"name": "ids", "datatype": "INT64", "shape": [1]},
    ]
    head = json.dumps({"model_name": "m", "model_version": "1", "outputs": outputs}).encode()
    reply = message(head + names, 200, f"inference-header-content-length: {len(head)}")

    async def test(channel: HttpChannel, server: Server) -> None:
        found = await channel.infer(*call(room=OutputRoom("region", block, 256, layout)))
        block[:] = bytes(1024)
        assert found["boxes"].tolist() == [[1, 2, 3, 4]]
        assert found["ids"].tolist() == [5]
        assert found["names"].tolist() == [b"cat"]
        block.release()  # nobody looks into it

    run(test, reply)


def document(**output: Any) -> bytes:
    told = {"name": "sum", "datatype": "INT32", "shape": [1]} | output
    return message(json.dumps({"model_version": "1", "outputs": [told]}).encode())


@pytest.mark.parametrize(
    "reply",
    [
        message(b""),
        message(b"{}"),
        message(b"[1]"),
        message(b"\xff\xfe"),
        message(b'{"outputs": [{"name": "sum"}], "model_version": "1"}'),
        document(),
        document(parameters={"binary_data_size": 4}),
        document(parameters={"binary_data_size": "4"}),
        document(parameters={"binary_data_size": -4}),
        document(parameters=[]),
        document(shape=["a"], parameters={"binary_data_size": 0}),
        document(shape=[1 << 70, 0], parameters={"binary_data_size": 0}),
        document(datatype="INT5", parameters={"binary_data_size": 0}),
        document(data=[1]),
        message(b'{"model_version": "1", "outputs": []}', 200, "Inference-Header-Content-Length: 3"),
        message(b'{"model_version": "1", "outputs": []}', 200, "Inference-Header-Content-Length: -3"),
    ],
)
def test_an_answer_that_is_none_fails_that_call_alone(reply: bytes) -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        with pytest.raises(BackendError) as failure:
            await channel.infer(*call())
        assert not failure.value.unreachable
        assert await total(channel) == 9
        failed = await (await begun(channel))
        assert isinstance(failed, BackendError)
        assert failed.message == failure.value.message
        assert await total(channel) == 8

    run(test, reply, answer(9), reply, answer(8))


def test_another_protocol_is_no_answer() -> None:
    """The parser says so in another way than of what it cannot read."""

    async def test(channel: HttpChannel, server: Server) -> None:
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        with pytest.raises(BackendError, match="not HTTP") as failure:
            await channel.infer(*call())
        assert failure.value.unreachable
        assert await total(channel) == 5
        assert faults == []

    switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\nhello"
    assert run(test, switch, answer(5)).connections == 2


@pytest.mark.parametrize(
    ("status", "words", "code"),
    [
        (400, "unexpected shape", "INVALID_ARGUMENT"),
        (404, "Request for unknown model: 'm' is not found", "NOT_FOUND"),
        (500, "CUDA error 700", "INTERNAL"),
        (501, "no such thing", "UNIMPLEMENTED"),
        (503, "Server is exiting", "UNAVAILABLE"),
        (418, "tea", "UNKNOWN"),
    ],
)
def test_refusals_have_tritons_words_and_grpcs_codes(status: int, words: str, code: str) -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        with pytest.raises(BackendError) as refusal:
            await channel.infer(*call())
        assert (refusal.value.message, refusal.value.code) == (words, code)
        assert refusal.value.unreachable == (status == 503)
        assert await total(channel) == 1

    assert run(test, message(json.dumps({"error": words}).encode(), status), answer(1)).connections == 1


def test_a_version_that_is_not_there_is_no_broken_connection() -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        with pytest.raises(BackendError) as refusal:
            await channel.infer(*call())
        assert refusal.value.version_gone
        assert not refusal.value.unreachable

    words = {"error": "Request for unknown model: 'm' version 3 is not at ready state"}
    run(test, message(json.dumps(words).encode(), 503))


def test_what_stands_in_between_is_quoted() -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        with pytest.raises(BackendError, match="HTTP status 502: <html>bad gateway") as refusal:
            await channel.infer(*call())
        assert refusal.value.unreachable
        assert len(refusal.value.message) < 400

    run(test, message(b"<html>bad gateway" + b" " * 10_000 + b"x", 502))


@pytest.mark.parametrize("chunked", [False, True])
def test_an_answer_above_the_limit_is_refused_with_the_limit(chunked: bool) -> None:
    body = bytes(5000)
    reply = message(body)
    if chunked:
        reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1388\r\n" + body + b"\r\n0\r\n\r\n"

    async def test(channel: HttpChannel, server: Server) -> None:
        with pytest.raises(BackendError, match=r"larger than max.*FRAMEGATE_TRITON__MAX_MESSAGE_BYTES") as refusal:
            await channel.infer(*call())
        assert refusal.value.too_large
        assert not refusal.value.unreachable
        assert await total(channel) == 1

    run(test, reply, answer(1), limit=4096)


def test_calls_leave_no_work_to_the_garbage_collector() -> None:
    """Small answers, large ones, and refusals."""

    async def test(channel: HttpChannel, server: Server) -> None:
        async def several() -> None:
            for _ in range(10):
                await total(channel)
                await channel.infer(*call())
                with suppress(BackendError):
                    await channel.infer(*call())

        await several()
        gc.collect()
        gc.disable()
        try:
            await several()
            assert gc.collect() == 0
        finally:
            gc.enable()

    run(test, *[answer(1), answer(*range(30_000)), message(b'{"error": "no kernel"}', 500)] * 20)


# ---------------------------------------------------------------- connections that break


@pytest.mark.parametrize("reply", [CLOSE, b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{", b"SSH-2.0-OpenSSH\r\n"])
def test_a_call_whose_connection_breaks_is_not_sent_again(reply: bytes) -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        sent = asyncio.create_task(channel.infer(*call()))
        while not server.requests:
            await asyncio.sleep(0.001)
        if reply not in (CLOSE,):
            await asyncio.sleep(0.02)
            server.writers[0].close()
        with pytest.raises(BackendError) as failure:
            await sent
        assert (failure.value.code, failure.value.unreachable) == ("UNAVAILABLE", True)
        assert len(server.requests) == 1
        assert await total(channel) == 3

    server = run(test, reply, answer(3))
    assert len(server.requests) == server.connections == 2


@pytest.mark.parametrize("how", ["close", "abort"])
def test_a_connection_found_closed_is_opened_again(how: str) -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        assert await total(channel) == 1
        writer = server.writers[0]
        writer.close() if how == "close" else writer.transport.abort()
        await asyncio.sleep(0.02)
        assert await total(channel) == 2

    server = run(test, answer(1), answer(2))
    assert len(server.requests) == server.connections == 2


def test_a_connection_that_triton_will_close_is_not_used_again() -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        assert [await total(channel), await total(channel)] == [1, 2]

    assert run(test, answer(1, more=("Connection: close",)), answer(2)).connections == 2


def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_channel, "_IDLE_S", 0.0)

    async def test(channel: HttpChannel, server: Server) -> None:
        assert [await total(channel), await total(channel)] == [1, 2]

    assert run(test, answer(1), answer(2)).connections == 2


def test_what_comes_unasked_is_nobodys_answer() -> None:
    """Beside the answer, or when nothing is under way."""

    async def test(channel: HttpChannel, server: Server) -> None:
        assert await total(channel) == 1
        assert await total(channel) == 3
        server.writers[1].write(answer(4))
        await asyncio.sleep(0.02)
        assert await total(channel) == 5

    assert run(test, answer(1) + answer(2), answer(3), answer(5)).connections == 3


def test_whoever_gives_up_closes_the_connection() -> None:
    """The late answer would be taken for that of the next call."""

    async def test(channel: HttpChannel, server: Server) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await channel.infer(*call())
        while server.open:
            await asyncio.sleep(0.001)
        assert await total(channel) == 8

    server = run(test, SILENCE, answer(8))
    assert len(server.requests) == server.connections == 2


def test_a_closed_channel_ends_its_calls() -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        sent = asyncio.create_task(channel.infer(*call()))
        while not server.requests:
            await asyncio.sleep(0.001)
        channel.close()
        with pytest.raises(BackendError) as failure:
            await sent
        assert failure.value.unreachable

    run(test, SILENCE)


def test_nobody_there_is_unreachable() -> None:
    async def main() -> None:
        channel = HttpChannel("127.0.0.1:9", 1 << 20)
        with pytest.raises(BackendError, match="no connection to Triton's HTTP endpoint") as failure:
            await channel.infer(*call())
        assert failure.value.unreachable
        assert "no connection" in await channel.why_not("region", 5)

    asyncio.run(main())


# ---------------------------------------------------------------- whose endpoint it is


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (message(b'[{"name": "region", "key": "/region", "offset": 0, "byte_size": 64}]'), ""),
        (message(b"[]"), "does not have the frame arena open"),
        (message(b'{"error": "Unable to find system shared memory region: \'region\'"}', 404), "does not have"),
        (message(b"hello"), "does not have"),
        (SILENCE, "no answer within 0.05 s"),
    ],
)
def test_it_is_asked_for_the_region(reply: bytes, reason: str) -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        found = await channel.why_not("region", 0.05)
        assert reason in found
        assert bool(reason) == bool(found)

    assert run(test, reply).requests[0][0] == "/v2/systemsharedmemory/region/region/status"


def test_an_endpoint_that_opens_a_moment_later_is_waited_for() -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        assert await channel.why_not("region", 5) == ""

    server = run(test, CLOSE, CLOSE, message(b'[{"name": "region"}]'))
    assert len(server.requests) == 3


# ---------------------------------------------------------------- what need not be parsed twice


def test_an_answer_whose_head_is_known_says_what_it_says_itself() -> None:
    """Same head and JSON, other values; then another length, another form, and the first again."""

    async def test(channel: HttpChannel, server: Server) -> None:
        for values in ((1, 2), (3, 4), (5, 6, 7), (8, 9)):
            outputs = await channel.infer(*call())
            assert outputs["sum"][:, 0].tolist() == list(values)
            assert not outputs["sum"].flags.writeable

    assert run(test, answer(1, 2), answer(3, 4), answer(5, 6, 7), answer(8, 9)).connections == 1


@pytest.mark.parametrize("pieces", [1, 60, 150, 200])
def test_a_known_head_in_front_of_a_body_that_is_not_whole_yet(pieces: int) -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        assert await total(channel) == 42
        server._pieces = pieces
        assert await total(channel) == 10
        server._pieces = 0
        assert await total(channel) == 7

    assert run(test, answer(40, 2), answer(4, 6), answer(7, 0)).connections == 1


def test_a_second_answer_behind_one_whose_head_is_known_ends_the_connection() -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        for value in (1, 2, 3):
            assert await total(channel) == value

    assert run(test, answer(1), answer(2) + answer(2), answer(3)).connections == 2


def test_a_connection_that_triton_closes_is_not_taken_for_one_that_stays() -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        for value in (1, 2, 3):
            assert await total(channel) == value

    closing = [answer(value, more=("Connection: close",)) for value in (1, 2, 3)]
    assert run(test, *closing).connections == 3


def test_outputs_that_are_not_as_they_travel_are_read_each_time() -> None:
    """BF16 is widened, and BYTES are objects, whatever an earlier answer with the same JSON held."""

    def reply(first: int, name: bytes) -> bytes:
        wide = np.array([first], "<u2").tobytes()
        names = len(name).to_bytes(4, "little") + name
        outputs = [
            {"name": "wide", "datatype": "BF16", "shape": [1], "parameters": {"binary_data_size": len(wide)}},
            {"name": "name", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(names)}},
        ]
        head = json.dumps({"model_name": "m", "model_version": "1", "outputs": outputs}).encode()
        return message(head + wide + names, 200, f"Inference-Header-Content-Length: {len(head)}")

    async def test(channel: HttpChannel, server: Server) -> None:
        for value, name in ((1.0, b"cat"), (-2.0, b"dog")):
            found = await channel.infer(*call())
            assert (found["wide"].tolist(), found["name"].tolist()) == ([value], [name])

    run(test, reply(0x3F80, b"cat"), reply(0xC000, b"dog"))


# ---------------------------------------------------------------- without a task


async def begun(channel: HttpChannel) -> "asyncio.Future[Any]":
    """Begin one call, as the executor does; its end is the future's."""
    ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    asked, data = call()
    under_way = channel.begin(channel.prepare(asked, data), data.offset, ended.set_result)
    assert under_way is not None
    ended.under_way = under_way  # type: ignore[attr-defined]
    return ended


def test_a_call_without_a_task_is_the_same_call() -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        asked, data = call()
        assert channel.begin(channel.prepare(asked, data), data.offset, lambda _: None) is None, "not connected"
        assert await total(channel) == 1
        assert (await (await begun(channel)))["sum"].tolist() == [[2]]
        refused = await (await begun(channel))
        assert isinstance(refused, BackendError)
        assert (refused.message, refused.code) == ("CUDA error 700", "INTERNAL")
        assert await total(channel) == 3

    server = run(test, answer(1), answer(2), message(b'{"error": "CUDA error 700"}', 500), answer(3))
    assert server.connections == 1
    assert len({(path, body) for path, _, body in server.requests}) == 1


def test_by_the_end_of_a_call_its_connection_takes_the_next() -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        assert await total(channel) == 1
        values: list[int] = []
        over = asyncio.Event()
        asked, data = call()
        prepared = channel.prepare(asked, data)

        def ended(outputs: Any) -> None:
            values.append(int(outputs["sum"][0, 0]))
            if len(values) == 3:
                over.set()
            else:
                assert channel.begin(prepared, data.offset, ended) is not None

        assert channel.begin(prepared, data.offset, ended) is not None
        await over.wait()
        assert values == [2, 3, 4]

    assert run(test, *map(answer, (1, 2, 3, 4))).connections == 1


def test_a_fault_that_nobody_foresaw_ends_that_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        assert await total(channel) == 1

        def fails(*_: Any) -> Any:
            raise MemoryError("no more")

        with monkeypatch.context() as patched:
            patched.setattr(channel._replies, "outputs", fails)
            ended = await (await begun(channel))
        assert isinstance(ended, BackendError)
        assert "no more" in ended.message
        assert await total(channel) == 3

    assert run(test, answer(1), answer(2), answer(3)).connections == 1


@pytest.mark.parametrize("how", ["cancelled", "broken"])
def test_a_call_that_is_not_answered_ends_once(how: str) -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        assert await total(channel) == 1
        ended = await begun(channel)
        while len(server.requests) < 2:
            await asyncio.sleep(0.001)
        if how == "cancelled":
            ended.under_way.cancel()  # type: ignore[attr-defined]
            assert ended.done()
        else:
            server.writers[0].close()
        outcome = await ended  # set twice, it would raise
        assert isinstance(outcome, asyncio.CancelledError if how == "cancelled" else BackendError)
        assert await total(channel) == 3

    assert run(test, answer(1), SILENCE, answer(3)).connections == 2


# ---------------------------------------------------------------- two at one time

REGION = message(b'[{"name": "region"}]')


async def sent(server: Server, count: int) -> None:
    while len(server.requests) < count:
        await asyncio.sleep(0.001)


def test_once_the_endpoint_is_found_right_two_calls_can_begin_at_once() -> None:
    """And go on to: whichever comes first uses the one that was idle for longer, so that neither grows old."""

    async def test(channel: HttpChannel, server: Server) -> None:
        assert await channel.why_not("region", 5) == ""
        for value in range(3):
            server.answers = [answer(value), answer(value)]
            for ended in [await begun(channel), await begun(channel)]:
                assert (await ended)["sum"].tolist() == [[value]]
        server.answers = [answer(1), answer(2)]
        assert [await total(channel), await total(channel)] == [1, 2]
        assert len(set(server.peers[-2:])) == 2

    assert run(test, REGION).connections == 2


def test_one_that_is_lost_is_opened_again_while_the_next_call_runs() -> None:
    async def test(channel: HttpChannel, server: Server) -> None:
        assert await channel.why_not("region", 5) == ""
        server.writers[0].close()
        while server.open == 2:
            await asyncio.sleep(0.001)
        server.answers = [SILENCE, answer(7)]
        first = await begun(channel)
        while server.connections < 3:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        assert (await (await begun(channel)))["sum"].tolist() == [[7]]
        first.under_way.cancel()  # type: ignore[attr-defined]

    run(test, REGION)


def test_calls_get_their_connections_in_the_order_in_which_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has to connect first is not overtaken by the next, which finds a connection that was freed meanwhile."""

    async def test(channel: HttpChannel, server: Server) -> None:
        assert await total(channel) == 1
        running = await begun(channel)
        await sent(server, 2)
        asked, data = call()
        loop = asyncio.get_running_loop()
        prepared, connecting, connect = channel.prepare(asked, data), asyncio.Event(), loop.create_connection

        async def slowly(*arguments: Any) -> Any:
            await connecting.wait()
            return await connect(*arguments)

        monkeypatch.setattr(loop, "create_connection", slowly)
        second = asyncio.create_task(channel.infer(*call(version="2")))
        await asyncio.sleep(0)
        server.answers += [answer(3), answer(4)]
        server.release(answer(2))
        await running
        assert channel.begin(prepared, data.offset, lambda _: None) is None
        third = asyncio.create_task(channel.infer(*call(version="3")))
        await asyncio.sleep(0.01)
        assert len(server.requests) == 2
        connecting.set()
        await second
        await third
        assert [path.split("/")[5] for path, _, _ in server.requests[2:]] == ["2", "3"]

    run(test, answer(1), SILENCE)
